"""Measure how often each method's intervals hold the true mean, and how often families have a false verdict."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fred.base.intervals import FEWEST_SEEDS, MISSES, Mean, intervals, quantile, verdict
from fred.specification.stopping import FIRST_LOOK, Until
from studies.coverage.laws import CHOSEN_ON, JUDGED_ON, Draw, Floats, Law
from studies.coverage.methods import METHODS, Ends, student

FOUND = Path(__file__).parents[2] / "results" / "studies" / "coverage.csv"
FAMILIES = FOUND.with_name("coverage-families.csv")
TAILS, STOPPING = (FOUND.with_name(f"coverage-{name}.csv") for name in ("tails", "stopping"))
SEEDS, TRIALS = (3, 5, 8, 10), 10_000
OF_TAILS, EIGHT = (5, 10), 8  # seeds, and comparisons of a family, of whose most certain one the interval is measured
LOGARITHMS = "Student's t of logarithms"
ALIKE: dict[str, Draw] = {  # laws of a run's values; all runs of a family are alike
    "normal": lambda rng, shape: rng.normal(size=shape),
    "exponential": lambda rng, shape: rng.exponential(size=shape),
}
SIZES, OF_FAMILIES = (8, 54), 2_000
NEEDED, MOST = (15, 30), 120  # seeds, of studies that add seeds until intervals are narrow
_CHUNK = 500


def measure() -> None:
    """Measure all methods on the laws that the choice is made on, and Student's t on the others."""
    FOUND.parent.mkdir(parents=True, exist_ok=True)
    rows = [row for law in CHOSEN_ON for seeds in SEEDS for row in coverage(law, seeds, list(METHODS))]
    rows += [row for law in JUDGED_ON for seeds in SEEDS for row in coverage(law, seeds, ["Student's t"])]
    pd.DataFrame(rows).to_csv(FOUND, index=False, float_format="%.4f")
    tails = [row for law in CHOSEN_ON for seeds in OF_TAILS for row in coverage(law, seeds, list(METHODS), MISSES / EIGHT)]
    pd.DataFrame(tails).dropna().to_csv(TAILS, index=False, float_format="%.4f")
    pd.DataFrame(_stopping_rows()).to_csv(STOPPING, index=False, float_format="%.4f")
    families = [family(name, seeds, size) for name in ALIKE for seeds in (5, 10) for size in SIZES]
    pd.DataFrame(families).to_csv(FAMILIES, index=False, float_format="%.4f")


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
    place = [each.name for each in (*CHOSEN_ON, *JUDGED_ON)].index(law.name)
    values = law.draw(np.random.default_rng([place, seeds]), (trials, seeds))
    usual = float(np.median(np.diff(student(values, misses), axis=0)))
    for method in methods:
        found = [METHODS[method](values[begin : begin + _CHUNK], misses) for begin in range(0, trials, _CHUNK)]
        low, high = (np.concatenate(ends) for ends in zip(*found, strict=True))
        width = float(np.median(high - low)) / usual
        yield {"law": law.name, "seeds": seeds, "method": method, **_shares((low, high), law.mean), "width": width}
    if law.mean_logarithm is not None:
        shares = _shares(student(np.log(values), misses), law.mean_logarithm)
        yield {"law": law.name, "seeds": seeds, "method": LOGARITHMS, **shares, "width": np.nan}


def _shares(ends: Ends, mean: float) -> dict[str, float]:
    below, above = (float(share) for share in ((ends[1] < mean).mean(), (ends[0] > mean).mean()))
    return {"holds": 1 - below - above, "below": below, "above": above}


def stopping(law: Law, needed: int, first: int, samples: int = TRIALS) -> dict[str, float]:
    """Return coverage and the mean number of seeds if seeds are added until half of the interval is narrow enough.

    Args:
        law: of the values.
        needed: number of seeds with which an interval is as narrow as that, by the true deviation.
        first: number of seeds at which the width is first looked at.
        samples: how many.
    """
    values = law.draw(np.random.default_rng([needed, first]), (samples, MOST))
    narrow = quantile(needed) * float(values.std()) / np.sqrt(needed)
    until, seeds = Until(within=0.5, seeds=MOST), first
    holds, stopped_at = np.zeros(samples, bool), np.zeros(samples, int)
    while True:
        low, high = student(values[:, :seeds])
        now = (stopped_at == 0) & (((high - low) / 2 <= narrow) | (seeds == MOST))
        holds[now], stopped_at[now] = ((low <= law.mean) & (law.mean <= high))[now], seeds
        if seeds == MOST:
            return {"holds": float(holds.mean()), "seeds": float(stopped_at.mean())}
        seeds = until.next_look(seeds)


def _stopping_rows() -> Iterator[dict[str, object]]:
    for law in CHOSEN_ON:
        for needed in NEEDED:
            usual, early = (stopping(law, needed, first) for first in (FIRST_LOOK, FEWEST_SEEDS))
            (fixed,) = (row for row in coverage(law, needed, ["Student's t"]) if row["method"] == "Student's t")
            shares = {"fixed": fixed["holds"], "stopping": usual["holds"], "early": early["holds"]}
            yield {"law": law.name, "needed": needed, "seeds": usual["seeds"], **shares}


def family(name: str, seeds: int, size: int, families: int = OF_FAMILIES) -> dict[str, Any]:
    """Return the share of families with a false verdict, each interval alone and by Holm's method, of runs that are alike.

    Args:
        name: of the law of a run's values, a key of ALIKE.
        seeds: number of values of each run.
        size: number of runs that are compared with the same baseline.
        families: how many.
    """
    rng = np.random.default_rng([seeds, size])
    alone = together = 0
    for _ in range(families):
        means = _against_the_baseline(ALIKE[name](rng, (size + 1, seeds)))
        alone += any(verdict(mean.interval()) != "open" for mean in means)
        together += any(verdict(interval) != "open" for interval in intervals(means))
    shares = {"alone": alone / families, "together": together / families}
    return {"law": name, "seeds": seeds, "comparisons": size, **shares, "independent": 1 - (1 - MISSES) ** size}


def _against_the_baseline(values: Floats) -> list[Mean]:
    return [Mean.estimate(own - values[0]) for own in values[1:]]
