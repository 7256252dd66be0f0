"""Results in a notebook: verdict, table and first figure of a result, its report in a frame, and the losses of runs under way.

The losses under way are drawn as SVG, in a millisecond: matplotlib takes a third of a second to load and a tenth to draw.
"""

import itertools
import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.base import progress
from fred.outcomes.tables import Tables
from fred.views import page_data, page_tables
from fred.views.page import part
from fred.views.page_tables import number, paired_table, summary_table
from fred.views.table import NONE, Table
from fred.views.verdict import answer
from fred.views.view import SCREEN, Look, lines

if TYPE_CHECKING:
    from fred.views.figures import Picture

_HEIGHT = 720  # px of the frame
_MOST_NOTES = 8
_STYLE = """<style>
.fred { max-width: 60rem; color: inherit; font-size: 14px; line-height: 1.45; }
.fred .answer { border-left: 4px solid #0072b2; padding: .2rem .8rem; margin: .3rem 0 .6rem; font-size: 1.1em; }
.fred .note { opacity: .75; font-size: .9em; margin: .3rem 0; }
.fred .wide { overflow-x: auto; }
.fred table.sorts { border-collapse: collapse; font-variant-numeric: tabular-nums; background: none; }
.fred .sorts th, .fred .sorts td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid #8884; background: none; }
.fred .sorts td { white-space: nowrap; }
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
_WIDTH, _CURVE_HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 420, 180, 46, 330, 10, 36  # px: the panel, and its margins
_ROW = 17  # px of a line of text
_MOST_LETTERS = 24  # of a name
_MOST_POINTS = 300  # largest number of points of a line
_LARGE_RATIO = 6  # an axis is logarithmic if the largest value is more than 6 times the smallest
_CLOSE_RATIO = 1.5  # an axis begins at the smallest value if the largest is less than 1.5 times that
_DECADES = 3.0  # from this span on, only powers of ten get a tick
_TICKS = 4
_DASHES = {"-": "", "--": "6 3", ":": "2 2", "-.": "6 3 2 3"}
_CURVE_STYLE = "max-width: 100%; font: 12px sans-serif; fill: currentColor"
_INTERVAL = 0.5  # least number of seconds between two drawings
_RUNS = 10  # number of runs shown: the last ones


def result_html(tables: Tables, notes: Sequence[str]) -> str:
    """Return a result as HTML for a notebook: the report's verdict, its table of runs, and the first figure.

    Args:
        tables: the runs; of a sweep, the best points are shown.
        notes: sentences that a reader must know.
    """
    reported = tables.with_its_best() if tables.reported_outcomes else tables
    remainder = f"... and {len(notes) - _MOST_NOTES} more in `.notes`" if len(notes) > _MOST_NOTES else ""
    lines = [escape(line) for line in (*notes[:_MOST_NOTES], remainder) if line]
    parts = (
        f"<p class='answer'>{part(lambda: escape(answer(tables)))}</p>",
        "".join(f"<p class='note'>{line}</p>" for line in lines),
        part(lambda: page_tables.html(summary_table(reported.summary, printed=True), sorts=False)),
        part(lambda: _first_figure(reported)),
    )
    return f"{_STYLE}<div class='fred'>{''.join(parts)}</div>"


def _first_figure(tables: Tables) -> str:
    from fred.views import pictures  # loads matplotlib

    draw = next(iter(pictures.drawable(tables, SCREEN).values()), None)
    return _figure(draw()) if draw else ""


def _figure(picture: "Picture") -> str:
    """Return a figure without a background, in colours that can be read on a light and on a dark one."""
    return f"<div class='figure'>{_COLOUR.sub(lambda colour: _THEMED[colour[0]], picture._repr_svg_())}</div>"


def timing_html(tables: Tables) -> str:
    """Return the timing of runs as HTML for a notebook: their speed as a table, a timeline, and histograms of staleness.

    Args:
        tables: the runs, with one seed.
    """
    from fred.views import pictures  # loads matplotlib

    table = page_tables.html(summary_table(tables.summary, printed=False), sorts=False)
    clocked = any(outcome.has_clock for outcome in tables.outcomes)
    timeline = _figure(pictures.timeline_of(tables)) if clocked else ""
    note = f"<p class='note'>Timing without training, seed {tables.outcomes[0].seed}.</p>"
    return f"{_STYLE}<div class='fred'>{note}{table}{timeline}{page_data.of_gradients(tables)}</div>"


def comparison_html(table: pd.DataFrame, pairs: pd.DataFrame | None, lines: Sequence[str]) -> str:
    """Return a comparison of results as HTML for a notebook.

    Args:
        table: a row for each run and result.
        pairs: paired differences; None: there are none.
        lines: sentences about settings and bits.
    """
    cells = [[number(cell) if isinstance(cell, float) else str(cell) for cell in row] for row in table.to_numpy().tolist()]
    rows = [[NONE if cell == "nan" else cell for cell in row] for row in cells]
    contents = [Table([str(column).replace("_", " ") for column in table], rows)]
    contents += [paired_table(pairs)] if pairs is not None else []
    tables = "".join(part(partial(page_tables.html, content, sorts=False)) for content in contents)
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


class SeedLosses(NamedTuple):
    """The losses of a run with one seed, and their look.

    Args:
        seed: the seed.
        losses: the loss at each evaluation so far; at least one.
        look: colour and dashes.
    """

    seed: int
    losses: Sequence[float]
    look: Look


class LossFigure(NamedTuple):
    """A figure of losses against the number of the evaluation, which notebooks show as SVG.

    Args:
        runs: the losses by the name of the run; at least one.

    >>> figure = LossFigure({"asgd": SeedLosses(1, [2.0, 1.0], ("#0072B2", "-"))})
    >>> figure, figure._repr_html_().count("<polyline")
    (<losses of asgd>, 1)
    """

    runs: Mapping[str, SeedLosses]

    def __repr__(self) -> str:
        return f"<losses of {', '.join(self.runs)}>"

    def _repr_html_(self) -> str:
        axis = _Axis.fitting(np.concatenate([np.array(run.losses, np.float64) for run in self.runs.values()]))
        last = max(1, *(len(run.losses) - 1 for run in self.runs.values()))
        parts = [*_grid(axis), *_evaluations(last)]
        prefix = _common_prefix(list(self.runs))
        for row, (name, run) in enumerate(self.runs.items()):
            parts += [_line(run, axis, last), _label(name[prefix:], run, _TOP + _ROW * row)]
        size = _LEFT + _WIDTH + _RIGHT, max(_TOP + _CURVE_HEIGHT + _BOTTOM, _TOP + _ROW * len(self.runs))
        return f'<svg width="{size[0]}" height="{size[1]}" style="{_CURVE_STYLE}">{"".join(parts)}</svg>'


def _common_prefix(names: Sequence[str]) -> int:
    """Return the number of letters of the run's name, with its comma, if all are points of one sweep.

    >>> _common_prefix(["asgd,rate=0.1", "asgd,rate=0.3"]), _common_prefix(["asgd,rate=0.1", "ssgd,rate=0.1"])
    (5, 0)
    """
    swept = {name.partition(",")[0] for name in names if "," in name}
    return len(swept.pop()) + 1 if len(names) > 1 and len(swept) == 1 and all("," in name for name in names) else 0


class _Axis(NamedTuple):
    """The vertical axis: its ends, in logarithms if it is logarithmic."""

    low: float
    high: float
    logarithmic: bool

    @classmethod
    def fitting(cls, values: NDArray[np.float64]) -> "_Axis":
        """Return an axis for these values: from 0 on, from the least if all are large, or logarithmic if some are small."""
        finite = values[np.isfinite(values)]
        if not len(finite):
            return cls(0.0, 1.0, False)
        low, high = float(finite.min()), float(finite.max())
        if 0 < low < high / _LARGE_RATIO:
            return cls(math.log10(low), math.log10(high), True)
        if 0 < high / _CLOSE_RATIO < low < high:
            return cls(low, high, False)
        return cls(min(0.0, low), high if high > min(0.0, low) else 1.0, False)

    def height(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the vertical places of values, px from the top."""
        places = np.log10(values) if self.logarithmic else values
        return _TOP + _CURVE_HEIGHT * (self.high - places) / (self.high - self.low)

    @property
    def ticks(self) -> NDArray[np.float64]:
        """Return round numbers on the axis."""
        span = self.high - self.low
        if self.logarithmic:
            powers = 10.0 ** np.arange(math.floor(self.low), math.ceil(self.high) + 1)
            ticks = np.outer(powers, (1, 2, 5) if span < _DECADES else (1,)).ravel()
            return ticks[(np.log10(ticks) >= self.low) & (np.log10(ticks) <= self.high)]
        least_step = span / _TICKS
        power = 10.0 ** math.floor(math.log10(least_step))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least_step)
        ticks = np.arange(math.ceil(self.low / step), math.floor(self.high / step) + 1)
        return step * ticks.astype(np.float64)


