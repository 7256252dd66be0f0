"""The table of runs. The HTML report shows all of its columns, the terminal only some."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.outcomes.job_time import STATES
from fred.schedule.schedule import WAYS
from fred.views.table import NONE, Cell, Table

_MOST_DECIMALS = 6
_WITH_LARGEST = {"staleness_mean": "staleness_max", "model_age_mean": "model_age_max"}  # one column in the terminal


class Column(NamedTuple):
    """A column of the table of runs.

    Args:
        column: its name in the summary.
        heading: its heading.
        learned: True if it is measured on the parameters. It then has a spread, and shows `diverged` if the loss is not finite.
        printed: True if the terminal shows it.
        factor: factor that its numbers are multiplied by.
    """

    column: str
    heading: str
    learned: bool = False
    printed: bool = True
    factor: float = 1.0


COLUMNS = (
    Column("loss", "loss", learned=True),
    Column("error", "error", learned=True),
    Column("perplexity", "perplexity", learned=True),
    Column("gradient_norm", "gradient norm", learned=True),
    Column("replicas_error", "replicas' error", learned=True, printed=False),
    Column("target", "to target"),
    Column("updates", "updates"),
    Column("gradients_applied", "gradients"),
    Column("gradients_dropped", "dropped"),
    Column("virtual_seconds", "virtual s"),
    Column("throughput", "gradients per s", printed=False),
    Column("staleness_mean", "staleness, mean"),
    Column("staleness_max", "staleness, largest"),
    Column("staleness_in_gradients", "staleness, in gradients", printed=False),
    Column("model_age_mean", "model age, mean"),
    Column("model_age_max", "model age, largest"),
    Column("bytes", "sent, MB", printed=False, factor=1e-6),
    Column("target_cost", "cost to target"),
    Column("cost_total", "cost"),
    Column("cost_workers", "cost of workers", printed=False),
    Column("cost_servers", "cost of servers", printed=False),
    Column("cost_traffic", "cost of traffic", printed=False),
    Column("cost_electricity", "cost of electricity", printed=False),
    Column("target_energy_kwh", "energy to target, kWh", printed=False),
    Column("energy_kwh", "energy, kWh"),
    Column("failures_number", "failures"),
    Column("failures_seconds_between", "s between failures", printed=False),
    Column("failures_goodput", "goodput, %", factor=100.0),
    *(Column(f"failures_time_{state}", f"{state}, %", printed=False, factor=100.0) for state in STATES),
)


def summary_table(summary: pd.DataFrame, printed: bool) -> Table:
    """Return the table of runs: means over the seeds; learned quantities also have half their range.

    Args:
        summary: a row for each run and seed, as `Tables.summary`.
        printed: True for the terminal, which leaves out the less important columns and has means next to the largest.
    """
    frame = _with_bytes(summary)
    shown = [each for each in COLUMNS if (each.printed or not printed) and _there(frame, each.column)]
    rows = [[Cell(str(name)), *(cell(own, each) for each in shown)] for name, own in frame.groupby("name", sort=False)]
    seeds = frame.groupby("name").size()
    table = Table(["run", *(each.heading for each in shown)], rows, caption=_caption(frame, seeds))
    return (_with_largest(table, ["", *(each.column for each in shown)]) if printed else table).without_empty()


def _with_largest(table: Table, columns: Sequence[str]) -> Table:
    """Return the table with each mean and the largest value in one column; `columns` are its columns in the summary."""
    largest = {columns.index(mean): columns.index(other) for mean, other in _WITH_LARGEST.items() if mean in columns}
    places = [place for place in range(len(columns)) if place not in largest.values()]

    def joined(row: Sequence[Cell], place: int) -> Cell:
        if place not in largest or row[place].text == NONE:
            return row[place]
        return Cell(f"{row[place].text} / {row[largest[place]].text}", row[place].value)

    headings = [f"{table.columns[place]} / largest" if place in largest else table.columns[place] for place in places]
    return replace(table, columns=headings, rows=[[joined(row, place) for place in places] for row in table.cells])


def cell(rows: pd.DataFrame, shown: Column) -> Cell:
    """Return the cell of a run in a column.

    Args:
        rows: the rows of the run, one for each seed.
        shown: the column.
    """
    if shown.column == "target":
        return _to_target(rows)
    if shown.learned and rows["diverged"].notna().any():
        return Cell("diverged", math.nan)
    if shown.column.startswith("target_"):
        rows = rows[rows[shown.column].notna()]
    values = shown.factor * rows[shown.column].to_numpy(np.float64)
    if shown.column.endswith("_max"):
        return Cell(number(values.max()), float(values.max())) if np.isfinite(values).all() else Cell(NONE, math.nan)
    return _mean(values, shown.learned)


def number(value: float, half: float = 0.0) -> str:
    """Return a number with its spread, both rounded to the second significant digit of the spread.

    Args:
        value: the number.
        half: half the range, or another spread; 0: no spread.

    >>> number(0.123456, 0.0123), number(1234.5678, 2.5), number(0.123456), number(123456.7), number(5, 0.0)
    ('0.123 ± 0.012', '1,234.6 ± 2.5', '0.1235', '123,457', '5')
    """
    if half < 10.0**-_MOST_DECIMALS:
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    decimals = min(_MOST_DECIMALS, max(0, 1 - math.floor(math.log10(half))))
    return f"{value:,.{decimals}f} ± {half:,.{decimals}f}"


def _mean(values: NDArray[np.float64], spread: bool) -> Cell:
    if not (len(values) and np.isfinite(values).all()):
        return Cell(NONE, math.nan)
    mean = float(values.mean())
    return Cell(number(mean, float(values.max() - values.min()) / 2 if spread else 0.0), mean)


def _to_target(rows: pd.DataFrame) -> Cell:
    """Return the mean virtual time to the target (updates without a clock), and how many seeds reached it if not all did."""
    if "target_updates" not in rows:
        return Cell(NONE, math.nan)
    reached = rows[rows["target_updates"].notna()]
    if reached.empty:
        return Cell("never", math.inf)
    clocked = reached["target_seconds"].notna().all()
    mean = float(reached["target_seconds" if clocked else "target_updates"].mean())
    text = f"{number(mean)} {'s' if clocked else 'updates'}"
    return Cell(text if len(reached) == len(rows) else f"{text} ({len(reached)} of {len(rows)})", mean)


def _there(frame: pd.DataFrame, column: str) -> bool:
    """Return True if the column has something to show."""
    if column.startswith("cost_"):
        return column in frame and bool(frame[column].astype(float).fillna(0.0).any())
    return "target_updates" in frame if column == "target" else column in frame and bool(frame[column].notna().any())


def _with_bytes(summary: pd.DataFrame) -> pd.DataFrame:
    """Return the summary with a column for the total traffic, `bytes`, if anything was sent."""
    total = summary[[f"bytes_{way}" for way in WAYS]].astype(float).sum(axis=1)
    return summary.assign(bytes=total) if (total > 0).any() else summary


def _caption(frame: pd.DataFrame, seeds: "pd.Series[int]") -> str:
    """Return the caption, which explains the numbers."""
    many = f"{seeds.min()} to {seeds.max()}" if seeds.min() < seeds.max() else f"{seeds.max()}"
    text = f"Means over {many} seeds, ± half the range." if seeds.max() > 1 else "One seed."
    if len({tuple(own) for _, own in frame.groupby("name", sort=False)["seed"]}) > 1:
        text += " Do not compare runs with different seeds."
    aged = " Model age is in iterations." if _there(frame, "model_age_max") else ""
    return f"{text} Staleness is in updates.{aged}"


def marked(table: Table, column: str, cells: Mapping[str, str]) -> Table:
    """Return the table with another column, after the names of the runs.

    Args:
        table: a table of runs.
        column: heading of the new column.
        cells: its cells by the name of the run; other runs get a dash.
    """
    rows = [[row[0], Cell(cells.get(row[0].text, NONE)), *row[1:]] for row in table.cells]
    return Table([table.columns[0], column, *table.columns[1:]], rows, table.title, table.caption).without_empty()
