"""The page's tables and text."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from reproductions.common import fill, table
from reproductions.fasgd import curves, traffic
from reproductions.fasgd.claims import Files, judge_claims
from reproductions.fasgd.curves import FIGURE_1, FIGURE_2, INITIALISATIONS, PUBLISHED, SEEDS, UPDATES, Errors
from reproductions.verdicts import CHOICES, REASONS, read_claims, tables

CLAIMS = read_claims(Path(__file__).parent)
_NOTHING = 0.02  # of a margin is none
_COLUMNS = (("published", "fasgd"), ("published", "sasgd"), ("chosen", "fasgd"), ("chosen", "fasgd-std"), ("chosen", "sasgd"))


def text(files: Files) -> str:
    """Return the page."""
    errors = files.errors
    published, tuned_rates = ("N(0, 1)", "published"), ("scaled", "chosen")
    margins = {
        (how, number): errors.margin(*how, figure)
        for how in (published, tuned_rates)
        for number, figure in curves.FIGURES.items()
    }
    return fill(
        Path(__file__).with_name("page.md"),
        first=_as_published(errors, FIGURE_1, curves.PAPER),
        second=_as_published(errors, FIGURE_2, {}),
        both=_all_errors(errors),
        chosen=_rates(files.tuning),
        margins=_margins(errors),
        left_1=_describe_rest(margins[published, 1], margins[tuned_rates, 1]),
        left_2=_describe_rest(margins[published, 2], margins[tuned_rates, 2]),
        seeds=len(SEEDS),
        spread=_spread(errors),
        traffic=_traffic(files.traffic),
        reasons=REASONS,
        choices=CHOICES,
        gate_seeds=files.seeds("periods", "period-2").count(),
        gradients=f"{files.traffic['potential'].max():,}",
        **tables(CLAIMS, judge_claims(files)),
    )


def _as_published(errors: Errors, figure: tuple[str, ...], paper: dict[str, dict[str, float]]) -> str:
    """Return the table of errors with the published initialisation and rates, their ratio and their difference."""
    rows = []
    for c in figure:
        fasgd, sasgd = (errors.published(name, c) for name in PUBLISHED)
        printed = [f"{paper[c][name]:.3f}" for name in PUBLISHED] if paper else []
        rows.append([c, *printed, f"{fasgd:.3f}", f"{sasgd:.3f}", f"{sasgd / fasgd:.2f}", f"{sasgd - fasgd:.3f}"])
    papers = [f"paper: {name}" for name in PUBLISHED] if paper else []
    return table(["workers x batch", *papers, *(f"FRED: {name}" for name in PUBLISHED), "ratio", "difference"], rows)


def _all_errors(errors: Errors) -> str:
    rows = [
        [c, *(f"{errors.mean(i, rates, name, c):.3f}" for i in INITIALISATIONS for rates, name in _COLUMNS)]
        for c in (*FIGURE_1, *FIGURE_2)
    ]
    return table(["workers x batch", *(f"{name}, {i}, {rates}" for i in INITIALISATIONS for rates, name in _COLUMNS)], rows)


def _rates(tuning: pd.DataFrame) -> str:
    rows: list[Any] = list(curves.choose_rates(tuning).itertuples())
    cells = [[row.initialisation, row.algorithm, f"{row.rate:.3g}", f"{row.error:.3f}"] for row in rows]
    return table(["initialisation", "algorithm", "rate", "mean error"], cells)


def _margins(errors: Errors) -> str:
    rows = []
    for how in product(INITIALISATIONS, ("published", "chosen")):
        values = [f"{errors.margin(*how, figure):+z.3f}" for figure in (FIGURE_1, FIGURE_2)]
        std = [
            f"{errors.margin(*how, figure, 'fasgd-std'):+z.3f}" if how[1] == "chosen" else "–"
            for figure in (FIGURE_1, FIGURE_2)
        ]
        rows.append([*how, *values, *std])
    header = ["initialisation", "rates", "figure 1", "figure 2", "figure 1, `fasgd-std`", "figure 2, `fasgd-std`"]
    return table(header, rows)


def _describe_rest(published: float, tuned: float) -> str:
    """Describe the remaining part of a margin."""
    if published <= 0:
        share = "which cannot be compared"
    elif abs(tuned) < _NOTHING * published:
        share = "nothing of it is left"
    else:
        share = f"{tuned / published:.0%} of it"
    return f"{published:+z.3f} as published, {tuned:+z.3f} with weights scaled and rates chosen: {share}"


def _spread(errors: Errors) -> str:
    """Return the largest difference between seeds of a configuration of figure 1, and the configuration."""
    last = errors.curves[(errors.curves["updates"] == UPDATES) & errors.curves["configuration"].isin(FIGURE_1)]
    ranges = last.groupby(["initialisation", "rates", "algorithm", "configuration"])["error"].agg(np.ptp)
    worst: Any = ranges.idxmax()
    return f"{ranges.max():.3f} ({', '.join(worst)})"


def _traffic(measured: pd.DataFrame) -> str:
    means = traffic.means(traffic.ends(measured))
    runs: list[Any] = list(means.itertuples())
    rows = [
        [
            run.Index,
            f"{run.pushed:.3f}",
            f"{run.fetched:.3f}",
            f"{run.total:.3f}",
            f"{run.error:.4f}",
            f"{run.cost:.2f}",
            run.seeds,
        ]
        for run in runs
    ]
    return table(["run", "pushed, of potential", "fetched, of potential", "both", "error", "of open gates'", "seeds"], rows)
