"""The counts of `make house` and the faults that `make lint` finds in prose."""

from pathlib import Path

import pytest

from tests import prose
from tests.writing import named_parameters, written

SOURCE = '''"""A file."""


class Shape:
    """Has sides.

    Args:
        sides: how many.
    """

    def __init__(self, sides, colour):
        self.sides = sides

    def scaled(self, factor):
        """Larger by the `factor`."""

    def moved(self, sides):
        """By so much."""


class _Hidden:
    """Nothing is asked of it."""

    def __init__(self, anything): ...


def undescribed(anything): ...
'''


def test_parameters_of_constructors_are_named_by_their_classes_and_others_by_their_functions(tmp_path):
    """`sides` and `factor`; neither `colour`, nor the `sides` of `moved`, of which its own docstring says nothing."""
    (tmp_path / "shape.py").write_text(SOURCE)
    assert named_parameters(tmp_path) == (2, 4)


def test_docstrings_code_and_bodies_are_counted_in_lines(tmp_path):
    (tmp_path / "shape.py").write_text(SOURCE)
    counted = written(tmp_path)
    assert counted.files == [SOURCE.count("\n")]
    assert counted.docstrings == 1 + 5 + 1 + 1 + 1
    assert counted.code == 8
    assert sorted(counted.bodies) == [0, 0, 1, 1, 1]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a repository with a page and a module, both without faults."""
    for folder in ("fred", "docs/reference"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "README.md").write_text("# Who is late?\n\nLate workers are dropped, as `nobody` says.\n")
    (tmp_path / "fred/one.py").write_text('def late():\n    """Return the late workers."""\n')
    (tmp_path / "docs/reference/generated.md").write_text("nobody " * (prose.LIMIT + 1))
    return tmp_path


def test_prose_without_faults_passes(root):
    assert prose.faults(root) == []


def test_a_docstring_that_begins_with_a_clause_is_a_fault(root):
    (root / "fred/one.py").write_text('def late():\n    """Who is late."""\n\n\nclass Late:\n    """Of a kind."""\n')
    assert prose.faults(root) == ["fred/one.py:2: begins with a clause: Who is late."]


def test_some_dialect_is_allowed_and_more_is_listed_by_place(root):
    page = root / "docs/page.md"
    page.write_text("# A page\n\n" + "nobody waits. " * prose.LIMIT)
    assert prose.faults(root) == []
    (root / "fred/one.py").write_text('def late():\n    """Return those who wait."""\n')
    found = prose.faults(root)
    assert found[0] == f"{prose.LIMIT + 1} places of dialect; at most {prose.LIMIT} are allowed"
    assert len(found) == prose.LIMIT + 2
    assert found[1].startswith("docs/page.md:3: ...nobody waits.")
    assert found[-1] == "fred/one.py:2: ...Return those who wait...."