def _grid(axis: _Axis) -> list[str]:
    """Return a line and a number for each tick."""
    return [
        f'<path d="M{_LEFT} {y:.1f}h{_WIDTH}" stroke="#8884"/>'
        f'<text x="{_LEFT - 5}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>'
        for tick, y in zip(axis.ticks.tolist(), axis.height(axis.ticks).tolist(), strict=True)
    ]


def _evaluations(last: int) -> list[str]:
    """Return the horizontal axis: its ends and its label."""
    y, right = _TOP + _CURVE_HEIGHT, _LEFT + _WIDTH
    return [
        f'<path d="M{_LEFT} {y}h{_WIDTH}" stroke="currentColor"/>',
        f'<text x="{_LEFT}" y="{y + 15}" text-anchor="middle">0</text>',
        f'<text x="{right}" y="{y + 15}" text-anchor="middle">{last:,}</text>',
        f'<text x="{(_LEFT + right) / 2}" y="{y + 15}" text-anchor="middle">loss at each evaluation</text>',
    ]


def _line(run: SeedLosses, axis: _Axis, last: int) -> str:
    """Return the line of a run through its finite losses, at most three hundred of them."""
    evaluations = np.unique(np.linspace(0, len(run.losses) - 1, _MOST_POINTS).astype(int))
    losses = np.array(run.losses, np.float64)[evaluations]
    finite = np.isfinite(losses)
    places, heights = _LEFT + _WIDTH * evaluations[finite] / last, axis.height(losses[finite])
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(places.tolist(), heights.tolist(), strict=True))
    return f'<polyline points="{points}" fill="none" {_stroke(run)}/>'


