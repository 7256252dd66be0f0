"""Tune a system: search an ordered grid of its knobs on one seed, and choose among the best with further seeds.

All systems of a study have the same number of points, however many knobs they have. The search begins in the middle of the grid
and tries the neighbours of the best point that has any left, so it goes on towards an edge as long as that pays.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

POINTS, KEPT = 16, 4  # tried on the first seed, and of those on the others too
TUNING, REPORTED = (1, 2, 3), (11, 12, 13, 14, 15)  # seeds

Knobs = Mapping[str, Sequence[Any]]
Settings = dict[str, Any]
Measure = Callable[[Sequence[Settings], Sequence[int]], NDArray[np.float64]]
_Point = tuple[int, ...]  # place of each knob's value


class Tuned(NamedTuple):
    """What was chosen for a system.

    Args:
        settings: value of each knob, by path.
        value: mean of the criterion over the tuning seeds.
        points: number of points that were tried.
        edges: knobs, of three values or more, whose least or largest value was chosen.
    """

    settings: Settings
    value: float
    points: int
    edges: tuple[str, ...]


def tuned(measure: Measure, knobs: Knobs, points: int = POINTS, kept: int = KEPT, seeds: Sequence[int] = TUNING) -> Tuned:
    """Return the settings with the least mean of a criterion.

    Args:
        measure: returns the criterion [settings, seeds] of some settings with some seeds; anything but a number is the worst.
        knobs: ordered values of each setting, by path.
        points: number of points that are tried on the first seed; fewer if the grid has fewer.
        kept: number of points, the best of those, that are tried on the other seeds, too.
        seeds: to tune with.

    >>> bowl = lambda some, seeds: np.array([[(each["a"] - 5) ** 2 + seed for seed in seeds] for each in some])
    >>> tuned(bowl, {"a": [1, 2, 3, 4, 5, 6]}, points=5, seeds=(1, 2))
    Tuned(settings={'a': 5}, value=1.5, points=5, edges=())
    """
    found = search(
        lambda some: _worst_if_missing(measure([_settings(knobs, each) for each in some], seeds[:1]))[:, 0], knobs, points
    )
    best = sorted(found, key=found.__getitem__)[:kept]
    others = _worst_if_missing(measure([_settings(knobs, each) for each in best], seeds[1:]))
    means = [np.mean([found[point], *own]) for point, own in zip(best, others, strict=True)]
    chosen = best[int(np.argmin(means))]
    ends = [name for name, place in zip(knobs, chosen, strict=True) if len(knobs[name]) > 2 and _at_end(place, knobs[name])]
    return Tuned(_settings(knobs, chosen), float(min(means)), len(found), tuple(ends))


def search(measure: Callable[[Sequence[_Point]], Iterable[float]], knobs: Knobs, points: int) -> dict[_Point, float]:
    """Return the criterion at the points that were tried, by the places of their values.

    Args:
        measure: returns the criterion of some points; less is better.
        knobs: ordered values of each setting, by path.
        points: number of points to try.
    """
    sizes = [len(values) for values in knobs.values()]
    wanted = [tuple((size - 1) // 2 for size in sizes)]
    found = dict[_Point, float]()
    while wanted:
        found.update(zip(wanted, map(float, measure(wanted)), strict=True))
        ranked = sorted(found, key=found.__getitem__)
        untried = ([each for each in _neighbours(point, sizes) if each not in found] for point in ranked)
        wanted = next(filter(None, untried), [])[: points - len(found)]
    return found


def _neighbours(point: _Point, sizes: Sequence[int]) -> Iterator[_Point]:
    for knob, size in enumerate(sizes):
        for place in (point[knob] - 1, point[knob] + 1):
            if 0 <= place < size:
                yield (*point[:knob], place, *point[knob + 1 :])


def _settings(knobs: Knobs, point: _Point) -> Settings:
    return {name: values[place] for (name, values), place in zip(knobs.items(), point, strict=True)}


def _at_end(place: int, values: Sequence[Any]) -> bool:
    return place in (0, len(values) - 1)


def _worst_if_missing(found: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.isfinite(found), found, np.inf)
