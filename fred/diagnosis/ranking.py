"""The ranking of systems by time, cost or energy to the target, its uncertainty, and warnings about the search."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fred.base.intervals import Mean, Verdict, intervals, verdict
from fred.diagnosis.question import COST, CRITERIA, ENERGY, TIME, By, Candidate
from fred.outcomes.comparisons import not_dominated
from fred.outcomes.tables import Tables

_FEWEST_LOOKS = 10  # evaluations before the target needed to time it well
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
        against: the criterion relative to the first system, as from `against`; None for the first.
        costs: cost to the target [seeds]; infinite if it was not reached; empty without prices.
        energy: energy to the target, kWh [seeds]; likewise.
    """

    run: str
    point: str
    values: Mapping[str, Any]
    points: int
    edges: tuple[str, ...]
    seconds: tuple[float, ...]
    against: Mapping[str, Any] | None = None
    costs: tuple[float, ...] = ()
    energy: tuple[float, ...] = ()

    def to_target(self, by: By) -> tuple[float, ...]:
        """Return a criterion's value at the target [seeds]."""
        return {TIME: self.seconds, COST: self.costs, ENERGY: self.energy}[by]

    def median_of(self, by: By) -> float:
        """Return the median of a criterion; infinite if most seeds did not reach the target."""
        return float(np.quantile(self.to_target(by), 0.5, method="inverted_cdf"))

    @property
    def reached(self) -> int:
        """Return the number of seeds that reached the target."""
        return sum(map(math.isfinite, self.seconds))

    @property
    def median(self) -> float:
        """Return the median time to the target, s; infinite if most seeds did not reach it."""
        return self.median_of(TIME)

    @property
    def told_apart(self) -> bool:
        """Return True if the system is significantly worse than the first."""
        return self.against is not None and bool(self.against["higher"] == Verdict.YES)


@dataclass(frozen=True)
class Ranking:
    """A ranking of all systems that were tried.

    Args:
        places: systems whose points reached the target in the search, best first.
        unreached: the other systems, with the lowest final error (or loss, or norm) of their points, mean over the seeds.
        by: criterion by which they were tuned and ranked.
    """

    places: Sequence[Place]
    unreached: Mapping[str, float]
    by: By = TIME

    @property
    def known(self) -> list[By]:
        """Return the criteria that are not 0 for all systems, the ranking's own first."""
        spent = {by: [value for place in self.places for value in place.to_target(by)] for by in CRITERIA.values()}
        return [self.by, *(by for by in spent if by != self.by and any(0 < value < math.inf for value in spent[by]))]

    @property
    def price(self) -> By | None:
        """Return the criterion that is weighed against time: the cost, or the energy if it is ranked or all is free."""
        return ENERGY if self.by == ENERGY else next((by for by in (COST, ENERGY) if by in self.known), None)

    @property
    def front(self) -> list[Place]:
        """Return the systems on the Pareto front of median time and cost (or energy), fastest first; none without prices."""
        if not (price := self.price):
            return []
        reached = sorted((place for place in self.places if place.median < math.inf), key=lambda place: place.median)
        best = not_dominated([place.median for place in reached], [place.median_of(price) for place in reached])
        return [place for place, good in zip(reached, best, strict=True) if good]


def ranked(tables: Tables, tried: Sequence[Candidate], measure: str) -> Ranking:
    """Return the systems ranked by their median over the reported seeds, by the criterion of the scenario's sweeps.

    Args:
        tables: results of the runs.
        tried: systems, by the names of the runs.
        measure: `error`, `loss` or `gradient_norm`, the measure of the target.
    """
    by = next(each for each in CRITERIA.values() if each.to_target == tables.scenario.criterion.column)
    best = tables.best
    if not len(best):
        return Ranking([], _lowest(tables, {each.run for each in tried}, measure), by)
    seconds, costs, energy = (_reported(tables, each.to_target) for each in CRITERIA.values())
    natural = {each.run: each.natural for each in tried}
    places = [
        Place(
            *(run, point, values, points, _edges(tables, run, values, natural[run]), seconds[point]),
            costs=costs.get(point, ()),
            energy=energy.get(point, ()),
        )
        for run, point, points in zip(best["run"], best["point"], best["points"], strict=True)
        for values in [tables.scenario.points[point].values]
    ]
    unreached = _lowest(tables, {each.run for each in tried} - {place.run for place in places}, measure)
    return Ranking(_compared(tables, places, by), unreached, by)


