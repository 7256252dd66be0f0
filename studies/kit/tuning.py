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

POINTS, KEPT = 16, 4  # tried on the first seed, and of those on the others too
BEYOND = 8  # places that a search may go beyond each end of a geometric grid

Knobs = Mapping[str, Sequence[Any]]
Settings = dict[str, Any]
Measure = Callable[[Sequence[Settings], Sequence[int]], NDArray[np.float64]]
_Point = tuple[int, ...]  # place of each knob's value


class Geometric(tuple[float, ...]):
    """Values with a constant ratio, of two significant digits, which a search continues beyond either end.

    >>> rates = Geometric.between(0.1, 0.4, ratio=2)
    >>> rates, rates.at(-1), rates.at(4)
    ((0.1, 0.2, 0.4), 0.05, 1.6)
    """

    __slots__ = ()

    @classmethod
    def between(cls, least: float, largest: float, ratio: float) -> Self:
        """Return the values from the least to about the largest.

        Args:
            least: the first.
            largest: about the last.
            ratio: of neighbours.
        """
        number = 1 + round(float(np.log(largest / least) / np.log(ratio)))
        return cls(_two_digits(least * ratio**place) for place in range(number))

    def at(self, place: int) -> float:
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
    kept: int = KEPT,
    seeds: Sequence[int] = TUNING,
    further: int = 0,
    special: Sequence[Settings] = (),
    start: Settings | None = None,
) -> Tuned:
    """Return the settings with the least mean of a criterion.

    Args:
        measure: returns the criterion [settings, seeds] of some settings with some seeds; anything but a number is the worst.
        knobs: ordered values of each setting, by path.
        points: number of points that are tried on the first seed; fewer if the grid has fewer.
        kept: number of points, the best of those, that are tried on the other seeds, too.
        seeds: to tune with.
        further: largest number of further points, which are tried while the best one has an untried neighbour.
        special: settings that compete with the best ones on all seeds: those chosen for special cases of the system. So a
            system is never tuned worse than one that it contains.
        start: point of the grid where the search begins, such as the tuned one of a special case; it is tried on all seeds,
            so no other choice can be worse than it. None: the middle.

    >>> bowl = lambda some, seeds: np.array([[(each["a"] - 5) ** 2 + seed for seed in seeds] for each in some])
    >>> tuned(bowl, {"a": [1, 2, 3, 4, 5, 6]}, points=5, seeds=(1, 2))
    Tuned(settings={'a': 5}, value=1.5, points=5, edges=())
    >>> tuned(bowl, {"a": Geometric.between(0.5, 2, ratio=2)}, points=3, seeds=(1, 2), further=9)
    Tuned(settings={'a': 4.0}, value=2.5, points=5, edges=())
    """
    first = None if start is None else tuple(list(values).index(start[name]) for name, values in knobs.items())
    tried = search(
        lambda some: _worst_if_missing(measure([_settings(knobs, point) for point in some], seeds[:1]))[:, 0],
        knobs,
        points,
        further,
        first,
    )
    best = sorted(tried, key=lambda point: (point != first, tried[point]))[:kept]
    others = _worst_if_missing(measure([_settings(knobs, point) for point in best], seeds[1:]))
    means = [float(np.mean([tried[point], *values])) for point, values in zip(best, others, strict=True)]
    chosen = best[int(np.argmin(means))]
    result = Tuned(_settings(knobs, chosen), min(means), len(tried), tuple(_edges(knobs, chosen, tried)))
    if special:
        scores = _worst_if_missing(measure(list(special), seeds)).mean(axis=1)
        least = int(np.argmin(scores))
        if scores[least] < result.value:
            result = Tuned(dict(special[least]), float(scores[least]), len(tried), ())
        result = result._replace(points=len(tried) + len(special))
    return result


def search(
    measure: Callable[[Sequence[_Point]], Iterable[float]],
    knobs: Knobs,
    points: int,
    further: int = 0,
    start: _Point | None = None,
) -> dict[_Point, float]:
    """Return the criterion at the points that were tried, by the places of their values.

    Args:
        measure: returns the criterion of some points; less is better.
        knobs: ordered values of each setting, by path.
        points: number of points to try.
        further: largest number of points to try after these, while the best one has an untried neighbour.
        start: the first point; None: the middle.
    """
    ranges = [_places(values) for values in knobs.values()]
    wanted = [start or tuple((len(values) - 1) // 2 for values in knobs.values())]
    tried = dict[_Point, float]()
    while wanted:
        tried.update(zip(wanted, map(float, measure(wanted)), strict=True))
        ranked = sorted(tried, key=tried.__getitem__)
        untried = [[place for place in _neighbours(point, ranges) if place not in tried] for point in ranked]
        if len(tried) < points:
            wanted = next(filter(None, untried), [])[: points - len(tried)]
        else:
            wanted = untried[0][: max(0, points + further - len(tried))]
    return tried


def _places(values: Sequence[Any]) -> range:
    return range(-BEYOND, len(values) + BEYOND) if isinstance(values, Geometric) else range(len(values))


def _neighbours(point: _Point, ranges: Sequence[range]) -> Iterator[_Point]:
    for knob, places in enumerate(ranges):
        for place in (point[knob] - 1, point[knob] + 1):
            if place in places:
                yield (*point[:knob], place, *point[knob + 1 :])


def _settings(knobs: Knobs, point: _Point) -> Settings:
    pairs = zip(knobs.items(), point, strict=True)
    return {name: values.at(place) if isinstance(values, Geometric) else values[place] for (name, values), place in pairs}


def _edges(knobs: Knobs, chosen: _Point, tried: Iterable[_Point]) -> Iterator[str]:
    """Yield the knobs whose chosen value is the last one of the grid or, if the grid goes on, of those that were tried."""
    for knob, (name, values) in enumerate(knobs.items()):
        places = {point[knob] for point in tried} if isinstance(values, Geometric) else _places(values)
        if len(values) > 2 and chosen[knob] in (min(places), max(places)):
            yield name


def _two_digits(value: float) -> float:
    return float(f"{value:.2g}")


def _worst_if_missing(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.isfinite(values), values, np.inf)
