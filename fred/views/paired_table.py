"""Paired differences as a table: a line per run, a column per quantity, and how sure that is."""

import math
from typing import Any

import pandas as pd

from fred.outcomes.paired import FEWEST
from fred.views.table import NONE, Cell, Table

ONE_SEED = (
    f"runs with one seed: how they differ says nothing about other seeds (with {FEWEST} `seeds` or more there are intervals)"
)
_HEADINGS = {"to_target": "to target", "gradient_norm": "gradient norm"}
_MOST_DECIMALS = 6
_ROUNDING = 1e-6  # relative: what differs by less is shown as one number


def paired_table(pairs: pd.DataFrame) -> Table:
    """Return each run less the baseline, or relative to it, with an interval, or the range where there are few seeds.

    Args:
        pairs: as `outcomes.paired.compared` gives them, of two seeds or more.
    """
    quantities = list(dict.fromkeys(pairs["quantity"]))
    rows = []
    for run, own in pairs.groupby("run", sort=False):
        cells = {each["quantity"]: Cell(said(each), float(each["mean"])) for each in own.to_dict("records")}
        rows.append([Cell(str(run)), *(cells.get(quantity, Cell(NONE, math.nan)) for quantity in quantities)])
    title = f"compared with {pairs['baseline'].iloc[0]}, seed by seed"
    return Table(["run", *(_HEADINGS.get(each, each) for each in quantities)], rows, title, _caption(pairs))


def said(pair: dict[Any, Any]) -> str:
    """A row of the comparison in words.

    Args:
        pair: as a mapping; without an interval the range of the seeds is said.

    >>> surely = {"low": 1.25, "high": 2.0, "least": 1.0, "largest": 3.0}
    >>> said({"way": "ratio", "mean": 1.5, **surely, "seeds": 8, "missing": 0})
    '× 1.50 (1.25 to 2.00)'
    >>> few = {"low": math.nan, "high": math.nan, "least": -0.01, "largest": 0.02}
    >>> said({"way": "difference", "mean": 0.01, **few, "seeds": 2, "missing": 1})
    '+0.010 (-0.010 to +0.020), 2 of 3 seeds'
    """
    if not pair["seeds"]:
        return "–"
    if pair["least"] == pair["largest"] == (pair["way"] == "ratio"):
        return "equal"
    low, high = (pair["low"], pair["high"]) if math.isfinite(pair["low"]) else (pair["least"], pair["largest"])
    apart = high - low > _ROUNDING * abs(pair["mean"])
    decimals = min(_MOST_DECIMALS, max(0, 1 - math.floor(math.log10(high - low)))) if apart else 3
    form, sign = (f".{decimals}f", "× ") if pair["way"] == "ratio" else (f"+.{decimals}f", "")
    spread = f" ({low:{form}} to {high:{form}})" if apart else ""
    missing = f", {pair['seeds']} of {pair['seeds'] + pair['missing']} seeds" if pair["missing"] else ""
    return f"{sign}{pair['mean']:{form}}{spread}{missing}"


def _caption(pairs: pd.DataFrame) -> str:
    """What is in brackets, and how much pairing saved of the variance, from the least to the most of the runs."""
    seeds = pairs["seeds"] + pairs["missing"]
    number, few = seeds.max(), (pairs["seeds"] < FEWEST) & (pairs["seeds"] > 0)
    interval = f"95 % interval over {number} seeds" + (f", with fewer than {FEWEST} the range" if few.any() else "")
    brackets = f"range of {number} seeds, too few for an interval" if number < FEWEST else interval
    saved = [
        f"{_HEADINGS.get(str(quantity), str(quantity))} {_percent(own)}"
        for quantity, own in pairs.dropna(subset="variance_saved").groupby("quantity", sort=False)["variance_saved"]
    ]
    added = " (below 0: added)" if (pairs["variance_saved"] < 0).any() else ""
    return f"In brackets: {brackets}" + (f"; variance that pairing saved{added}: {', '.join(saved)}" if saved else "")


def _percent(shares: pd.Series) -> str:
    least, most = (round(100 * share) for share in (shares.min(), shares.max()))
    return f"{least} %" if least == most else f"{least} to {most} %"
