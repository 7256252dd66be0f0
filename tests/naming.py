"""Names that do not say what a thing is: functions, parameters and variables that are only participles, pronouns or prepositions.

`python -m tests.naming` is part of `make lint`: it lists them if their share of a folder's names exceeds `LIMITS`.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
LIMITS = {"fred": 0.015, "tests": 0.015, "benchmarks": 0.03, "reproductions": 0.03, "studies": 0.03}  # share of all names
_WORDS = """
found own each told said known asked given wanted shown taken made drawn kept held apart beside besides among amongst
about upto whole here there these those this that which what who whose one ones other others another both either neither
some any all such same again already yet still then than so thus hence once later sooner before after until since while
during with without within upon onto into toward towards of at by for from to off over under between against along
across around behind beyond through able alike alone aside away back begun done gone left lost met set up used unused
named unnamed called stated heard seen unseen sent unsent read written tried untried chosen unchosen allowed believed
counted heeded meant thought wished needed asking telling saying going doing having being it its they them their he his
she her we our us me my mine yours theirs is are was were be been has have had does do did can could may might must
shall should will would now soon late early first second third last next further more most less least many much few
several enough too very quite rather almost nearly just only even also well ill good bad better best worse worst new old
big small large smallest largest little long short longest shortest fewest high low usual unusual plain plainly true false possible impossible present absent ready
unready open closed full empty free busy spare joined parted split cut ended finished unfinished started stopped
"""
# As variables and parameters, in which numpy and optax have them, too.
_ORDINARY = """
only all any first last next second third new old sent used done open closed read left right set up back low high best
worst least most long short small large fewest longest shortest largest smallest full empty start end this other true false to by at of with for is has can before
after since until free possible usual present late early split cut many much few several now next_ spare named
"""
_VAGUE, _ORDINARY_WORDS = frozenset(_WORDS.split()), frozenset(_ORDINARY.split())


class Name(NamedTuple):
    """A name at the place at which a file defines it first.

    >>> [Name("fred/a.py:1", "function", name).says_nothing for name in ("found", "_kept_apart", "found_rows", "load")]
    [True, True, False, False]
    >>> Name("fred/a.py:1", "variable", "least").says_nothing, Name("fred/a.py:1", "constant", "_LEAST").says_nothing
    (False, True)
    """

    place: str
    kind: str
    name: str

    @property
    def says_nothing(self) -> bool:
        """Return True if all words of the name are participles, pronouns, prepositions or the like."""
        parts = [part for part in self.name.strip("_").lower().split("_") if part]
        if not parts or self.name.startswith("__") or not all(part in _VAGUE for part in parts):
            return False
        return self.kind in ("function", "constant") or not all(part in _ORDINARY_WORDS for part in parts)


def names(folder: Path) -> Iterator[Name]:
    """Yield the names that the files of a folder define, each once for a file; functions each time."""
    for path in sorted(folder.rglob("*.py")):
        earlier = set[tuple[str, str]]()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    kind = "function"
                case ast.arg(arg=name):
                    kind = "parameter"
                case ast.Name(id=name, ctx=ast.Store()):
                    kind = "constant" if name.isupper() else "variable"
                case _:
                    continue
            if kind == "function" or (kind, name) not in earlier:
                earlier.add((kind, name))
                yield Name(f"{path.relative_to(folder.parent)}:{node.lineno}", kind, name)


def excess(root: Path) -> list[str]:
    """Return the names that say nothing, of each folder that has more of them than its limit."""
    lines = list[str]()
    for folder, limit in LIMITS.items():
        all_names = list(names(root / folder))
        vague = [name for name in all_names if name.says_nothing]
        if len(vague) > limit * len(all_names):
            lines += [f"{place}: {kind} `{name}`" for place, kind, name in vague]
            share = len(vague) / len(all_names)
            lines.append(f"{folder}: {share:.1%} of the names say nothing; at most {limit:.1%} may: rename some of these")
    return lines


if __name__ == "__main__":
    listed = excess(ROOT)
    print("\n".join(listed), end="\n" * bool(listed), file=sys.stderr)
    sys.exit(bool(listed))
