"""The block "how it was measured" of a page: hours, seeds, points, the share of optima at an edge, and power.

Power is the smallest difference that a study could have seen: half the width of its intervals.
"""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pandas as pd

from reproductions.common import table
from studies.kit.difference import Difference
from studies.kit.runs import SECONDS
from studies.kit.study import Study

Families = Mapping[str, Collection[Difference | float]]  # differences, or half widths, by the question that they answer


def block(
    study: Study,
    seeds: Sequence[int] | str,
    families: Families,
    ratios: Families | None = None,
    trials: pd.DataFrame | None = None,
    by: Sequence[str] = ("case", "system"),
) -> str:
    """Return the block.

    Args:
        study: whose seconds were recorded, or stated.
        seeds: that are reported, or words for other draws.
        families: differences, in their units, by question.
        ratios: differences of logarithms, by question.
        trials: a row for each point that was tried and seed, `chosen` and `edges`; or one for each search, with its number of
            `points`. None if nothing is tuned.
        by: columns of the searches.
    """
    tuning = "" if trials is None or "seed" not in trials else f"{trials['seed'].nunique()} to tune, "
    draws = seeds if isinstance(seeds, str) else f"{tuning}{len(seeds)} reported"
    row = [_hours(study), draws, *_search(trials, by)]
    parts = [table(("core hours", "seeds", "points", "optima at an edge"), [row])]
    rows = [[name, *_power(differences)] for name, differences in families.items()]
    rows += [[f"{name} (ratio)", *_power(differences, ratio=True)] for name, differences in (ratios or {}).items()]
    parts.append(table(("smallest difference that could be seen in", "comparisons", "median", "least", "largest"), rows))
    return "\n\n".join(parts)


def _hours(study: Study) -> str:
    path = study.path(SECONDS)
    if path.is_file():
        return f"{pd.read_csv(path)['seconds'].sum() / 3600:.2g}"
    return "not recorded" if study.core_hours is None else f"{study.core_hours:g}, not recorded"


def _search(trials: pd.DataFrame | None, by: Sequence[str]) -> list[str]:
    """Return the number of points of each search, and the share of searches that ended at an edge."""
    if trials is None:
        return ["nothing is tuned", "–"]
    searches = trials.groupby(list(by), sort=False)
    points = searches["settings"].nunique() if "settings" in trials else searches.size()
    points = searches["points"].first().astype(int) if "points" in trials else points
    edges = trials[trials["chosen"]].groupby(list(by), sort=False)["edges"].first() != ""
    numbers = f"{points.min()}" if points.min() == points.max() else f"{points.min()} to {points.max()}"
    total = f"{len(points)} x {numbers} = {points.sum():,}"
    return [total, f"{edges.sum()} of {len(edges)} ({edges.mean():.0%})"]


def _power(differences: Collection[Difference | float], ratio: bool = False) -> list[str]:
    halves = np.array([entry.half if isinstance(entry, Difference) else entry for entry in differences])
    summary = np.array([np.median(halves), halves.min(), halves.max()])
    words = [f"x {number:.2f}" for number in np.exp(summary)] if ratio else [f"{number:.2g}" for number in summary]
    return [str(len(halves)), *words]
