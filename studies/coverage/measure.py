"""Candidate methods for the interval of a mean, laws of paired differences, and how often the intervals hold the true mean.

Also measured: how often families have a false verdict, and what seeds cost that are added until intervals are narrow.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import digamma, ndtr, ndtri

from fred.base.intervals import FEWEST_SEEDS, MISSES, Mean, intervals, quantile, verdict
from fred.specification.stopping import FIRST_LOOK, Until
from studies.kit.runs import parts
from studies.kit.study import Study

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, int]], Floats]
Ends = tuple[Floats, Floats]  # of the intervals [samples]

STUDY = Study(
    "coverage", "How often do intervals over seeds hold the truth?", ("", "tails", "families", "stopping"), core_hours=0.1
)
RESAMPLES = 9999
SEEDS, TRIALS = (3, 5, 8, 10), 10_000
OF_TAILS, EIGHT = (5, 10), 8  # seeds, and comparisons of a family, of whose most certain one the interval is measured
LOGARITHMS = "Student's t of logarithms"
COMMON_LAWS: dict[str, Draw] = {  # laws of a run's values; all runs of a family are alike
    "normal": lambda rng, shape: rng.normal(size=shape),
    "exponential": lambda rng, shape: rng.exponential(size=shape),
}
SIZES, OF_FAMILIES = (8, 54), 2_000
SEEDS_NEEDED, MOST = (15, 30), 120  # seeds, of studies that add seeds until intervals are narrow
_CHUNK = 500


class Law(NamedTuple):
    """A law of independent values.

    Args:
        name: as on the page.
        draw: draws values of a shape.
        mean: true mean.
        mean_logarithm: true mean of the logarithm; None if values may be negative.
    """

    name: str
    draw: Draw
    mean: float
    mean_logarithm: float | None = None


def _contaminated(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return rng.normal(size=shape) + 3.0 * (rng.random(shape) < 0.1)


def _ratio(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Draw the ratio of two times, each a sum of four exponential ones; what their seed does to both cancels."""
    return rng.gamma(4.0, size=shape) / rng.gamma(4.0, size=shape)


