"""The table of paired differences: a row per run, a column per quantity, with intervals."""

import math
from typing import Any

import pandas as pd

from fred.base.intervals import FEWEST_SEEDS
from fred.views.table import NONE, Cell, Table

ONE_SEED = (
    "runs with one seed: their differences say nothing about other seeds "
    f"(with {FEWEST_SEEDS} `seeds` or more there are intervals)"
)
_HEADINGS = {"to_target": "to target", "cost_to_target": "cost to target", "gradient_norm": "gradient norm"}
_MOST_DECIMALS = 6
_ROUNDING = 1e-6  # relative; an interval narrower than this is shown as one number


def paired_table(pairs: pd.DataFrame) -> Table:
    """Return the table of each run's difference from the baseline, or ratio to it, with an interval.

    With few seeds the range replaces the interval.

    Args:
        pairs: the table from `outcomes.comparisons.compared`, for two or more seeds.
    """
    quantities = list(dict.fromkeys(pairs["quantity"]))
    rows = []
    for run, run_pairs in pairs.groupby("run", sort=False):
        cells = {pair["quantity"]: Cell(format_pair(pair), float(pair["mean"])) for pair in run_pairs.to_dict("records")}
        rows.append([Cell(str(run)), *(cells.get(quantity, Cell(NONE, math.nan)) for quantity in quantities)])
    title = f"compared with {pairs['baseline'].iloc[0]}, seed by seed"
    return Table(["run", *(_HEADINGS.get(quantity, quantity) for quantity in quantities)], rows, title, _caption(pairs))


def format_pair(pair: dict[Any, Any]) -> str:
    """Return a comparison as text: the mean, and in brackets the interval, or the range if there is no interval.

    Args:
        pair: a row of the comparison as a mapping.

    >>> surely = {"low": 1.25, "high": 2.0, "least": 1.0, "largest": 3.0}
    >>> format_pair({"way": "ratio", "mean": 1.5, **surely, "seeds": 8, "missing": 0})
    '× 1.50 (1.25 to 2.00)'
    >>> few = {"low": math.nan, "high": math.nan, "least": -0.01, "largest": 0.02}
    >>> format_pair({"way": "difference", "mean": 0.01, **few, "seeds": 2, "missing": 1})
    '+0.010 (-0.010 to +0.020), 2 of 3 seeds'
    """
    if not pair["seeds"]:
        return "–"
    if pair["least"] == pair["largest"] == (pair["way"] == "ratio"):
        return "equal"
    low, high = (pair["low"], pair["high"]) if math.isfinite(pair["low"]) else (pair["least"], pair["largest"])
    has_range = high - low > _ROUNDING * abs(pair["mean"])
    decimals = min(_MOST_DECIMALS, max(0, 1 - math.floor(math.log10(high - low)))) if has_range else 3
    form, sign = (f".{decimals}f", "× ") if pair["way"] == "ratio" else (f"+.{decimals}f", "")
    spread = f" ({low:{form}} to {high:{form}})" if has_range else ""
    missing = f", {pair['seeds']} of {pair['seeds'] + pair['missing']} seeds" if pair["missing"] else ""
    return f"{sign}{pair['mean']:{form}}{spread}{missing}"


def _caption(pairs: pd.DataFrame) -> str:
    """Return the caption: the content of the brackets, and the reason for dashes."""
    seeds = pairs["seeds"] + pairs["missing"]
    number, few = seeds.max(), (pairs["seeds"] < FEWEST_SEEDS) & (pairs["seeds"] > 0)
    family = f", widened for {runs} comparisons in a column" if (runs := pairs["run"].nunique()) > 1 else ""
    interval = f"95 % interval over {number} seeds{family}" + (f"; fewer than {FEWEST_SEEDS}: range" if few.any() else "")
    brackets = f"range of {number} seeds, too few for an interval" if number < FEWEST_SEEDS else interval
    missed = pairs["quantity"].isin(["to_target", "cost_to_target"]) & (pairs["seeds"] == 0)
    return f"In brackets: {brackets}" + (f"; {NONE}: one of the two runs missed the target" if missed.any() else "")
