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
_RATIO_OF_ALL_SEEDS = {"way": "ratio", "missing": 0}  # columns that a table of comparisons reads, too


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
        comparison: the criterion relative to the first system, as from `compare_spent`; None for the first.
        costs: cost to the target [seeds]; infinite if it was not reached; empty without prices.
        energy: energy to the target, kWh [seeds]; likewise.
    """

    run: str
    point: str
    values: Mapping[str, Any]
    points: int
    edges: tuple[str, ...]
    seconds: tuple[float, ...]
    comparison: Mapping[str, Any] | None = None
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
    def is_worse(self) -> bool:
        """Return True if the system is significantly worse than the first."""
        return self.comparison is not None and bool(self.comparison["higher"] == Verdict.YES)


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
    def criteria(self) -> list[By]:
        """Return the criteria that are not 0 for all systems, the ranking's own first."""
        spent = {by: [value for place in self.places for value in place.to_target(by)] for by in CRITERIA.values()}
        return [self.by, *(by for by in spent if by != self.by and any(0 < value < math.inf for value in spent[by]))]

    @property
    def price(self) -> By | None:
        """Return the criterion that is weighed against time: the cost, or the energy if it is ranked or all is free."""
        return ENERGY if self.by == ENERGY else next((by for by in (COST, ENERGY) if by in self.criteria), None)

    @property
    def front(self) -> list[Place]:
        """Return the systems on the Pareto front of median time and cost (or energy), fastest first; none without prices."""
        if not (price := self.price):
            return []
        reached = sorted((place for place in self.places if place.median < math.inf), key=lambda place: place.median)
        best = not_dominated([place.median for place in reached], [place.median_of(price) for place in reached])
        return [place for place, is_best in zip(reached, best, strict=True) if is_best]


def ranked(tables: Tables, candidates: Sequence[Candidate], measure: str) -> Ranking:
    """Return the systems ranked by their median over the reported seeds, by the criterion of the scenario's sweeps.

    Args:
        tables: results of the runs.
        candidates: systems, by the names of the runs.
        measure: `error`, `loss` or `gradient_norm`, the measure of the target.
    """
    by = next(criterion for criterion in CRITERIA.values() if criterion.to_target == tables.scenario.criterion.column)
    best = tables.best
    if not len(best):
        return Ranking([], _lowest(tables, {candidate.run for candidate in candidates}, measure), by)
    seconds, costs, energy = (_reported(tables, criterion.to_target) for criterion in (TIME, COST, ENERGY))
    natural = {candidate.run: candidate.natural for candidate in candidates}
    places = [
        Place(
            run=run,
            point=point,
            values=values,
            points=points,
            edges=_edges(tables, run, values, natural[run]),
            seconds=seconds[point],
            costs=costs.get(point, ()),
            energy=energy.get(point, ()),
        )
        for run, point, points in zip(best["run"], best["point"], best["points"], strict=True)
        for values in [tables.scenario.points[point].values]
    ]
    unreached = _lowest(tables, {candidate.run for candidate in candidates} - {place.run for place in places}, measure)
    return Ranking(_sort_and_compare(tables, places, by), unreached, by)


def _sort_and_compare(tables: Tables, places: Sequence[Place], by: By) -> list[Place]:
    """Return the systems, best first, each with its comparison with the first."""
    budget = float(tables.outcomes[0].run.stop.seconds or math.inf)  # the same for all runs of a plan
    in_all = {place.point: [budget] * len(place.seconds) for place in places} if by == TIME else _reported(tables, by.in_all)
    first, *worse = sorted(places, key=lambda place: _sort_key(place, by))
    spent_by_first, *spent = (Spent(place.to_target(by), in_all[place.point]) for place in (first, *worse))
    compared = zip(worse, compare_spent(spent, spent_by_first), strict=True)
    return [first, *(replace(place, comparison=comparison) for place, comparison in compared)]


def _sort_key(place: Place, by: By) -> tuple[float, int, float]:
    """Return the median; of equal ones, most of which are infinite, more seeds at the target and a lower mean come first."""
    reached = [value for value in place.to_target(by) if value < math.inf]
    return place.median_of(by), -place.reached, float(np.mean(reached or [math.inf]))