def _compared(tables: Tables, places: Sequence[Place], by: By) -> list[Place]:
    """Return the systems, best first, each with its comparison with the first."""
    budget = float(tables.outcomes[0].run.stop.seconds or math.inf)
    ends = {place.point: [budget] * len(place.seconds) for place in places} if by == TIME else _reported(tables, by.in_all)
    first, *others = sorted(places, key=lambda place: _rank(place, by))
    of_first, *spent = (Spent(place.to_target(by), ends[place.point]) for place in (first, *others))
    compared = zip(others, against(spent, of_first), strict=True)
    return [first, *(replace(place, against=own) for place, own in compared)]


def _rank(place: Place, by: By) -> tuple[float, int, float]:
    reached = [value for value in place.to_target(by) if value < math.inf]
    return place.median_of(by), -place.reached, float(np.mean(reached or [math.inf]))


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
        found.append(f"the error was evaluated only every {look:.3g} s: a shorter --budget separates the systems better")
    alike = [place.run for place in others if not place.told_apart]
    if alike:
        found.append(f"{len(first.seconds)} seeds cannot tell {first.run} from {', '.join(alike)}")
    return found


def _reported(tables: Tables, name: str) -> dict[str, tuple[float, ...]]:
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


class Spent(NamedTuple):
    """The time, cost or energy of a system's runs."""

    to_target: Sequence[float]  # until the target [seeds]; infinite if it was missed
    in_all: Sequence[float]  # until the end of the run [seeds]


def against(others: Sequence[Spent], first: Spent) -> list[dict[str, Any]]:
    """Return how much more each other system spent than the first, as ratios, seed by seed.

    A seed that missed the target counts as all that its run spent, but never in favour of its system. So if only the other
    system missed the target, its ratio is at least as high as reported. Seeds that both missed count as equal. Intervals are
    those of one family.

    Args:
        others: the other systems.
        first: the first system.

    >>> whole = [6.0] * 5
    >>> (found,) = against([Spent([3.0, 3.0, 4.0, 4.0, math.inf], whole)], Spent([2.0, 2.0, 2.0, 2.0, 2.0], whole))
    >>> round(found["mean"], 2), found["higher"]
    (1.93, 'yes')
    """
    logs, found = [_logs(each, first) for each in others], []
    for own, (low, high) in zip(logs, intervals([Mean.estimate(each) for each in logs]), strict=True):
        low, high = (math.inf, math.inf) if np.isposinf(own).all() else (low, high)  # the first is free
        ends = {"mean": own.mean(), "low": low, "high": high, "least": own.min(), "largest": own.max()}
        higher = verdict((low, high), low=0.0, high=math.inf).value
        found.append({name: math.exp(value) for name, value in ends.items()} | {"higher": higher, **_ALL, "seeds": len(own)})
    return found


def _logs(other: Spent, first: Spent) -> NDArray[np.float64]:
    """Return the logarithms of the ratios [seeds]."""
    missed, of_first = np.isinf(other.to_target), np.isinf(first.to_target)
    above, below = np.where(missed, other.in_all, other.to_target), np.where(of_first, first.in_all, first.to_target)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(above == below, 0.0, np.log(above) - np.log(below))
    logs = np.where(of_first, np.minimum(logs, 0.0), logs)
    return np.where(missed, np.maximum(logs, 0.0), logs)


def _lowest(tables: Tables, runs: set[str], measure: str) -> dict[str, float]:
    """Return the lowest final value among the points of each of these runs."""
    summary = tables.summary
    of = summary["name"].map(tables.scenario.run_of)
    means = summary[of.isin(runs)].groupby([of, "name"])[measure].mean().groupby(level=0).min()
    return {str(run): float(value) for run, value in means.items()}
