"""How files are written: lines of each, of functions, of docstrings; parameters that docstrings name."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Writing(NamedTuple):
    """How files are written, in lines."""

    files: list[int]
    bodies: list[int]  # of functions, without their docstrings
    docstrings: int
    code: int  # neither blank, nor comment, nor docstring


def written(folder: Path) -> Writing:
    """Return the line counts of all Python files below a folder."""
    counted = Writing([], [], 0, 0)
    docstrings = code = 0
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        counted.files.append(text.count("\n"))
        stated: set[int] = set()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                own = set(docstring_of(node))
                stated |= own
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    last = node.end_lineno or 0
                    counted.bodies.append(last - node.body[0].lineno + 1 - len(own))
        lines = enumerate(text.splitlines(), start=1)
        docstrings += len(stated)
        code += sum(bool(line.strip()) and not line.lstrip().startswith("#") and number not in stated for number, line in lines)
    return counted._replace(docstrings=docstrings, code=code)


def docstring_of(node: ast.AST) -> range:
    """Return the lines of a node's docstring."""
    body = getattr(node, "body", None)
    first = body[0] if isinstance(body, list) and body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return range(first.lineno, (first.end_lineno or first.lineno) + 1)
    return range(0)


def named_parameters(folder: Path) -> tuple[int, int]:
    """Return the number of parameters of public functions, methods and classes that docstrings name, and of all."""
    named = there = 0
    for path in sorted(folder.rglob("*.py")):
        for function, said in _documented(ast.parse(path.read_text(encoding="utf-8"))):
            own = [each.arg for each in (*function.args.args, *function.args.kwonlyargs) if each.arg not in ("self", "cls")]
            there += len(own)
            named += sum(re.search(rf"\b{name}\b", said) is not None for name in own)
    return named, there


def _documented(tree: ast.AST) -> Iterator[tuple[ast.FunctionDef, str]]:
    """Yield public objects with a docstring: functions with theirs, constructors with their classes'."""
    for node in ast.walk(tree):
        if (
            isinstance(node, (ast.FunctionDef, ast.ClassDef))
            and not node.name.startswith("_")
            and (said := ast.get_docstring(node))
        ):
            if isinstance(node, ast.FunctionDef):
                yield node, said
            else:
                made = (each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__")
                yield from ((each, said) for each in made)
