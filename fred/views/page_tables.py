"""The sortable tables of the HTML report."""

import re
from dataclasses import replace
from html import escape

import numpy as np
from pandas.api.types import is_numeric_dtype

from fred.base.errors import FredError
from fred.outcomes.comparisons import compared
from fred.outcomes.tables import Tables, keys_of, setting, value_texts
from fred.schedule.spans import KINDS
from fred.views.paired_table import paired_table
from fred.views.summary_table import summary_table
from fred.views.table import NONE, Cell, Table
from fred.views.view import OF_TIME

_MOST, _BARS = 200, 60  # largest numbers of rows in a table, and of bars in a figure


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
    body = "".join(f"<tr>{''.join(_cell(cell, not i) for i, cell in enumerate(row))}</tr>" for row in cells[:_MOST])
    left = f" The first {_MOST} of {len(cells):,} rows." if len(cells) > _MOST else ""
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="table"><table class="sorts"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div><p class='note'>{marked_up(table.caption + left)}</p>"
    )


def _cell(cell: Cell, first: bool) -> str:
    number = "" if cell.value is None else f' data-value="{cell.value:.9g}"' if np.isfinite(cell.value) else ' data-value=""'
    text = marked_up(cell.text)
    return f'<th scope="row">{text.replace(",", ",<wbr>")}</th>' if first else f"<td{number}>{text}</td>"


def of_runs(tables: Tables) -> str:
    """Return a table with a row for each run: means over the seeds, and half their range.

    Args:
        tables: the tables of the runs; every point of a sweep has a row.
    """
    return html(summary_table(tables.summary, printed=False))


def by_seed(tables: Tables) -> str:
    """Return a table with a row for each run and seed."""
    summary = tables.summary
    table = summary_table(summary.assign(name=range(len(summary))), printed=False)
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
        cells = {row["run"]: _of_point(row["mean"], row["point"] in best) for _, row in rows_of_values.iterrows()}
        rows.append([*map(Cell, value_texts(values)), *(cells.get(name, Cell("")) for name in runs)])
    return Table([*map(setting, keys), *runs], rows, f"sweep: {criterion.words} (* best)", words=len(keys))


def _of_point(mean: float, best: bool) -> Cell:
    return Cell(f"{'*' if best else ''}{mean:.4g}" if np.isfinite(mean) else NONE, strong=best)


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
    bars = "".join(_bar(name, dict(zip(used, parts, strict=True))) for name, parts in list(percent.items())[:_BARS])
    rows = [[Cell(name), *(Cell(f"{part:.1f}", part) for part in parts)] for name, parts in percent.items()]
    headings = ["run", *(f"{kind.replace('_', ' ')}, %" for kind in used)]
    numbers = html(Table(headings, rows, caption="Per cent of all workers' time, mean over the seeds."))
    return (
        f'<ul class="legend">{legend}</ul><div class="bars">{bars}</div>'
        f"<details><summary>In numbers</summary>{numbers}</details>"
    )


def _bar(name: str, percent: dict[str, float]) -> str:
    parts = []
    for kind, part in percent.items():
        tip = f"{kind.replace('_', ' ')}: {part:.1f} %"
        style, word = f"width:{part:.3f}%;background:{OF_TIME[kind]}", f"{part:.0f} %" if part >= 8 else ""
        parts.append(f'<b style="{style}" class="{kind}" title="{tip}">{word}</b>' if part > 0 else "")
    return f'<div class="run">{escape(name)}</div><div class="bar">{"".join(parts)}</div>'
