"""Tables of the page: cells with the numbers by which they are sorted."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.errors import FredError
from fred.outcomes import sweeps
from fred.outcomes.paired import compared
from fred.outcomes.spans import KINDS
from fred.outcomes.tables import Tables
from fred.schedule.schedule import WAYS
from fred.views.view import OF_TIME

_MOST, _BARS = 200, 60  # rows of a table on the page, and of a picture


class _Column(NamedTuple):
    """A column of the summary, as it is shown."""

    column: str
    heading: str
    form: str
    factor: float = 1


_COLUMNS = (
    _Column("target_seconds", "to target, s", ",.3g"),
    _Column("target_updates", "to target, updates", ",.0f"),
    _Column("error", "error", ".3g"),
    _Column("loss", "loss", ".3g"),
    _Column("perplexity", "perplexity", ".4g"),
    _Column("gradient_norm", "gradient norm", ".3g"),
    _Column("replicas_error", "replicas' error", ".3g"),
    _Column("updates", "updates", ",.0f"),
    _Column("gradients_applied", "gradients", ",.0f"),
    _Column("gradients_dropped", "dropped", ",.0f"),
    _Column("throughput", "gradients per s", ",.4g"),
    _Column("virtual_seconds", "virtual time, s", ",.4g"),
    _Column("staleness_mean", "staleness, mean", ".3g"),
    _Column("staleness_max", "staleness, largest", ",.0f"),
    _Column("staleness_in_gradients", "staleness, in gradients", ",.0f"),
    _Column("bytes", "sent, MB", ",.3g", 1e-6),
)
_PAIRED = {
    **{"to_target": "time to target", "error": "error", "loss": "loss"},
    **{"gradient_norm": "norm of the gradient", "throughput": "throughput"},
}


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
    shown, seeds = _shown(summary), summary.groupby("name").size()
    rows = [
        [Cell(str(name)), *(_mean(own[each.column].to_numpy(np.float64), each) for each in shown)]
        for name, own in summary.groupby("name", sort=False)
    ]
    number = f"{seeds.min()} to {seeds.max()}" if seeds.min() < seeds.max() else f"{seeds.max()}"
    spread = f"Means over {number} seeds ± half the range; – where a seed has none." if seeds.max() > 1 else "One seed."
    unequal = " Runs with other seeds are not to be compared." if len(set(_seeds(summary))) > 1 else ""
    return table(["run", *(each.heading for each in shown)], rows, f"{spread}{unequal} Staleness is in updates.")


def by_seed(tables: Tables) -> str:
    """A row for each run and seed."""
    summary = _with_bytes(tables.summary)
    shown = _shown(summary)
    columns = [summary[each.column].to_numpy(np.float64) for each in shown]
    rows = [
        [Cell(name), Cell(str(seed), seed), *(_mean(own[i : i + 1], each) for each, own in zip(shown, columns, strict=True))]
        for i, (name, seed) in enumerate(zip(summary["name"], summary["seed"], strict=True))
    ]
    return table(["run", "seed", *(each.heading for each in shown)], rows, f"{len(rows):,} runs with a seed each.")


def _shown(summary: pd.DataFrame) -> list[_Column]:
    return [each for each in _COLUMNS if each.column in summary and summary[each.column].notna().any()]


def _seeds(summary: pd.DataFrame) -> list[tuple[int, ...]]:
    """Those of each run."""
    return [tuple(own) for _, own in summary.groupby("name", sort=False)["seed"]]


def _mean(values: NDArray[np.float64], shown: _Column) -> Cell:
    """Of the seeds' values."""
    if not np.isfinite(values).all():
        return Cell("–", np.nan)
    mean, half = shown.factor * values.mean(), shown.factor * (values.max() - values.min()) / 2
    return Cell(
        f"{mean:{shown.form}}" + (f" ± {half:,.2g}" if half > 0 and half < 99.5 else f" ± {half:,.0f}" if half else ""), mean
    )


def _with_bytes(summary: pd.DataFrame) -> pd.DataFrame:
    """With what was sent all ways together, where anything was."""
    total = summary[[f"bytes_{way}" for way in WAYS]].astype(float).sum(axis=1)
    return summary.assign(bytes=total) if (total > 0).any() else summary


def pairs(tables: Tables) -> str:
    """How each run compares with the baseline over the seeds; empty where there is one run only.

    Raises FredError where no point of a sweep is the best.
    """
    found = compared(tables)
    found = found[found["seeds"] > 0]
    if found.empty:
        return ""
    quantities = [each for each in _PAIRED if each in set(found["quantity"])]
    rows = []
    for name, own in found.groupby("run", sort=False):
        by_quantity = {row["quantity"]: row for _, row in own.iterrows()}
        rows.append([Cell(str(name)), *(_paired(by_quantity.get(each)) for each in quantities)])
    sure = "95 % interval" if np.isfinite(found["low"]).any() else "least to largest over the seeds"
    baseline, seeds = found["baseline"].iloc[0], int(found["seeds"].max())
    text = f"Each run compared with {baseline} seed by seed ({seeds} in pairs): the mean, and the {sure}."
    return table(["run", *(_PAIRED[each] for each in quantities)], rows, text)


def _paired(row: pd.Series | None) -> Cell:
    if row is None:
        return Cell("–", np.nan)
    sign, times = ("", " ×") if row["way"] == "ratio" else ("+", "")
    low, high = ("low", "high") if np.isfinite(row["low"]) else ("least", "largest")
    reach = f" ({row[low]:{sign}.2g} to {row[high]:{sign}.2g})" if row[low] != row[high] else ""
    return Cell(f"{row['mean']:{sign}.3g}{times}{reach}", row["mean"])


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
    summary = tables.summary
    shares = summary[["name", *columns]].astype(dict.fromkeys(columns, float)).groupby("name", sort=False).mean().dropna()
    if shares.empty:
        raise FredError("these runs have no clock: nothing takes time in them")
    used = [kind for kind in KINDS if (shares[f"workers_time_{kind}"] > 0).any()]
    legend = "".join(f'<li><i style="background:{OF_TIME[kind]}"></i>{kind.replace("_", " ")}</li>' for kind in used)
    percent = {str(name): [100 * float(own[f"workers_time_{kind}"]) for kind in used] for name, own in shares.iterrows()}
    bars = "".join(_bar(name, dict(zip(used, own, strict=True))) for name, own in list(percent.items())[:_BARS])
    rows = [[Cell(name), *(Cell(f"{part:.1f}", part) for part in own)] for name, own in percent.items()]
    headings = ["run", *(f"{kind.replace('_', ' ')}, %" for kind in used)]
    numbers = table(headings, rows, "Per cent of all workers' time, mean over the seeds.")
    return (
        f'<ul class="legend">{legend}</ul><div class="bars">{bars}</div>'
        f"<details><summary>In numbers</summary>{numbers}</details>"
    )


def _bar(name: str, percent: dict[str, float]) -> str:
    parts = []
    for kind, part in percent.items():
        said = f"{kind.replace('_', ' ')}: {part:.1f} %"
        style, word = f"width:{part:.3f}%;background:{OF_TIME[kind]}", f"{part:.0f} %" if part >= 8 else ""
        parts.append(f'<b style="{style}" class="{kind}" title="{said}">{word}</b>' if part > 0 else "")
    return f'<div class="run">{escape(name)}</div><div class="bar">{"".join(parts)}</div>'
