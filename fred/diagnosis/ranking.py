"""Which system reached the target first, how surely, and whether the answer lies inside what was simulated."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fred.diagnosis.candidates import Candidate
from fred.outcomes.paired import interval
from fred.outcomes.tables import Tables

_FEWEST_LOOKS = 10  # until the target, so that it is known when it was reached
_COLUMN = "target_seconds"


@dataclass(frozen=True)
class Place:
    """What a system's best point came to, on other seeds than it was chosen on.

    Args:
        run: the system.
        point: its best point.
        values: of the knob and the learning rate, by key.
        points: how many were tried.
        edges: the keys whose best value is at the edge of those tried.
        seconds: to the target, s [seeds]; infinite where it was not reached.
        against: how many times as long it took as the first, as `against` says; none of the first.
    """

    run: str
    point: str
    values: Mapping[str, Any]
    points: int
    edges: tuple[str, ...]
    seconds: tuple[float, ...]
    against: Mapping[str, Any] | None = None

    @property
    def reached(self) -> int:
        """With how many seeds."""
        return sum(map(math.isfinite, self.seconds))

    @property
    def median(self) -> float:
        """Of the times, s; infinite where most seeds did not reach the target."""
        return float(np.quantile(self.seconds, 0.5, method="inverted_cdf"))

    @property
    def told_apart(self) -> bool:
        """Whether it is surely later than the first."""
        return self.against is not None and bool(self.against["low"] > 1)


@dataclass(frozen=True)
class Ranking:
    """All systems that were tried.

    Args:
        places: those that reached the target while their points were chosen, the first first.
        unreached: the others, and the lowest error (or loss, or norm) that any of their points ended with, mean over the seeds.
    """

    places: Sequence[Place]
    unreached: Mapping[str, float]


def ranked(tables: Tables, tried: Sequence[Candidate], measure: str) -> Ranking:
    """The systems by the median time to the target, over the seeds that are reported.

    Args:
        tables: what the runs came to.
        tried: the systems, by whose names the runs are called.
        measure: `error`, `loss` or `gradient_norm`, of which the target is.
    """
    best = tables.best
    if not len(best):
        return Ranking([], _lowest(tables, {each.run for each in tried}, measure))
    seconds, natural = _seconds(tables), {each.run: each.natural for each in tried}
    places = [
        Place(run, point, values, points, _edges(tables, run, values, natural[run]), seconds[point])
        for run, point, points in zip(best["run"], best["point"], best["points"], strict=True)
        for values in [tables.scenario.points[point].values]
    ]
    places.sort(
        key=lambda place: (place.median, -place.reached, np.mean([s for s in place.seconds if s < math.inf] or [math.inf]))
    )
    budget = float(tables.outcomes[0].run.stop.seconds or math.inf)
    unreached = {each.run for each in tried} - {place.run for place in places}
    return Ranking(
        [places[0], *(replace(place, against=against(place.seconds, places[0].seconds, budget)) for place in places[1:])],
        _lowest(tables, unreached, measure),
    )


def doubts(ranking: Ranking, look: float, budget: float) -> list[str]:
    """In words, why the first place may not be the answer: what lies outside of what was simulated.

    Args:
        ranking: of the systems.
        look: time between two looks at the error, s.
        budget: that every run had, s.
    """
    if not ranking.places:
        return [f"nobody reached the target within {budget:,.4g} s: give a longer --budget, or another target"]
    first, *others = ranking.places
    found = [
        f"the best {key.rpartition('.')[2]} of {first.run} ({first.values[key]:g}) is at the edge of what was tried"
        for key in first.edges
    ]
    if first.reached < len(first.seconds):
        found.append(f"{first.run} itself reached the target with {first.reached} of {len(first.seconds)} seeds only")
    if first.median < _FEWEST_LOOKS * look:
        found.append(f"the error was looked at every {look:.3g} s only: a shorter --budget tells times apart better")
    alike = [place.run for place in others if not place.told_apart]
    if alike:
        found.append(f"{len(first.seconds)} seeds cannot tell {first.run} from {', '.join(alike)}")
    return found


def _seconds(tables: Tables) -> dict[str, tuple[float, ...]]:
    """To the target, by reported point."""
    frame = tables.with_its_best().summary
    column = frame[_COLUMN].astype(float).fillna(math.inf)
    return {str(point): tuple(own) for point, own in column.groupby(frame["name"])}


def _edges(tables: Tables, run: str, values: Mapping[str, Any], natural: Sequence[Any]) -> tuple[str, ...]:
    """The keys, of those with several numbers, whose value is the least or the largest."""
    points = [point.values for point in tables.scenario.points.values() if point.of == run]
    found = []
    for key, value in values.items():
        tried = {point[key] for point in points}
        if len(tried) > 1 and isinstance(value, int | float) and value in (min(tried), max(tried)) and value not in natural:
            found.append(key)
    return tuple(found)


def against(seconds: Sequence[float], first: Sequence[float], budget: float) -> dict[str, Any]:
    """How many times as long it took as the first, seed by seed; who was not there counts as there when the budget ended.

    So where the first always was, and this one was not, it is at least as much later as is said.

    Args:
        seconds: of the one, s [seeds]; infinite where it was not there.
        first: of the first.
        budget: until when they were waited for, s.

    >>> found = against([3.0, 3.0, 4.0, 4.0, math.inf], [2.0, 2.0, 2.0, 2.0, 2.0], budget=6.0)
    >>> round(found["mean"], 2), found["low"] > 1
    (1.93, True)
    """
    logs = np.log(np.minimum(seconds, budget) / np.minimum(first, budget))
    low, high = interval(logs)
    found = {"mean": logs.mean(), "low": low, "high": high, "least": logs.min(), "largest": logs.max()}
    return {name: math.exp(value) for name, value in found.items()} | {"way": "ratio", "seeds": len(logs), "missing": 0}


def _lowest(tables: Tables, runs: set[str], measure: str) -> dict[str, float]:
    """What the best of these runs' points ended with."""
    summary = tables.summary
    of = summary["name"].map(lambda name: tables.scenario.points[name].of if name in tables.scenario.points else name)
    means = summary[of.isin(runs)].groupby([of, "name"])[measure].mean().groupby(level=0).min()
    return {str(run): float(value) for run, value in means.items()}
