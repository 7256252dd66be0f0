"""Sweeps: one run becomes many, one for each value of a setting or combination of values."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, Field, ValidationInfo, WithJsonSchema, field_validator, model_validator

from fred.components.component import Component, Object
from fred.components.registry import OBJECT, nearest
from fred.specification.shape import Run
from fred.specification.summary import NUMBERS, TABLE_COLUMNS, TASK

_MOST_POINTS = 10_000
_ENDS = {  # criterion -> its column at the target, and at the end of the run
    "seconds": ("target_seconds", "virtual_seconds"),
    "updates": ("target_updates", "updates"),
    "cost": ("target_cost", "cost_total"),
    "energy": ("target_energy_kwh", "energy_kwh"),
}
_NAMES = tuple(dict.fromkeys((*_ENDS, *(name for name in TABLE_COLUMNS if name in NUMBERS), *NUMBERS)))
_HIGHER_IS_BETTER = [name for name, column in NUMBERS.items() if column.better == "higher"]
_WAYS = ("lowest", "highest")


class Criterion(NamedTuple):
    """The criterion for the best point of a sweep: a column of the summary, averaged over the seeds."""

    name: str  # as the user wrote it
    column: str
    highest: bool  # True if higher is better
    missing: str  # the setting that all swept runs lack to measure it; empty if some measure it

    @property
    def way(self) -> str:
        """Return which value is the best: `highest` or `lowest`."""
        return "highest" if self.highest else "lowest"

    @property
    def words(self) -> str:
        """Return the name of the column in words."""
        if NUMBERS[self.column].words:
            return NUMBERS[self.column].words
        unit = self.column.removeprefix("target_")
        return f"{unit} to the target" if unit != self.column else self.column.replace("_", " ")

    @classmethod
    def from_name(cls, best: str | None, runs: Sequence[Run]) -> "Criterion":
        """Return the criterion of this name; by default the loss, or without a task the throughput.

        With a target, `seconds`, `updates`, `cost` and `energy` count until the target; otherwise until the end.

        Args:
            best: the criterion as the user wrote it, or None.
            runs: the swept runs. Some of them must measure it.
        """
        best = best or ("loss" if any(map(TASK.applies, runs)) else "throughput")
        *way, name = best.split()
        at_target, at_end = _ENDS.get(name, (name, name))
        column = at_target if any(run.has_target for run in runs) else at_end
        missing = [need.name for need in NUMBERS[column].needs if not any(map(need.applies, runs))]
        highest = way == ["highest"] if way else NUMBERS[column].better == "higher"
        return cls(best, column, highest, missing[0] if missing else "")


def _check_best(best: str) -> str:
    *way, name = best.split() or [""]
    if name in _NAMES and (not way or (len(way) == 1 and way[0] in _WAYS)):
        return " ".join((*way, name))
    raise ValueError(
        f"expected a column of the summary, optionally after `lowest` or `highest`{nearest(name, _NAMES)}; "
        f"the columns are {', '.join(_NAMES)}"
    )


_SCHEMA = {
    "anyOf": [{"enum": list(_NAMES)}, {"type": "string", "pattern": rf"^({'|'.join(_WAYS)}) ({'|'.join(_NAMES)})$"}],
}
Best = Annotated[str, AfterValidator(_check_best), WithJsonSchema(_SCHEMA)]


class Spaced(Component):
    """A number of evenly spaced values between two limits, both included."""

    first: float = Field(description="the first value", examples=[0.001])
    last: float = Field(description="the last value", examples=[1.0])
    number: int = Field(ge=2, le=_MOST_POINTS, description="number of values", examples=[4])
    spacing: Literal["log", "linear"] = Field(default="log", description="equal ratios, or equal differences")

    @model_validator(mode="after")
    def _logarithmic(self) -> Self:
        if self.spacing == "log" and min(self.first, self.last) <= 0:
            raise ValueError("`spacing: log` needs `first` and `last` above 0")
        return self

    def values(self) -> list[float]:
        """Return the values, rounded to three digits: their names stay short and equal on all machines."""
        shares = [step / (self.number - 1) for step in range(self.number)]
        if self.spacing == "linear":
            return [float(f"{self.first + share * (self.last - self.first):.3g}") for share in shares]
        low, high = math.log10(self.first), math.log10(self.last)
        return [float(f"{10 ** (low + share * (high - low)):.3g}") for share in shares]


class Point(Component):
    """A point of a sweep: the swept run and its values."""

    of: str = Field(description="the run that was swept", examples=["asgd"])
    values: dict[str, Any] = Field(description="the value of each swept setting", examples=[{"algorithm.learning_rate": 0.1}])
    later: bool = Field(default=False, description="whether it is tried only if it is next to the best point so far")


class Sweep(Component):
    """The settings that a sweep varies: every combination of their values, or the listed combinations."""

    over: dict[str, list[Any] | Spaced] | list[dict[str, Any]] = Field(
        description="for a grid, `key.path: [values]` or `key.path: {first, last, number, spacing}`; or a list of "
        "`key.path: value` mappings",
        examples=[{"algorithm.learning_rate": [0.01, 0.1]}],
    )
    start: int | None = Field(
        default=None,
        ge=2,
        description="number of values in the middle of each range that are tried at first, in a grid of numbers. Then follow "
        "the neighbours of the best point, until all of them have been tried. Absent: all values are tried",
    )
    best: Best | None = Field(
        default=None,
        description="criterion for the best point: a column of the summary, averaged over the seeds (default: loss; without a "
        f"task: throughput). The lowest value is the best, except for {', '.join(_HIGHER_IS_BETTER)}; `lowest NAME` or "
        "`highest NAME` overrides this. `seconds`, `updates`, `cost` and `energy` count until the target, or without one until "
        "the end",
    )

    @field_validator("over", mode="before")
    @classmethod
    def _expand_ranges(cls, ranges: Any, info: ValidationInfo) -> Any:
        if isinstance(ranges, dict):
            return {
                key: Spaced.model_validate(values) if isinstance(values, dict) else values for key, values in ranges.items()
            }
        return ranges

    @model_validator(mode="after")
    def _has_points(self) -> Self:
        parts = self.over.values() if isinstance(self.over, dict) else self.over
        if not self.over or any(not isinstance(part, Spaced) and not part for part in parts):
            raise ValueError("expected at least one key, and one value for it")
        number = math.prod(len(self._values(part)) for part in parts) if isinstance(self.over, dict) else len(self.over)
        if number > _MOST_POINTS:
            raise ValueError(f"the sweep has more than {_MOST_POINTS:,} points; expected fewer")
        if self.start is not None:
            self._check_start(self.start)
        return self

    def _check_start(self, start: int) -> None:
        """Raise ValueError unless some points are not tried at first."""
        if not isinstance(self.over, dict):
            raise ValueError("`start` needs a grid in `over`: `key.path: [values]`")
        ranges = [values for values in map(self._values, self.over.values()) if all(map(is_number, values))]
        if start >= (longest := max(map(len, ranges), default=0)):
            raise ValueError(
                f"`start` ({start}) leaves no value for later, as the longest range of numbers in `over` has {longest}: leave "
                "it out, or give a smaller one or a longer range"
            )

    @staticmethod
    def _values(part: Any) -> list[Any]:
        return part.values() if isinstance(part, Spaced) else list(part)

    def points(self) -> list[dict[str, Any]]:
        """Return the settings of each point; the last key changes fastest."""
        if not isinstance(self.over, dict):
            return list(self.over)
        values = [self._values(part) for part in self.over.values()]
        return [dict(zip(self.over, combination, strict=True)) for combination in itertools.product(*values)]

    def comes_later(self, point: dict[str, Any]) -> bool:
        """Return True if a point is not among those that are tried at first.

        Args:
            point: its values, by key.

        >>> sweep = Sweep(over={"algorithm.learning_rate": [0.1, 0.2, 0.4, 0.8, 1.6]}, start=3)
        >>> [values["algorithm.learning_rate"] for values in sweep.points() if not sweep.comes_later(values)]
        [0.2, 0.4, 0.8]
        """
        if self.start is None or not isinstance(self.over, dict):
            return False
        return any(point[key] not in middle(self._values(part), self.start) for key, part in self.over.items())


def swept_again(points: Mapping[str, Point], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the settings of the sweep of each swept run, from its points.

    Args:
        points: the points, by name.
        names: names of runs and points, in order; points that are not among them are left out.

    >>> grid = {f"a{n}": Point(of="a", values={"x": n, "y": 1}, later=n == 3) for n in (1, 2, 3)}
    >>> swept_again(grid, [*grid])
    {'a': {'over': {'x': [1, 2, 3], 'y': [1]}, 'start': 2}}
    """
    sweeps: dict[str, list[Point]] = {}
    for name in names:
        if name in points:
            sweeps.setdefault(points[name].of, []).append(points[name])
    return {run: _sweep_settings(points_of_run) for run, points_of_run in sweeps.items()}


