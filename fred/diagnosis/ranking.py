"""The ranking of systems by time to the target, its uncertainty, and warnings about the limits of the search."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fred.base.over_seeds import Mean, Verdict, intervals, verdict
from fred.diagnosis.candidates import Candidate
from fred.outcomes.tables import Tables
from fred.outcomes.trade_offs import not_dominated

_FEWEST_LOOKS = 10  # evaluations before the target needed to time it well
_COLUMN, _COST = "target_seconds", "target_cost"
_ALL = {"way": "ratio", "missing": 0}


@dataclass(frozen=True)
class Place:
    """The result of a system's best point, on other seeds than those that selected it.

    Args:
        run: name of the system.
        point: name of its best point.
        values: values of the knob and the learning rate, by key.
        points: number of points tried.
        edges: keys whose best value is at the edge of those tried.
        seconds: time to the target, s [seeds]; infinite if it was not reached.
        against: time relative to the first system, as from `against`; None for the first.
        costs: cost to the target [seeds]; infinite if it was not reached; empty without prices.
    """

    run: str
    point: str
    values: Mapping[str, Any]
    points: int
    edges: tuple[str, ...]
    seconds: tuple[float, ...]
    against: Mapping[str, Any] | None = None
    costs: tuple[float, ...] = ()

    @property
    def reached(self) -> int:
        """Return the number of seeds that reached the target."""
        return sum(map(math.isfinite, self.seconds))

    @property
    def median(self) -> float:
        """Return the median time to the target, s; infinite if most seeds did not reach it."""
        return _median(self.seconds)

    @property
    def median_cost(self) -> float:
        """Return the median cost to the target; infinite if most seeds did not reach it."""
        return _median(self.costs)

    @property
    def told_apart(self) -> bool:
        """Return True if the system is significantly slower than the first."""
        return self.against is not None and bool(self.against["slower"] == Verdict.YES)


@dataclass(frozen=True)
class Ranking:
    """A ranking of all systems that were tried.

    Args:
        places: systems whose points reached the target in the search, fastest first.
        unreached: the other systems, with the lowest final error (or loss, or norm) of their points, mean over the seeds.
    """

    places: Sequence[Place]
    unreached: Mapping[str, float]

    @property
    def front(self) -> list[Place]:
        """Return the systems of which no other has both a lower median time and a lower median cost; none without prices."""
        priced = [place for place in self.places if place.costs and place.median < math.inf]
        best = not_dominated([place.median for place in priced], [place.median_cost for place in priced])
        return [place for place, good in zip(priced, best, strict=True) if good]


def ranked(tables: Tables, tried: Sequence[Candidate], measure: str) -> Ranking:
    """Return the systems ranked by median time to the target, over the reported seeds.

    Args:
        tables: results of the runs.
        tried: systems, by the names of the runs.
        measure: `error`, `loss` or `gradient_norm`, the measure of the target.
    """
    best = tables.best
    if not len(best):
        return Ranking([], _lowest(tables, {each.run for each in tried}, measure))
    seconds, costs = (_to_target(tables, column) for column in (_COLUMN, _COST))
    natural = {each.run: each.natural for each in tried}
    places = [
        Place(run, point, values, points, _edges(tables, run, values, natural[run]), seconds[point], None, costs.get(point, ()))
        for run, point, points in zip(best["run"], best["point"], best["points"], strict=True)
        for values in [tables.scenario.points[point].values]
    ]
    places.sort(
        key=lambda place: (place.median, -place.reached, np.mean([s for s in place.seconds if s < math.inf] or [math.inf]))
    )
    budget = float(tables.outcomes[0].run.stop.seconds or math.inf)
    unreached = {each.run for each in tried} - {place.run for place in places}
    first, *others = places
    beside = against([place.seconds for place in others], first.seconds, budget)
    compared = [replace(place, against=own) for place, own in zip(others, beside, strict=True)]
    return Ranking([first, *compared], _lowest(tables, unreached, measure))


def doubts(ranking: Ranking, look: float, budget: float) -> list[str]:
    """Return warnings, in words, that the answer may be wrong because of the limits of the simulation.

    Args:
        ranking: ranking of the systems.
        look: time between two evaluations, s.
        budget: virtual time of every run, s.
    """
    if not ranking.places:
        return [f"no system reached the target within {budget:,.4g} s: give a longer --budget, or another target"]
    first, *others = ranking.places
    found = [
        f"the best {key.rpartition('.')[2]} of {first.run} ({first.values[key]:g}) is at the edge of what was tried"
        for key in first.edges
    ]
    if first.reached < len(first.seconds):
        found.append(f"{first.run} itself reached the target with only {first.reached} of {len(first.seconds)} seeds")
    if first.median < _FEWEST_LOOKS * look:
        found.append(f"the error was evaluated only every {look:.3g} s: a shorter --budget separates the times better")
    alike = [place.run for place in others if not place.told_apart]
    if alike:
        found.append(f"{len(first.seconds)} seeds cannot tell {first.run} from {', '.join(alike)}")
    return found


def _median(values: Sequence[float]) -> float:
    return float(np.quantile(values, 0.5, method="inverted_cdf"))


def _to_target(tables: Tables, name: str) -> dict[str, tuple[float, ...]]:
    """Return a column of the summary [seeds], by reported point; infinite where the target was missed."""
    frame = tables.with_its_best().summary
    if name not in frame:
        return {}
    column = frame[name].astype(float).fillna(math.inf)
    return {str(point): tuple(own) for point, own in column.groupby(frame["name"])}


def _edges(tables: Tables, run: str, values: Mapping[str, Any], natural: Sequence[Any]) -> tuple[str, ...]:
    """Return the swept numeric keys whose value is the smallest or the largest tried, natural limits excepted."""
    points = [point.values for point in tables.scenario.points.values() if point.of == run]
    found = []
    for key, value in values.items():
        tried = {point[key] for point in points}
        if len(tried) > 1 and isinstance(value, int | float) and value in (min(tried), max(tried)) and value not in natural:
            found.append(key)
    return tuple(found)


def against(others: Sequence[Sequence[float]], first: Sequence[float], budget: float) -> list[dict[str, Any]]:
    """Return the time of each other system relative to the first, seed by seed.

    A seed that missed the target counts as the whole budget. So if only the other system missed the target, it is at least as
    much slower as reported. Intervals are those of one family.

    Args:
        others: times of the other systems, s [systems][seeds]; infinite if they missed the target.
        first: time of the first system, s [seeds].
        budget: virtual time of every run, s.

    >>> (found,) = against([[3.0, 3.0, 4.0, 4.0, math.inf]], [2.0, 2.0, 2.0, 2.0, 2.0], budget=6.0)
    >>> round(found["mean"], 2), found["slower"]
    (1.93, 'yes')
    """
    logs = [np.log(np.minimum(seconds, budget) / np.minimum(first, budget)) for seconds in others]
    found = []
    for own, (low, high) in zip(logs, intervals([Mean.over(each) for each in logs]), strict=True):
        ends = {"mean": own.mean(), "low": low, "high": high, "least": own.min(), "largest": own.max()}
        slower = verdict((low, high), low=0.0, high=math.inf).value
        found.append({name: math.exp(value) for name, value in ends.items()} | {"slower": slower, **_ALL, "seeds": len(own)})
    return found


def _lowest(tables: Tables, runs: set[str], measure: str) -> dict[str, float]:
    """Return the lowest final value among the points of each of these runs."""
    summary = tables.summary
    of = summary["name"].map(lambda name: tables.scenario.points[name].of if name in tables.scenario.points else name)
    means = summary[of.isin(runs)].groupby([of, "name"])[measure].mean().groupby(level=0).min()
    return {str(run): float(value) for run, value in means.items()}
