"""Precision of comparisons between runs, and the number of seeds that they need."""

import math

import pandas as pd

from fred.outcomes.paired import compared
from fred.outcomes.tables import Tables
from fred.specification.until import FIRST_LOOK

_FIRST = ("to_target", "loss", "throughput")  # the first of these that is measured counts


def precision(tables: Tables) -> float:
    """Return half of the widest interval of all runs, relative to the baseline; infinite if one is unknown, NaN for one run.

    Args:
        tables: outcomes of the runs.

    >>> import fred
    >>> scenario = fred.scenario(
    ...     cluster={"workers": 2, "compute": {"name": "exponential", "scale": 0.5}},
    ...     stop={"updates": 40},
    ...     runs={name: {"algorithm": {"name": name, "learning_rate": 0.1}} for name in ("asgd", "ssgd")},
    ...     seeds=[1, 2, 3, 4, 5],
    ... )
    >>> round(precision(fred.run(scenario)), 3)
    0.179
    """
    pairs = compared(tables) if tables.chosen else pd.DataFrame(columns=["quantity"])
    own = next((pairs[pairs["quantity"] == name] for name in _FIRST if (pairs["quantity"] == name).any()), pairs[:0])
    if own.empty:
        return math.nan
    if own["way"].iloc[0] == "ratio":
        halves = (own["high"] / own["low"]) ** 0.5 - 1
    else:
        reported = tables.with_its_best().summary
        level = reported.loc[reported["name"] == own["baseline"].iloc[0], own["quantity"].iloc[0]].mean()
        halves = (own["high"] - own["low"]) / 2 / abs(level)
    return float(halves.fillna(math.inf).max())


def further_seeds(tables: Tables) -> int:
    """Return the number of seeds with which to go on; 0 if the comparisons are precise enough, or at the limit.

    Args:
        tables: outcomes of the runs.
    """
    until, count = tables.scenario.until, len(tables.scenario.reported_seeds)
    if until is None or count >= until.seeds:
        return 0
    found = precision(tables)
    return 0 if math.isnan(found) or (count >= FIRST_LOOK and found <= until.within) else until.after(count)


def why_stopped(tables: Tables) -> list[str]:
    """Return a sentence that says why no more seeds were added; none if the scenario asks for no precision.

    Args:
        tables: outcomes of the runs.
    """
    until, seeds = tables.scenario.until, len(tables.scenario.reported_seeds)
    if until is None or math.isnan(found := precision(tables)):
        return []
    if found <= until.within:
        return [f"Seeds were added until intervals were within {until.within:.3g} of the baseline: {seeds}"]
    return [f"With {seeds} seeds, the limit, intervals are not yet within {until.within:.3g} of the baseline"]