def _sweep_settings(points: Sequence[Point]) -> dict[str, Any]:
    """Return the settings of a sweep: a grid if its points, in order, are those of the points given, else a list of these."""
    values = [point.values for point in points]
    ranges: dict[str, list[Any]] = {key: [] for key in values[0]}
    for key, value in (pair for point in points for pair in point.values.items()):
        if value not in ranges.setdefault(key, []):
            ranges[key].append(value)
    grid = [dict(zip(ranges, combination, strict=True)) for combination in itertools.product(*ranges.values())]
    if grid != values:
        return {"over": values}
    at_first = [point.values for point in points if not point.later]
    if len(at_first) == len(points):
        return {"over": ranges}
    numbers_at_first = [len({repr(point_values[key]) for point_values in at_first}) for key in ranges]
    return {"over": ranges, "start": max(numbers_at_first)}  # shorter ranges are tried as a whole


def middle(values: list[Any], number: int) -> list[Any]:
    """Return a number of values in the middle of a range; all values, if they are not numbers.

    >>> middle([3, 1, 2, 4], 2), middle(["ring", "tree", "ring"], 2)
    ([2, 3], ['ring', 'tree', 'ring'])
    """
    if not all(is_number(value) for value in values):
        return values
    first = max(0, (len(values) - number) // 2)
    return sorted(values)[first : first + number]


def is_number(value: Any) -> bool:
    """Return True for a number that is no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def name_of(run: str, values: dict[str, Any]) -> str:
    """Return the name of the run at a point: `asgd,learning_rate=0.1`."""
    return ",".join([run, *(f"{key.rsplit('.', 1)[-1]}={word(value)}" for key, value in values.items())])


def word(value: Any) -> str:
    """Return a value as one short word, at most 40 characters for a plain value."""
    if isinstance(value, Object):
        value = value.model_dump()
    if isinstance(value, dict) and value.get("name") == OBJECT:  # an object of the user's: its class, and its digest if known
        return "-".join([value["kind"].rpartition(".")[2], *([value["digest"][:6]] if value["digest"] else [])])[:40]
    if isinstance(value, dict):
        return "-".join(word(item) for item in value.values())
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return "".join(character if character.isalnum() or character in "+-._" else "_" for character in text)[:40]
