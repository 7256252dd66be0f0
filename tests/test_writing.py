"""What `make house` counts of how files are written."""

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
