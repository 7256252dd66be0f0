"""What tests must not do: end without having asserted anything, assert what cannot fail, borrow from other tests."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.assertions import borrowed, empty_asserts, silent_tests

FILES = sorted(Path(__file__).parent.glob("*.py"))


@pytest.mark.parametrize("fault", [silent_tests, empty_asserts, borrowed], ids=lambda fault: fault.__name__)
def test_no_test_has_this_fault(fault: Callable[[Path], list[str]]):
    assert [each for file in FILES for each in fault(file)] == []


SILENT = (
    "record()",
    "if number == 3:\n        return\n    assert schedule",
    "if gossip:\n        assert a\n    elif synchronous:\n        assert b",
    "try:\n        check(x)\n    except ValueError:\n        return",
    "for each in range(4):\n        if each not in computed:\n            return\n        assert each",
    "def inner():\n        assert x",
)
HEARD = (
    "assert x",
    "with pytest.raises(ValueError):\n        f()",
    "if gossip:\n        assert a\n    else:\n        check_it(b)",
    "for each in rows:\n        if each:\n            assert x",
    "try:\n        f()\n    except ValueError as e:\n        assert e\n    else:\n        assert x",
    "assert x\n    if y:\n        return\n    assert z",
    "if not data:\n        pytest.skip()\n    assert x",
)


@pytest.mark.parametrize(("body", "silent"), [*((body, True) for body in SILENT), *((body, False) for body in HEARD)])
def test_a_path_without_an_assertion_is_found(body, silent, tmp_path):
    file = tmp_path / "test_it.py"
    file.write_text(f"def test_it():\n    {body}\n")
    assert silent_tests(file) == (["test_it.py:1: test_it"] if silent else [])


@pytest.mark.parametrize(
    ("test", "empty"),
    [("True", True), ("(x, 'why')", True), ("x.y == x.y", True), ("f() == f()", False), ("1 < x > 1", False), ("x", False)],
)
def test_an_assert_that_cannot_fail_is_found(test, empty, tmp_path):
    file = tmp_path / "test_it.py"
    file.write_text(f"assert {test}\n")
    assert bool(empty_asserts(file)) == empty


@pytest.mark.parametrize(
    "line",
    [
        "from tests.test_units import x",
        "from tests import test_units as units",
        "import tests.test_units",
        "import json, tests.test_units as units",
        "from .test_units import x",
        "from . import test_units",
    ],
)
def test_an_import_from_another_test_is_found(line, tmp_path):
    file = tmp_path / "test_it.py"
    file.write_text(f"from tests.worlds import record\n{line}\nimport tests.worlds\nfrom . import worlds\n")
    assert borrowed(file) == [f"test_it.py:2: {line}"]