def doubts(ranking: Ranking, evaluation_interval: float, budget: float) -> list[str]:
    """Return warnings, in words, that the answer may be wrong because of the limits of the simulation.

    Args:
        ranking: ranking of the systems.
        evaluation_interval: virtual time between two evaluations, s.
        budget: virtual time of every run, s.
    """
    if not ranking.places:
        return [f"no system reached the target within {budget:,.4g} s: give a longer --budget, or another target"]
    first, *other_places = ranking.places
    sentences = [
        f"the best {key.rpartition('.')[2]} of {first.run} ({first.values[key]:g}) is at the edge of what was tried"
        for key in first.edges
    ]
    if first.reached < len(first.seconds):
        sentences.append(f"{first.run} itself reached the target with only {first.reached} of {len(first.seconds)} seeds")
    if first.median < _FEWEST_LOOKS * evaluation_interval:
        sentences.append(
            f"runs were evaluated only every {evaluation_interval:.3g} s: a shorter --budget separates the systems better"
        )
    indistinguishable = [place.run for place in other_places if not place.is_worse]
    if indistinguishable:
        sentences.append(f"{len(first.seconds)} seeds cannot tell {first.run} from {', '.join(indistinguishable)}")
    return sentences


def _reported(tables: Tables, name: str) -> dict[str, tuple[float, ...]]:
    """Return a column of the summary [seeds], by reported point; infinite where the target was missed."""
    frame = tables.with_its_best().summary
    if name not in frame:
        return {}
    column = frame[name].astype(float).fillna(math.inf)
    return {str(point): tuple(values) for point, values in column.groupby(frame["name"])}


def _edges(tables: Tables, run: str, values: Mapping[str, Any], natural: Sequence[Any]) -> tuple[str, ...]:
    """Return the swept numeric keys whose value is the smallest or the largest tried, natural limits excepted."""
    points = [point.values for point in tables.scenario.points.values() if point.of == run]
    edges = []
    for key, value in values.items():
        tried_values = {point[key] for point in points}
        if (
            len(tried_values) > 1
            and isinstance(value, int | float)
            and value in (min(tried_values), max(tried_values))
            and value not in natural
        ):
            edges.append(key)
    return tuple(edges)


class Spent(NamedTuple):
    """The time, cost or energy of a system's runs."""

    to_target: Sequence[float]  # until the target [seeds]; infinite if it was missed
    in_all: Sequence[float]  # until the end of the run [seeds]


def compare_spent(systems: Sequence[Spent], first: Spent) -> list[dict[str, Any]]:
    """Return how much more each other system spent than the first, as ratios, seed by seed.

    A seed that missed the target counts as all that its run spent, but never in favour of its system. So if only the other
    system missed the target, its ratio is at least as high as reported. Seeds that both missed count as equal. Intervals are
    those of one family.

    Args:
        systems: what the other systems spent.
        first: the first system.

    >>> whole = [6.0] * 5
    >>> (comparison,) = compare_spent([Spent([3.0, 3.0, 4.0, 4.0, math.inf], whole)], Spent([2.0, 2.0, 2.0, 2.0, 2.0], whole))
    >>> round(comparison["mean"], 2), comparison["higher"]
    (1.93, 'yes')
    """
    samples, comparisons = [_log_ratios(spent, first) for spent in systems], []
    for log_ratios, (low, high) in zip(samples, intervals(list(map(Mean.estimate, samples))), strict=True):
        low, high = (math.inf, math.inf) if np.isposinf(log_ratios).all() else (low, high)  # the first is free
        logs = {"mean": log_ratios.mean(), "low": low, "high": high, "least": log_ratios.min(), "largest": log_ratios.max()}
        higher = verdict((low, high), low=0.0, high=math.inf).value
        comparisons.append(
            {name: math.exp(value) for name, value in logs.items()}
            | {"higher": higher, **_RATIO_OF_ALL_SEEDS, "seeds": len(log_ratios)}
        )
    return comparisons


def _log_ratios(other: Spent, first: Spent) -> NDArray[np.float64]:
    """Return the logarithms of the ratios of what the other system spent to what the first spent [seeds]."""
    other_missed, first_missed = np.isinf(other.to_target), np.isinf(first.to_target)
    numerator = np.where(other_missed, other.in_all, other.to_target)
    denominator = np.where(first_missed, first.in_all, first.to_target)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_ratios = np.where(numerator == denominator, 0.0, np.log(numerator) - np.log(denominator))
    # A system that missed the target would have spent more, so its miss never counts in its favour. If both missed: 0.
    log_ratios = np.where(first_missed, np.minimum(log_ratios, 0.0), log_ratios)
    return np.where(other_missed, np.maximum(log_ratios, 0.0), log_ratios)


def _lowest(tables: Tables, runs: set[str], measure: str) -> dict[str, float]:
    """Return, by run, the lowest final value of the measure among the run's points, mean over the seeds."""
    summary = tables.summary
    run_names = summary["name"].map(tables.scenario.run_of)
    means = summary[run_names.isin(runs)].groupby([run_names, "name"])[measure].mean()
    return {str(run): float(value) for run, value in means.groupby(level=0).min().items()}