def _label(name: str, run: SeedLosses, y: int) -> str:
    """Return the name of a run, its seed and its last loss, at the right of the panel."""
    x, half = _LEFT + _WIDTH + 14, (_MOST_LETTERS - 1) // 2  # a cut name keeps its end, in which names mostly differ
    short = name if len(name) <= _MOST_LETTERS else f"{name[:half]}…{name[half + 1 - _MOST_LETTERS :]}"
    words = escape(f"{short}, seed {run.seed}: {run.losses[-1]:.3g}")
    return f'<path d="M{x} {y}h16" {_stroke(run)}/><text x="{x + 22}" y="{y + 4}">{words}</text>'


def _stroke(run: SeedLosses) -> str:
    colour, dashes = run.look
    return f'stroke="{colour}" stroke-width="1.6" stroke-dasharray="{_DASHES[dashes]}"'


@contextmanager
def live_losses(runs: Iterable[str]) -> Iterator[None]:
    """Show the losses of runs in a notebook while a `with` block computes them, and remove the figure at its end.

    Nothing is shown in the first two seconds. If the block raises an exception, the figure stays.

    Args:
        runs: the names of all runs, in the order of their colours.
    """
    figure = _LiveFigure(runs)
    with progress.watched(figure.note):
        yield
    figure.remove()


class _LiveFigure:
    """The figure in the notebook, and the time from which it may be drawn again."""

    def __init__(self, runs: Iterable[str]):
        self._looks = dict(zip(runs, itertools.cycle(lines()), strict=False))
        self._latest: dict[str, tuple[int, progress.Measured]] = {}  # by run; the one under way is the last
        self._next = time.monotonic() + progress.PATIENCE  # s, time of the next drawing at the earliest
        self._handle: Any = None

    def note(self, run: str, seed: int, measured: progress.Measured) -> None:
        """Record the measurements of a run so far, and draw if it is time."""
        self._latest.pop(run, None)
        self._latest[run] = seed, measured
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _INTERVAL
        recent = list(self._latest)[-_RUNS:]
        self._show(LossFigure({name: self._losses_of(name) for name in self._looks if name in recent}))

    def _losses_of(self, run: str) -> SeedLosses:
        seed, measured = self._latest[run]
        return SeedLosses(seed, [point["loss"] for point in measured], self._looks[run])

    def _show(self, content: Any) -> None:
        from IPython.display import display

        if self._handle is None:
            self._handle = display(content, display_id=True)
        else:
            self._handle.update(content)

    def remove(self) -> None:
        """Replace the figure by nothing, if there is one."""
        from IPython.display import HTML

        if self._handle is not None:
            self._handle.update(HTML(""))
