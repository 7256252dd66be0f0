"""Tables of the page: cells with the numbers by which they are sorted."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

import numpy as np
import pandas as pd

from fred.errors import FredError
from fred.outcomes import sweeps
from fred.outcomes.paired import compared
from fred.outcomes.spans import KINDS
from fred.outcomes.tables import Tables
from fred.views.figures import OF_TIME

_MOST = 400  # rows of a table on the page
_SHOWN = (  # column of the summary, heading, unit's factor, form
    ("updates", "updates", 1, ",.0f"),
    ("gradients_applied", "gradients", 1, ",.0f"),
    ("gradients_dropped", "dropped", 1, ",.0f"),
    ("virtual_seconds", "virtual time, s", 1, ",.4g"),
    ("throughput", "gradients per s", 1, ",.4g"),
    ("target_seconds", "to target, s", 1, ",.3g"),
    ("target_updates", "to target, updates", 1, ",.0f"),
    ("error", "error", 1, ".3g"),
    ("loss", "loss", 1, ".3g"),
    ("replicas_error", "replicas' error", 1, ".3g"),
    ("staleness_mean", "staleness, mean", 1, ".3g"),
    ("staleness_max", "staleness, largest", 1, ",.0f"),
    ("bytes", "sent, MB", 1e-6, ",.3g"),
)
_PAIRED = {"loss": "loss", "error": "error", "to_target": "time to target", "throughput": "throughput"}


class Cell(NamedTuple):
    """What stands in a table."""

    text: str
    value: float | None = None  # by which it is sorted; None: by its text


def table(headings: Sequence[str], rows: Iterable[Sequence[Cell | str]], caption: str) -> str:
    """HTML of a table that the page can sort.

    Args:
        headings: of the columns.
        rows: of cells, of which the first names the row.
        caption: below it, what the numbers are.
    """
    rows = list(rows)
    head = "".join(f'<th scope="col"><button type="button">{escape(each)}</button></th>' for each in headings)
    body = "".join(f"<tr>{''.join(_cell(each, not i) for i, each in enumerate(row))}</tr>" for row in rows[:_MOST])
    left = f" The first {_MOST} of {len(rows):,} rows." if len(rows) > _MOST else ""
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="table"><table class="sorts"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div><p class='note'>{escape(caption + left)}</p>"
    )


def _cell(cell: Cell | str, first: bool) -> str:
    text, value = cell if isinstance(cell, Cell) else (cell, None)
    number = "" if value is None else f' data-value="{value:.9g}"' if np.isfinite(value) else ' data-value=""'
    return f'<th scope="row">{escape(text)}</th>' if first else f"<td{number}>{escape(text)}</td>"


def of_runs(tables: Tables) -> str:
    """A row for each run: means over the seeds, and half the range.

    Args:
        tables: what the runs came to; of a sweep every point has a row.
    """
    summary = _with_bytes(tables.summary)
    seeds = int(summary.groupby("name").size().max())
    shown = [each for each in _SHOWN if each[0] in summary and summary[each[0]].notna().any()]
    groups = summary.groupby("name", sort=False)
    rows = [[Cell(str(name)), *(_mean(own, *each[:1], *each[2:]) for each in shown)] for name, own in groups]
    spread = f"Means over {seeds} seeds ± half the range; – where a seed has none." if seeds > 1 else "One seed."
    return table(["run", *(each[1] for each in shown)], rows, f"{spread} Staleness is in updates.")


def _mean(own: pd.DataFrame, column: str, factor: float, form: str) -> Cell:
    values = own[column].astype(float) * factor
    if values.isna().any():
        return Cell("–", np.nan)
    half = (values.max() - values.min()) / 2
    return Cell(
        f"{values.mean():{form}}" + (f" ± {half:{form}}" if half > 0 and column != "staleness_max" else ""),
        float(values.mean()),
    )


def _with_bytes(summary: pd.DataFrame) -> pd.DataFrame:
    ways = [column for column in summary if column.startswith("bytes_")]
    total = summary[ways].astype(float).sum(axis=1)
    return summary.assign(bytes=total) if (total > 0).any() else summary


def by_seed(tables: Tables) -> str:
    """A row for each run and seed."""
    summary = _with_bytes(tables.summary)
    shown = [each for each in _SHOWN if each[0] in summary and summary[each[0]].notna().any()]
    rows = (
        [
            Cell(str(row["name"])),
            Cell(str(row["seed"]), float(row["seed"])),
            *(_mean(pd.DataFrame([row]), *each[:1], *each[2:]) for each in shown),
        ]
        for _, row in summary.head(_MOST + 1).iterrows()
    )
    return table(["run", "seed", *(each[1] for each in shown)], rows, f"{len(summary):,} runs with a seed each.")


def pairs(tables: Tables) -> str:
    """How each run compares with the baseline over the seeds; empty where there is one run only.

    Raises FredError where no point of a sweep is the best.
    """
    found = compared(tables)
    if found.empty:
        return ""
    rows = [
        [Cell(str(row["run"])), Cell(_PAIRED[row["quantity"]]), *_paired_cells(row)]
        for _, row in found.iterrows()
        if row["seeds"]
    ]
    baseline = found["baseline"].iloc[0]
    text = f"Compared with {baseline} seed by seed: differences of loss and error, ratios of times and throughput."
    return table(["run", "of", "mean", "95 % interval", "over the seeds", "seeds"], rows, text) if rows else ""


def _paired_cells(row: pd.Series) -> list[Cell]:
    sign, times = ("", " ×") if row["way"] == "ratio" else ("+", "")

    def said(value: float) -> str:
        return f"{value:{sign}.3g}{times}"

    interval = f"{said(row['low'])} to {said(row['high'])}" if np.isfinite(row["low"]) else "– (below 5 seeds)"
    reach = f"{said(row['least'])} to {said(row['largest'])}"
    return [
        Cell(said(row["mean"]), row["mean"]),
        Cell(interval, row["low"]),
        Cell(reach, row["least"]),
        Cell(str(row["seeds"]), row["seeds"]),
    ]


def of_sweep(tables: Tables) -> str:
    """A row for each point of a sweep, the best ones marked."""
    points, best, criterion = tables.sweep, set(tables.best["point"]), tables.scenario.criterion
    keys = sweeps.keys_of(points)
    rows = []
    for _, row in points.iterrows():
        values = [
            Cell(text, float(row[key]) if isinstance(row[key], int | float) else None)
            for key, text in zip(keys, sweeps.said(row[keys]), strict=True)
        ]
        numbers = [
            Cell(f"{row[part]:.4g}" if np.isfinite(row[part]) else "–", float(row[part]))
            for part in ("mean", "least", "largest")
        ]
        rows.append([Cell(str(row["run"])), *values, *numbers, Cell("best" if row["point"] in best else "")])
    headings = ["run", *(key.rsplit(".", 1)[-1].replace("_", " ") for key in keys), "mean", "least", "largest", "best"]
    return table(headings, rows, f"{criterion.column.replace('_', ' ')} over the seeds; the {criterion.way} mean is the best.")


def workers_time(tables: Tables) -> str:
    """A bar for each run with a clock, of the shares of all workers' time, and the same in numbers.

    Raises FredError where no run has a clock.
    """
    columns = [f"workers_time_{kind}" for kind in KINDS]
    shares = tables.summary.groupby("name", sort=False)[columns].agg(lambda own: own.astype(float).mean()).dropna()
    if shares.empty:
        raise FredError("these runs have no clock: nothing takes time in them")
    used = [kind for kind in KINDS if (shares[f"workers_time_{kind}"] > 0).any()]
    legend = "".join(f'<li><i style="background:{OF_TIME[kind]}"></i>{kind.replace("_", " ")}</li>' for kind in used)
    bars = "".join(_bar(str(name), own) for name, own in shares.head(60).iterrows())
    rows = [
        [
            Cell(str(name)),
            *(Cell(f"{100 * own[f'workers_time_{kind}']:.1f}", 100 * float(own[f"workers_time_{kind}"])) for kind in used),
        ]
        for name, own in shares.iterrows()
    ]
    numbers = table(
        ["run", *(f"{kind.replace('_', ' ')}, %" for kind in used)], rows, "Per cent of all workers' time, mean over the seeds."
    )
    return f'<ul class="legend">{legend}</ul><div class="bars">{bars}</div><details><summary>In numbers</summary>{numbers}</details>'


def _bar(name: str, own: pd.Series) -> str:
    parts = ""
    for kind in KINDS:
        percent = 100 * float(own[f"workers_time_{kind}"])
        if percent > 0:
            word = f"{percent:.0f} %" if percent >= 8 else ""
            parts += f'<b style="width:{percent:.3f}%;background:{OF_TIME[kind]}" class="{kind}" title="{kind.replace("_", " ")}: {percent:.1f} %">{word}</b>'
    return f'<div class="run">{escape(name)}</div><div class="bar">{parts}</div>'
