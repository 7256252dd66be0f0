"""The table of runs. The HTML report shows all of its columns, the terminal only some."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.schedule.schedule import WAYS
from fred.specification.summary import TABLE_COLUMNS, TASK
from fred.views.table import NONE, Cell, Table

_MOST_DECIMALS = 6
_WITH_LARGEST = {"staleness_mean": "staleness_max", "model_age_mean": "model_age_max"}  # one column in the terminal


def summary_table(summary: pd.DataFrame, printed: bool) -> Table:
    """Return the table of runs: means over the seeds; learned quantities also have half their range.

    Args:
        summary: a row for each run and seed, as `Tables.summary`.
        printed: True for the terminal, which leaves out the less important columns and has means next to the largest.
    """
    frame = _with_bytes(summary)
    shown = {
        name: column for name, column in TABLE_COLUMNS.items() if (column.printed or not printed) and _has_values(frame, name)
    }
    rows = [[Cell(str(run)), *(cell(seeds, name) for name in shown)] for run, seeds in frame.groupby("name", sort=False)]
    headings = [column.heading for column in shown.values()]
    table = Table(["run", *headings], rows, caption=_caption(frame, frame.groupby("name").size()))
    return (_with_largest(table, ["", *shown]) if printed else table).without_empty()


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


def cell(rows: pd.DataFrame, name: str) -> Cell:
    """Return the cell of a run in a column. Learned measures have a spread, and show `diverged` if the loss is not finite.

    Args:
        rows: the rows of the run, one for each seed.
        name: name of the column in the summary.
    """
    if name == "target":
        return _to_target(rows)
    column = TABLE_COLUMNS[name]
    is_learned = TASK in column.needs
    if is_learned and rows["diverged"].notna().any():
        return Cell("diverged", math.nan)
    if name.startswith("target_"):
        rows = rows[rows[name].notna()]
    values = column.factor * rows[name].to_numpy(np.float64)
    if name.endswith("_max"):
        return Cell(number(values.max()), float(values.max())) if np.isfinite(values).all() else Cell(NONE, math.nan)
    return _mean(values, is_learned)


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


def _has_values(frame: pd.DataFrame, column: str) -> bool:
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
    aged = " Model age is in iterations." if _has_values(frame, "model_age_max") else ""
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
