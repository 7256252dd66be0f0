"""Tune a system: search an ordered grid of its knobs on one seed, and choose among the best with further seeds.

All systems of a study have the same number of points, however many knobs they have. The search begins in the middle of the grid
and tries the neighbours of the best point that has any left, so it goes on towards an edge as long as that pays. A geometric
grid has no edge: the search goes on beyond its ends. Further points are spent only while a neighbour of the best is untried.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from reproductions.common import REPORTED as REPORTED
from reproductions.common import TUNING as TUNING

POINTS, FINALISTS = 16, 4  # tried on the first seed, and of those on the others too
EXTENSION = 8  # places that a search may go beyond each end of a geometric grid

Knobs = Mapping[str, Sequence[Any]]
Settings = dict[str, Any]
Measure = Callable[[Sequence[Settings], Sequence[int]], NDArray[np.float64]]
_Point = tuple[int, ...]  # place of each knob's value


class Geometric(tuple[float, ...]):
    """Values with a constant ratio, of two significant digits, which a search continues beyond either end.

    >>> rates = Geometric.spanning(0.1, 0.4, ratio=2)
    >>> rates, rates.value_at(-1), rates.value_at(4)
    ((0.1, 0.2, 0.4), 0.05, 1.6)
    """

    __slots__ = ()

    @classmethod
    def spanning(cls, least: float, largest: float, ratio: float) -> Self:
        """Return the values from the least to about the largest.

        Args:
            least: the first.
            largest: about the last.
            ratio: of neighbours.
        """
        number = 1 + round(float(np.log(largest / least) / np.log(ratio)))
        return cls(_two_digits(least * ratio**place) for place in range(number))

    def value_at(self, place: int) -> float:
        """Return the value at a place, which may lie beyond the ends.

        Args:
            place: 0 is the first value.
        """
        if 0 <= place < len(self):
            return self[place]
        ratio = (self[-1] / self[0]) ** (1 / (len(self) - 1))
        return _two_digits(self[0] * ratio**place)


class Tuned(NamedTuple):
    """The settings that were chosen for a system.

    Args:
        settings: value of each knob, by path.
        value: mean of the criterion over the tuning seeds.
        points: number of points that were tried.
        edges: knobs of three values or more whose least or largest value was chosen; of a geometric grid, the least or the
            largest that was tried.
    """

    settings: Settings
    value: float
    points: int
    edges: tuple[str, ...]


def tuned(
    measure: Measure,
    knobs: Knobs,
    points: int = POINTS,
    finalists: int = FINALISTS,
    seeds: Sequence[int] = TUNING,
    extra: int = 0,
    special: Sequence[Settings] = (),
    start: Settings | None = None,
) -> Tuned:
    """Return the settings with the least mean of a criterion.

    Args:
        measure: returns the criterion [settings, seeds] of some settings with some seeds; anything but a number is the worst.
        knobs: ordered values of each setting, by path.
        points: number of points that are tried on the first seed; fewer if the grid has fewer.
        finalists: number of points, the best of those, that are tried on the other seeds, too.
        seeds: to tune with.
        extra: largest number of further points, which are tried while the best one has an untried neighbour.
        special: settings that compete with the best ones on all seeds: those chosen for special cases of the system. So a
            system is never tuned worse than one that it contains.
        start: point of the grid where the search begins, such as the tuned one of a special case; it is tried on all seeds,
            so no other choice can be worse than it. None: the middle.

    >>> bowl = lambda points, seeds: np.array([[(point["a"] - 5) ** 2 + seed for seed in seeds] for point in points])
    >>> tuned(bowl, {"a": [1, 2, 3, 4, 5, 6]}, points=5, seeds=(1, 2))
    Tuned(settings={'a': 5}, value=1.5, points=5, edges=())
    >>> tuned(bowl, {"a": Geometric.spanning(0.5, 2, ratio=2)}, points=3, seeds=(1, 2), extra=9)
    Tuned(settings={'a': 4.0}, value=2.5, points=5, edges=())
    """
    origin = None if start is None else tuple(list(values).index(start[name]) for name, values in knobs.items())
    scores = search(
        lambda places: _worst_if_missing(measure([_settings(knobs, point) for point in places], seeds[:1]))[:, 0],
        knobs,
        points,
        extra,
        origin,
    )
    best = sorted(scores, key=lambda point: (point != origin, scores[point]))[:finalists]
    other_scores = _worst_if_missing(measure([_settings(knobs, point) for point in best], seeds[1:]))
    means = [float(np.mean([scores[point], *values])) for point, values in zip(best, other_scores, strict=True)]
    winner = best[int(np.argmin(means))]
    result = Tuned(_settings(knobs, winner), min(means), len(scores), tuple(_edges(knobs, winner, scores)))
    if special:
        values = _worst_if_missing(measure(list(special), seeds)).mean(axis=1)
        least = int(np.argmin(values))
        if values[least] < result.value:
            result = Tuned(dict(special[least]), float(values[least]), len(scores), ())
        result = result._replace(points=len(scores) + len(special))
    return result


def search(
    measure: Callable[[Sequence[_Point]], Iterable[float]],
    knobs: Knobs,
    points: int,
    extra: int = 0,
    start: _Point | None = None,
) -> dict[_Point, float]:
    """Return the criterion at the points that were tried, by the places of their values.

    Args:
        measure: returns the criterion of some points; less is better.
        knobs: ordered values of each setting, by path.
        points: number of points to try.
        extra: largest number of points to try after these, while the best one has an untried neighbour.
        start: the first point; None: the middle.
    """
    ranges = [_places(values) for values in knobs.values()]
    batch = [start or tuple((len(values) - 1) // 2 for values in knobs.values())]
    scores = dict[_Point, float]()
    while batch:
        scores.update(zip(batch, map(float, measure(batch)), strict=True))
        ranked = sorted(scores, key=scores.__getitem__)
        neighbours = [[place for place in _neighbours(point, ranges) if place not in scores] for point in ranked]
        if len(scores) < points:
            batch = next(filter(None, neighbours), [])[: points - len(scores)]
        else:
            batch = neighbours[0][: max(0, points + extra - len(scores))]
    return scores


def _places(values: Sequence[Any]) -> range:
    return range(-EXTENSION, len(values) + EXTENSION) if isinstance(values, Geometric) else range(len(values))


def _neighbours(point: _Point, ranges: Sequence[range]) -> Iterator[_Point]:
    for knob, places in enumerate(ranges):
        for place in (point[knob] - 1, point[knob] + 1):
            if place in places:
                yield (*point[:knob], place, *point[knob + 1 :])


def _settings(knobs: Knobs, point: _Point) -> Settings:
    pairs = zip(knobs.items(), point, strict=True)
    return {name: values.value_at(place) if isinstance(values, Geometric) else values[place] for (name, values), place in pairs}


def _edges(knobs: Knobs, winner: _Point, points: Iterable[_Point]) -> Iterator[str]:
    """Yield the knobs whose chosen value is the last one of the grid or, if the grid goes on, of those that were tried."""
    for knob, (name, values) in enumerate(knobs.items()):
        places = {point[knob] for point in points} if isinstance(values, Geometric) else _places(values)
        if len(values) > 2 and winner[knob] in (min(places), max(places)):
            yield name


def _two_digits(value: float) -> float:
    return float(f"{value:.2g}")


def _worst_if_missing(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.isfinite(values), values, np.inf)
