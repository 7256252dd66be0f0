"""Tables of results: of runs, of paired differences, and the sortable tables of the HTML report."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype

from fred.base.errors import FredError
from fred.base.intervals import FEWEST_SEEDS
from fred.outcomes.comparisons import QUANTITIES, compared
from fred.outcomes.tables import Tables, keys_of, setting, value_texts
from fred.schedule.schedule import WAYS
from fred.schedule.spans import KINDS
from fred.specification.summary import TABLE_COLUMNS, TASK
from fred.views.table import NONE, Cell, Table
from fred.views.view import OF_TIME

ONE_SEED = (
    "runs with one seed: their differences say nothing about other seeds "
    f"(with {FEWEST_SEEDS} `seeds` or more there are intervals)"
)
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
    return Table(["run", *(QUANTITIES[quantity].heading for quantity in quantities)], rows, title, _paired_caption(pairs))


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
    if pair["least"] == pair["largest"] == (1 if pair["way"] == "ratio" else 0):
        return "equal"
    low, high = (pair["low"], pair["high"]) if math.isfinite(pair["low"]) else (pair["least"], pair["largest"])
    has_range = high - low > _ROUNDING * abs(pair["mean"])
    # two significant digits of the range
    decimals = min(_MOST_DECIMALS, max(0, 1 - math.floor(math.log10(high - low)))) if has_range else 3
    form, sign = (f".{decimals}f", "× ") if pair["way"] == "ratio" else (f"+.{decimals}f", "")
    spread = f" ({low:{form}} to {high:{form}})" if has_range else ""
    missing = f", {pair['seeds']} of {pair['seeds'] + pair['missing']} seeds" if pair["missing"] else ""
    return f"{sign}{pair['mean']:{form}}{spread}{missing}"


def _paired_caption(pairs: pd.DataFrame) -> str:
    """Return the caption: the content of the brackets, and the reason for dashes."""
    seeds = pairs["seeds"] + pairs["missing"]
    most_seeds, has_few_seeds = seeds.max(), (pairs["seeds"] < FEWEST_SEEDS) & (pairs["seeds"] > 0)
    family = f", widened for {runs} comparisons in a column" if (runs := pairs["run"].nunique()) > 1 else ""
    exception = f"; fewer than {FEWEST_SEEDS}: range" if has_few_seeds.any() else ""
    interval = f"95 % interval over {most_seeds} seeds{family}{exception}"
    brackets = f"range of {most_seeds} seeds, too few for an interval" if most_seeds < FEWEST_SEEDS else interval
    missed = pairs["quantity"].isin(["to_target", "cost_to_target"]) & (pairs["seeds"] == 0)
    return f"In brackets: {brackets}" + (f"; {NONE}: one of the two runs missed the target" if missed.any() else "")


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
    largest_of = {columns.index(mean): columns.index(largest) for mean, largest in _WITH_LARGEST.items() if mean in columns}
    remaining = [i for i in range(len(columns)) if i not in largest_of.values()]

    def join(row: Sequence[Cell], i: int) -> Cell:
        if i not in largest_of or row[i].text == NONE:
            return row[i]
        return Cell(f"{row[i].text} / {row[largest_of[i]].text}", row[i].value)

    headings = [f"{table.columns[i]} / largest" if i in largest_of else table.columns[i] for i in remaining]
    return replace(table, columns=headings, rows=[[join(row, i) for i in remaining] for row in table.cells])


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
    if column.startswith("cost_"):  # without prices for them, machines or traffic cost 0
        return column in frame and bool(frame[column].astype(float).fillna(0.0).any())
    if column == "target":  # `_to_target` makes its cells from other columns
        return "target_updates" in frame
    return column in frame and bool(frame[column].notna().any())


def _with_bytes(summary: pd.DataFrame) -> pd.DataFrame:
    """Return the summary with a column for the total traffic, `bytes`, if anything was sent."""
    total = summary[[f"bytes_{way}" for way in WAYS]].astype(float).sum(axis=1)
    return summary.assign(bytes=total) if (total > 0).any() else summary


def _caption(frame: pd.DataFrame, seeds: "pd.Series[int]") -> str:
    """Return the caption, which explains the numbers."""
    many = f"{seeds.min()} to {seeds.max()}" if seeds.min() < seeds.max() else f"{seeds.max()}"
    text = f"Means over {many} seeds, ± half the range." if seeds.max() > 1 else "One seed."
    if len({tuple(run_seeds) for _, run_seeds in frame.groupby("name", sort=False)["seed"]}) > 1:
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


_MOST_ROWS, _MOST_BARS = 200, 60  # largest numbers of rows in a table, and of bars in a figure


def marked_up(text: str) -> str:
    """Return text as HTML, with the words between backticks as code.

    Args:
        text: any text.

    >>> marked_up("`fred show` < 2")
    '<code>fred show</code> &lt; 2'
    """
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def html(table: Table, sorts: bool = True) -> str:
    """Return a table as HTML.

    Args:
        table: the table; its title is not shown.
        sorts: True if the page's script sorts the table on a click on a heading.
    """
    cells = table.cells
    heading = '<th scope="col"><button type="button">{}</button></th>' if sorts else '<th scope="col">{}</th>'
    head = "".join(heading.format(escape(cell)) for cell in table.columns)
    body = "".join(
        f"<tr>{''.join(_cell(cell, is_heading=i == 0) for i, cell in enumerate(row))}</tr>" for row in cells[:_MOST_ROWS]
    )
    omission = f" The first {_MOST_ROWS} of {len(cells):,} rows." if len(cells) > _MOST_ROWS else ""
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="table"><table class="sorts"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div><p class='note'>{marked_up(table.caption + omission)}</p>"
    )


def _cell(cell: Cell, is_heading: bool) -> str:
    """Return a cell as HTML; the script sorts by its number, and the headings of rows break at commas."""
    number = "" if cell.value is None else f' data-value="{cell.value:.9g}"' if np.isfinite(cell.value) else ' data-value=""'
    text = marked_up(cell.text)
    return f'<th scope="row">{text.replace(",", ",<wbr>")}</th>' if is_heading else f"<td{number}>{text}</td>"


def of_runs(tables: Tables) -> str:
    """Return a table with a row for each run: means over the seeds, and half their range.

    Args:
        tables: the tables of the runs; every point of a sweep has a row.
    """
    return html(summary_table(tables.summary, printed=False))


def by_seed(tables: Tables) -> str:
    """Return a table with a row for each run and seed."""
    summary = tables.summary
    table = summary_table(summary.assign(name=range(len(summary))), printed=False)  # as if each seed were a run
    rows = [
        [Cell(name), Cell(str(seed), seed), *row[1:]]
        for name, seed, row in zip(summary["name"], summary["seed"], table.cells, strict=True)
    ]
    return html(Table(["run", "seed", *table.columns[1:]], rows, caption=f"{len(rows):,} runs with a seed each."))


def pairs(tables: Tables) -> str:
    """Return a table that compares each run with the baseline over the seeds; empty if there is only one run.

    Raises FredError if no point of a sweep is the best.
    """
    comparison = compared(tables)
    comparison = comparison[comparison["seeds"] > 0]
    if comparison.empty:
        return ""
    table = paired_table(comparison)
    title = f"{table.title[:1].upper()}{table.title[1:]}"
    return f"<h3>{escape(title)}</h3>{html(replace(table, caption=f'{table.caption}.'))}"


def of_sweep(tables: Tables) -> str:
    """Return a table with a row for each point of a sweep; the best points are marked."""
    points, best, criterion = tables.sweep, set(tables.best["point"]), tables.scenario.criterion
    keys = keys_of(points)
    rows = []
    for _, row in points.iterrows():
        values = [
            Cell(text, float(row[key]) if isinstance(row[key], int | float) else None)
            for key, text in zip(keys, value_texts(row[keys]), strict=True)
        ]
        numbers = [
            Cell(f"{row[statistic]:.4g}" if np.isfinite(row[statistic]) else NONE, float(row[statistic]))
            for statistic in ("mean", "least", "largest")
        ]
        rows.append([Cell(str(row["run"])), *values, *numbers, Cell("best" if row["point"] in best else "")])
    headings = ["run", *map(setting, keys), "mean", "least", "largest", "best"]
    caption = f"{criterion.words} over the seeds; the {criterion.way} mean is the best."
    return html(Table(headings, rows, caption=caption))


def sweep_table(tables: Tables) -> Table:
    """Return a table with a row for each combination of values and a column for each run.

    The best points are bold and have a star. Rows are in the order of their values if all of these are numbers.

    Args:
        tables: the tables of the points.
    """
    points, best, criterion = tables.sweep, set(tables.best["point"]), tables.scenario.criterion
    keys, runs = keys_of(points), list(dict.fromkeys(points["run"]))
    ordered = all(is_numeric_dtype(points[key]) for key in keys)
    rows = []
    for values, rows_of_values in points.groupby(keys, sort=ordered, dropna=False):
        cells = {row["run"]: _criterion_cell(row["mean"], row["point"] in best) for _, row in rows_of_values.iterrows()}
        rows.append([*map(Cell, value_texts(values)), *(cells.get(name, Cell("")) for name in runs)])
    return Table([*map(setting, keys), *runs], rows, f"sweep: {criterion.words} (* best)", words=len(keys))


def _criterion_cell(mean: float, is_best: bool) -> Cell:
    """Return the cell of a point with the mean of its criterion."""
    return Cell(f"{'*' if is_best else ''}{mean:.4g}" if np.isfinite(mean) else NONE, strong=is_best)


def workers_time(tables: Tables) -> str:
    """Return one bar for each run with a clock that shows the shares of all workers' time, and a table of the shares.

    Raises FredError if no run has a clock.
    """
    columns = [f"workers_time_{kind}" for kind in KINDS]
    summary = tables.summary
    shares = summary[["name", *columns]].astype(dict.fromkeys(columns, float)).groupby("name", sort=False).mean().dropna()
    if shares.empty:
        raise FredError("these runs have no clock: nothing takes time in them")
    used = [kind for kind in KINDS if (shares[f"workers_time_{kind}"] > 0).any()]
    legend = "".join(f'<li><i style="background:{OF_TIME[kind]}"></i>{kind.replace("_", " ")}</li>' for kind in used)
    percent = {str(name): [100 * float(parts[f"workers_time_{kind}"]) for kind in used] for name, parts in shares.iterrows()}
    bars = "".join(_bar(name, dict(zip(used, parts, strict=True))) for name, parts in list(percent.items())[:_MOST_BARS])
    rows = [[Cell(name), *(Cell(f"{part:.1f}", part) for part in parts)] for name, parts in percent.items()]
    headings = ["run", *(f"{kind.replace('_', ' ')}, %" for kind in used)]
    numbers = html(Table(headings, rows, caption="Per cent of all workers' time, mean over the seeds."))
    return (
        f'<ul class="legend">{legend}</ul><div class="bars">{bars}</div>'
        f"<details><summary>In numbers</summary>{numbers}</details>"
    )


def _bar(name: str, percent: dict[str, float]) -> str:
    """Return a run's name and its bar of one part for each kind of time; parts below 8 % have no room for their number."""
    parts = []
    for kind, part in percent.items():
        tip = f"{kind.replace('_', ' ')}: {part:.1f} %"
        style, word = f"width:{part:.3f}%;background:{OF_TIME[kind]}", f"{part:.0f} %" if part >= 8 else ""
        parts.append(f'<b style="{style}" class="{kind}" title="{tip}">{word}</b>' if part > 0 else "")
    return f'<div class="run">{escape(name)}</div><div class="bar">{"".join(parts)}</div>'
