"""Find sentences that a reader has to read twice; part of `make lint`.

The docstring of a function begins with a verb. Pages and docstrings avoid FRED's former dialect ("who is late", "anew"). A few
places may remain, because sometimes such words are the right ones.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
LIMIT = 20  # places of dialect
_MANUAL = ("index.md", "results.md")  # in docs/reference; docs/conf.py writes the other pages
_CLAUSE = re.compile(r"(What|Whos?e?|Whom|Whoever|Whether|How|When|Where|Why|Which|Of|As|With|From|To|In|For|By|At|On)\b")
_DIALECT = re.compile(
    r"\b(anew|seldom|in vain|of one's own|told apart|meanwhile|whoever|nobody|everybody|at hand|comes? to|so many|those who"
    r"|who (?:is|are|has|waits?|sends?|comes?|goes|gets?|knows?|reads?|asks?)|what (?:is|was|has|comes|came|it) \w+"
    r"|beside (?:it|them|each))\b",
    re.IGNORECASE,
)


class Passage(NamedTuple):
    """A docstring or a paragraph without its code: its file and line, its words, and whether it is a function's docstring."""

    place: str
    text: str
    function: bool = False


def passages(root: Path) -> Iterator[Passage]:
    """Yield all passages of FRED's docstrings and pages, from the root of the repository."""
    for path in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        place = path.relative_to(root / "docs" if path.is_relative_to(root / "docs") else root)
        generated = place.parent.name == "reference" and place.name not in _MANUAL
        if not generated and not any(part.startswith("_") for part in place.parts):
            yield from _read_page(path.read_text(encoding="utf-8"), str(path.relative_to(root)))
    for path in sorted((root / "fred").rglob("*.py")):
        yield from _read_code(path.read_text(encoding="utf-8"), str(path.relative_to(root)))


def _read_page(text: str, file: str) -> Iterator[Passage]:
    """Yield the paragraphs of a page, without tables, headings and pictures."""
    text = re.sub(r"(?s)```.*?```|<[^>]+>", lambda code: "\n" * code[0].count("\n"), text)
    line = 1
    for block in re.split(r"(\n\s*\n)", text):
        if block.strip() and not block.lstrip().startswith(("|", "#", "![")):
            words = re.sub(r"`[^`]*`|\[([^]]*)\]\([^)]*\)", r"\1", block)
            yield Passage(f"{file}:{line}", " ".join(words.split()))
        line += block.count("\n")


def _read_code(text: str, file: str) -> Iterator[Passage]:
    """Yield the docstrings of a module, without their examples."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            words = re.sub(r"(?m)^\s*(>>>|\.\.\.).*$|`[^`]*`", "X", ast.get_docstring(node) or "")
            if words:
                function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                yield Passage(f"{file}:{node.body[0].lineno}", " ".join(words.split()), function)


def faults(root: Path) -> list[str]:
    """Return the docstrings that begin with a clause and, if they are too many, the places of dialect."""
    clauses, places = list[str](), list[str]()
    for place, text, function in passages(root):
        if function and _CLAUSE.match(text):
            clauses.append(f"{place}: begins with a clause: {text}")
        places += [f"{place}: ...{text[max(0, hit.start() - 40) : hit.end() + 40]}..." for hit in _DIALECT.finditer(text)]
    many = [f"{len(places)} places of dialect; at most {LIMIT} are allowed", *places] if len(places) > LIMIT else []
    return clauses + many


if __name__ == "__main__":
    problems = faults(ROOT)
    print("\n".join(problems), end="\n" * bool(problems), file=sys.stderr)
    sys.exit(bool(problems))