def _difference(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return rng.lognormal(size=shape) - rng.lognormal(size=shape)


CHOSEN_ON = (
    Law("normal", lambda rng, shape: rng.normal(size=shape), 0.0),
    Law("exponential", lambda rng, shape: rng.exponential(size=shape), 1.0, -float(np.euler_gamma)),
    Law("log-normal, sigma 1", lambda rng, shape: rng.lognormal(size=shape), float(np.exp(0.5)), 0.0),
    Law("Student's t, 3 degrees of freedom", lambda rng, shape: rng.standard_t(3, size=shape), 0.0),
)
JUDGED_ON = (
    Law("normal; one value in ten is 3 deviations higher", _contaminated, 0.3),
    Law("uniform", lambda rng, shape: rng.uniform(-1, 1, size=shape), 0.0),
    Law("gamma, shape 0.5", lambda rng, shape: rng.gamma(0.5, size=shape), 0.5, float(digamma(0.5))),
    Law("difference of two log-normal values, sigma 1", _difference, 0.0),
    Law("ratio of two gamma times, shape 4", _ratio, 4 / 3, 0.0),
)
LAWS = {law.name: law for law in (*CHOSEN_ON, *JUDGED_ON)}


def student(values: Floats, misses: float = MISSES) -> Ends:
    """Return Student's t intervals.

    Args:
        values: samples, one each row [samples, seeds].
        misses: nominal share of intervals that miss the mean.
    """
    half = quantile(values.shape[1], misses) * _error(values)
    return values.mean(axis=1) - half, values.mean(axis=1) + half


def bca(values: Floats, misses: float = MISSES) -> Ends:
    """Return BCa bootstrap intervals at the level whose normal form is Student's: the method of FRED before this study.

    Args:
        values: as above.
        misses: as above.
    """
    seeds, mean = values.shape[1], values.mean(axis=1)
    tail = ndtr(np.sqrt(seeds / (seeds - 1)) * -quantile(seeds, misses))
    means = np.sort(values @ _counts(seeds).T / seeds, axis=1)
    below = ((means < mean[:, None]).mean(axis=1) + (means <= mean[:, None]).mean(axis=1)) / 2
    left_out = (values - mean[:, None]) / (seeds - 1)
    skew = (left_out**3).sum(axis=1) / (6 * (left_out**2).sum(axis=1) ** 1.5)
    low, high = (_quantile(means, _corrected(ndtri(below), skew, ndtri(level))) for level in (tail, 1 - tail))
    return low, high


def bootstrap_t(values: Floats, misses: float = MISSES) -> Ends:
    """Return bootstrap-t intervals: quantiles of Student's ratio among resamples, those without any spread left out.

    Args:
        values: as above.
        misses: as above.
    """
    seeds, mean, counts = values.shape[1], values.mean(axis=1), _counts(values.shape[1])
    counts = counts[(counts > 0).sum(axis=1) > 1]
    centred = values - mean[:, None]
    means = centred @ counts.T / seeds
    spread = np.maximum(centred**2 @ counts.T / seeds - means**2, 1e-300)
    ratios = np.sort(means / np.sqrt(spread / (seeds - 1)), axis=1)
    every = np.full(len(values), misses / 2)
    return mean - _quantile(ratios, 1 - every) * _error(values), mean - _quantile(ratios, every) * _error(values)


METHODS: dict[str, Callable[[Floats, float], Ends]] = {"Student's t": student, "BCa": bca, "bootstrap-t": bootstrap_t}


def _error(values: Floats) -> Floats:
    return np.asarray(values.std(axis=1, ddof=1) / np.sqrt(values.shape[1]))


def _counts(seeds: int) -> Floats:
    """Return how often each value is in each resample [resamples, seeds]."""
    return np.random.default_rng(0).multinomial(seeds, np.full(seeds, 1 / seeds), size=RESAMPLES).astype(float)


def _corrected(bias: Floats, skew: Floats, quantile: float) -> Floats:
    return np.asarray(ndtr(bias + (bias + quantile) / (1 - skew * (bias + quantile))))


def _quantile(ordered: Floats, shares: Floats) -> Floats:
    """Return a quantile of each row, between its values by a line."""
    places = np.nan_to_num(shares, nan=0.5) * (ordered.shape[1] - 1)
    left = np.minimum(places.astype(int), ordered.shape[1] - 2)
    rows = np.arange(len(ordered))
    return np.asarray(ordered[rows, left] + (places - left) * (ordered[rows, left + 1] - ordered[rows, left]))


def measure() -> None:
    """Measure all methods on the laws that the choice is made on, and Student's t on the others; write the tables."""
    shares = [(law, seeds) for laws in (CHOSEN_ON, JUDGED_ON) for law in laws for seeds in SEEDS]
    STUDY.write("", pd.concat(parts(STUDY, _shares_of, [(law.name, seeds) for law, seeds in shares])))
    tails = [(law.name, seeds) for law in CHOSEN_ON for seeds in OF_TAILS]
    STUDY.write("tails", pd.concat(parts(STUDY, _tails_of, tails, "tails")))
    stops = [(law.name, number) for law in CHOSEN_ON for number in SEEDS_NEEDED]
    STUDY.write("stopping", pd.concat(parts(STUDY, _stopping_of, stops, "stopping")))
    families = [(name, seeds, size) for name in COMMON_LAWS for seeds in (5, 10) for size in SIZES]
    STUDY.write("families", pd.concat(parts(STUDY, _family_of, families, "families")))


def _shares_of(law: str, seeds: int) -> pd.DataFrame:
    chosen_on = law in {candidate.name for candidate in CHOSEN_ON}
    return pd.DataFrame(coverage(LAWS[law], seeds, list(METHODS) if chosen_on else ["Student's t"])).round(4)


def _tails_of(law: str, seeds: int) -> pd.DataFrame:
    return pd.DataFrame(coverage(LAWS[law], seeds, list(METHODS), MISSES / EIGHT)).dropna().round(4)


def _stopping_of(law: str, seeds_needed: int) -> pd.DataFrame:
    usual, early = (stopping(LAWS[law], seeds_needed, first) for first in (FIRST_LOOK, FEWEST_SEEDS))
    (fixed,) = (row for row in coverage(LAWS[law], seeds_needed, ["Student's t"]) if row["method"] == "Student's t")
    shares = {"fixed": fixed["holds"], "stopping": usual["holds"], "early": early["holds"]}
    return pd.DataFrame([{"law": law, "needed": seeds_needed, "seeds": usual["seeds"], **shares}]).round(4)


def _family_of(name: str, seeds: int, size: int) -> pd.DataFrame:
    return pd.DataFrame([family(name, seeds, size)]).round(4)


def coverage(
    law: Law, seeds: int, methods: list[str], misses: float = MISSES, trials: int = TRIALS
) -> Iterator[dict[str, Any]]:
    """Yield a row for each method: shares of intervals that hold the mean, or lie below or above it, and their median width.

    Args:
        law: of the values.
        seeds: number of values for each interval.
        methods: keys of METHODS. Of positive values their logarithms are measured, too.
        misses: nominal share of intervals that miss the mean.
        trials: number of intervals.
    """
    place = list(LAWS).index(law.name)
    values = law.draw(np.random.default_rng([place, seeds]), (trials, seeds))
    usual = float(np.median(np.diff(student(values, misses), axis=0)))
    for method in methods:
        chunks = [METHODS[method](values[begin : begin + _CHUNK], misses) for begin in range(0, trials, _CHUNK)]
        low, high = (np.concatenate(ends) for ends in zip(*chunks, strict=True))
        width = float(np.median(high - low)) / usual
        yield {"law": law.name, "seeds": seeds, "method": method, **_shares((low, high), law.mean), "width": width}
    if law.mean_logarithm is not None:
        shares = _shares(student(np.log(values), misses), law.mean_logarithm)
        yield {"law": law.name, "seeds": seeds, "method": LOGARITHMS, **shares, "width": np.nan}


def _shares(ends: Ends, mean: float) -> dict[str, float]:
    below, above = (float(share) for share in ((ends[1] < mean).mean(), (ends[0] > mean).mean()))
    return {"holds": 1 - below - above, "below": below, "above": above}


def stopping(law: Law, seeds_needed: int, first: int, samples: int = TRIALS) -> dict[str, float]:
    """Return coverage and the mean number of seeds if seeds are added until half of the interval is narrow enough.

    Args:
        law: of the values.
        seeds_needed: number of seeds with which an interval is as narrow as that, by the true deviation.
        first: number of seeds at which the width is first looked at.
        samples: how many.
    """
    values = law.draw(np.random.default_rng([seeds_needed, first]), (samples, MOST))
    narrow = quantile(seeds_needed) * float(values.std()) / np.sqrt(seeds_needed)
    until, seeds = Until(within=0.5, seeds=MOST), first
    holds, seeds_used = np.zeros(samples, bool), np.zeros(samples, int)
    while True:
        low, high = student(values[:, :seeds])
        now = (seeds_used == 0) & (((high - low) / 2 <= narrow) | (seeds == MOST))
        holds[now], seeds_used[now] = ((low <= law.mean) & (law.mean <= high))[now], seeds
        if seeds == MOST:
            return {"holds": float(holds.mean()), "seeds": float(seeds_used.mean())}
        seeds = until.next_look(seeds)


def family(name: str, seeds: int, size: int, families: int = OF_FAMILIES) -> dict[str, Any]:
    """Return the share of families with a false verdict, each interval alone and by Holm's method, of runs that are alike.

    Args:
        name: of the law of a run's values, a key of COMMON_LAWS.
        seeds: number of values of each run.
        size: number of runs that are compared with the same baseline.
        families: how many.
    """
    rng = np.random.default_rng([seeds, size])
    errors_alone = errors_together = 0
    for _ in range(families):
        means = _against_the_baseline(COMMON_LAWS[name](rng, (size + 1, seeds)))
        errors_alone += any(verdict(mean.interval()) != "open" for mean in means)
        errors_together += any(verdict(interval) != "open" for interval in intervals(means))
    shares = {"alone": errors_alone / families, "together": errors_together / families}
    return {"law": name, "seeds": seeds, "comparisons": size, **shares, "independent": 1 - (1 - MISSES) ** size}


def _against_the_baseline(values: Floats) -> list[Mean]:
    return [Mean.estimate(run - values[0]) for run in values[1:]]
