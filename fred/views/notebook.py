"""Results in a notebook: the verdict, notes, table and curves of the report, and the report itself in a frame."""

import re
from collections.abc import Sequence
from functools import partial
from html import escape
from typing import NamedTuple

import pandas as pd

from fred.outcomes.tables import Tables
from fred.views import page_staleness, page_tables, pictures
from fred.views.figures import Picture
from fred.views.page import part
from fred.views.paired_table import paired_table
from fred.views.summary_table import number, summary_table
from fred.views.table import NONE, Table
from fred.views.verdict import answer
from fred.views.view import SCREEN

_HEIGHT = 720  # px of the frame
_MOST_NOTES = 8
_STYLE = """<style>
.fred { max-width: 60rem; color: inherit; font-size: 14px; line-height: 1.45; }
.fred .answer { border-left: 4px solid #0072b2; padding: .2rem .8rem; margin: .3rem 0 .6rem; font-size: 1.1em; }
.fred .note { opacity: .75; font-size: .9em; margin: .3rem 0; }
.fred .wide { overflow-x: auto; }
.fred table.sorts { border-collapse: collapse; font-variant-numeric: tabular-nums; background: none; }
.fred .sorts th, .fred .sorts td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid #8884; background: none; }
.fred .sorts th:first-child { text-align: left; }
.fred .histograms { display: flex; flex-wrap: wrap; gap: .5rem 1.5rem; }
.fred figure { margin: 0; }
.fred svg.histogram { width: 22rem; display: block; fill: currentColor; font-size: 12px; }
.fred .histogram .axis { stroke: currentColor; }
.fred .histogram .grid { stroke: #8884; }
.fred .figure svg { max-width: 100%; height: auto; fill: currentColor; }
</style>"""
_THEMED = {  # colours of figures -> colours that can be read on the notebook's background, light or dark
    "#ffffff": "none",
    "#000000": "currentColor",
    "#222222": "currentColor",
    "#e6e6e6": "#8884",
    "#5b5b5b": "#808080",
    **{dark: f"color-mix(in srgb, {dark} 65%, currentColor)" for dark in ("#7f3c8d", "#8c2d04")},
}
_COLOUR = re.compile(rf"(?<=(?:fill|roke): )(?:{'|'.join(_THEMED)})")  # after `fill: ` or `stroke: `


def result_html(tables: Tables, notes: Sequence[str]) -> str:
    """Return a result as HTML for a notebook: the report's verdict, its table of runs, and the first figure.

    Args:
        tables: the runs; of a sweep, the best points are shown.
        notes: sentences that a reader must know.
    """
    reported = tables.with_its_best() if tables.chosen else tables
    left = f"... and {len(notes) - _MOST_NOTES} more in `.notes`" if len(notes) > _MOST_NOTES else ""
    lines = [escape(line) for line in (*notes[:_MOST_NOTES], left) if line]
    parts = (
        f"<p class='answer'>{part(lambda: escape(answer(tables)))}</p>",
        "".join(f"<p class='note'>{line}</p>" for line in lines),
        part(lambda: page_tables.html(summary_table(reported.summary, printed=True), sorts=False)),
        part(lambda: _first_figure(reported)),
    )
    return f"{_STYLE}<div class='fred'>{''.join(parts)}</div>"


def _first_figure(tables: Tables) -> str:
    draw = next(iter(pictures.drawable(tables, SCREEN).values()), None)
    return _figure(draw()) if draw else ""


def _figure(picture: Picture) -> str:
    """Return a figure without a background, in colours that can be read on a light and on a dark one."""
    return f"<div class='figure'>{_COLOUR.sub(lambda colour: _THEMED[colour[0]], picture._repr_svg_())}</div>"


def timing_html(tables: Tables) -> str:
    """Return the timing of runs as HTML for a notebook: their speed as a table, a timeline, and histograms of staleness.

    Args:
        tables: the runs, with one seed.
    """
    table = page_tables.html(summary_table(tables.summary, printed=False), sorts=False)
    clocked = any(outcome.has_clock for outcome in tables.outcomes)
    timeline = _figure(pictures.timeline_of(tables)) if clocked else ""
    note = f"<p class='note'>Timing without training, seed {tables.outcomes[0].seed}.</p>"
    return f"{_STYLE}<div class='fred'>{note}{table}{timeline}{page_staleness.of_gradients(tables)}</div>"


def comparison_html(table: pd.DataFrame, pairs: pd.DataFrame | None, lines: Sequence[str]) -> str:
    """Return a comparison of results as HTML for a notebook.

    Args:
        table: a row for each run and result.
        pairs: paired differences; None: there are none.
        lines: sentences about settings and bits.
    """
    cells = [[number(cell) if isinstance(cell, float) else str(cell) for cell in row] for row in table.to_numpy().tolist()]
    rows = [[NONE if cell == "nan" else cell for cell in row] for row in cells]
    shown = [Table([str(column).replace("_", " ") for column in table], rows)]
    shown += [paired_table(pairs)] if pairs is not None else []
    tables = "".join(part(partial(page_tables.html, one, sorts=False)) for one in shown)
    return f"{_STYLE}<div class='fred'>{tables}{''.join(f'<p>{escape(line)}</p>' for line in lines)}</div>"


class Inline(NamedTuple):
    """A page that a notebook shows in a frame.

    Args:
        page: the whole HTML document.
    """

    page: str

    def _repr_html_(self) -> str:
        return (
            f'<iframe sandbox="allow-scripts" style="width: 100%; height: {_HEIGHT}px; border: 1px solid #8884" '
            f'srcdoc="{escape(self.page, quote=True)}"></iframe>'
        )

    def __repr__(self) -> str:
        return f"<a page of {len(self.page) // 1000:,} kB, which a notebook shows>"
