"""Tests that can end without having asserted anything, found in their text.

A path through a test is every way that its branches can go; loops are taken to come to all that is in them. What asserts: `assert`, `pytest.raises` and
its like, and functions whose names begin with `check` or `assert`.
"""

import ast
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ASSERTING = frozenset({"raises", "warns", "fail", "skip"})  # of pytest; who skips says so in the report


class Paths(NamedTuple):
    """Whether some path comes to the end of a block, or returns from it, without having asserted anything."""

    through: bool
    back: bool


def silent_tests(file: Path) -> list[str]:
    """Name and line of tests that can end without an assertion."""
    tests = (node for node in ast.walk(_tree(file)) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"))
    return [f"{file.name}:{test.lineno}: {test.name}" for test in tests if any(_block(test.body))]


def empty_asserts(file: Path) -> list[str]:
    """Line and text of asserts that cannot fail: of a constant, or of something beside itself."""
    asserts = (node for node in ast.walk(_tree(file)) if isinstance(node, ast.Assert))
    return [f"{file.name}:{each.lineno}: {ast.unparse(each)}" for each in asserts if _cannot_fail(each.test)]


def borrowed(file: Path) -> list[str]:
    """Line and text of imports from other files of tests."""
    imports = (node for node in ast.walk(_tree(file)) if isinstance(node, ast.Import | ast.ImportFrom))
    return [f"{file.name}:{each.lineno}: {ast.unparse(each)}" for each in imports if any(map(_is_test, _imported(each)))]


def _imported(statement: ast.Import | ast.ImportFrom) -> list[str]:
    """The modules that it may import, as seen from the repository; files of tests have no folders below them."""
    names = [alias.name for alias in statement.names]
    if isinstance(statement, ast.Import):
        return names
    module = ".".join(filter(None, ["tests" if statement.level else "", statement.module]))
    return [module, *(f"{module}.{name}" for name in names)]


def _is_test(module: str) -> bool:
    return module.startswith(("tests.test_", "test_"))


def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def _block(body: Sequence[ast.stmt]) -> Paths:
    back = False
    for statement in body:
        through, returns = _of(statement)
        back |= returns
        if not through:
            return Paths(False, back)
    return Paths(True, back)


def _of(statement: ast.stmt) -> Paths:
    match statement:
        case ast.Assert() | ast.Raise():
            return Paths(False, False)
        case ast.Return():
            return Paths(False, True)
        case ast.FunctionDef() | ast.ClassDef():
            return Paths(True, False)
        case ast.If():
            return _either(_block(statement.body), _block(statement.orelse))
        case ast.Match():
            return _either(*(_block(case.body) for case in statement.cases))
        case ast.Try():
            main = [*statement.body, *statement.orelse]
            return _either(*(_block(part) for part in (main, *(each.body for each in statement.handlers))))
        case ast.For() | ast.While():
            somewhere = any(isinstance(node, ast.Assert) or _asserts(node) for node in ast.walk(statement))
            return Paths(not somewhere, _block(statement.body).back)
        case ast.With() if not any(_asserts(item.context_expr) for item in statement.items):
            return _block(statement.body)
    return Paths(not _asserts(statement), False)


def _asserts(node: ast.AST) -> bool:
    """Return whether the node calls something that asserts, by its name."""
    calls = (each.func for each in ast.walk(node) if isinstance(each, ast.Call))
    names = (func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "") for func in calls)
    return any(name in ASSERTING or name.lstrip("_").startswith(("assert", "check")) for name in names)


def _either(*ways: Paths) -> Paths:
    return Paths(any(way.through for way in ways), any(way.back for way in ways))


def _cannot_fail(test: ast.expr) -> bool:
    if isinstance(test, ast.Constant):
        return bool(test.value)
    if isinstance(test, ast.Tuple):
        return bool(test.elts)
    if not isinstance(test, ast.Compare) or any(isinstance(node, ast.Call) for node in ast.walk(test)):
        return False
    sides = [ast.dump(side) for side in (test.left, *test.comparators)]
    return any(one == other for one, other in pairwise(sides))
