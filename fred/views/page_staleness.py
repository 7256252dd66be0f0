"""The histograms of staleness in the HTML report, as SVG."""

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape

import numpy as np

from fred.base.words import briefly
from fred.outcomes.shared_timings import staleness_counts
from fred.outcomes.tables import Tables
from fred.schedule.schedule import Ints
from fred.views.histograms import Histogram, histograms
from fred.views.view import COLOURS

_MOST = 12  # largest number of histograms
_NAMES = 3  # largest number of runs that are named together
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 360, 140, 46, 6, 8, 38  # units of the drawing
_TICKS = 4


def of_gradients(tables: Tables) -> str:
    """Return a histogram for each timing with stale gradients, all seeds together. Other runs are only named.

    Args:
        tables: the tables of the runs; of a sweep, only the best points are drawn.
    """
    tables = tables.with_its_best()
    runs = list(dict.fromkeys(each.name for each in tables.outcomes))
    counts = staleness_counts(tables.outcomes)
    stale = {names: own for names, own in counts.items() if len(own) > 1}
    shown = list(stale)[:_MOST]
    drawn = zip(shown, histograms([stale[names] for names in shown]), strict=True) if shown else ()
    figures = "".join(_figure(names, own, COLOURS[runs.index(names[0]) % len(COLOURS)]) for names, own in drawn)
    return f'<div class="histograms">{figures}</div><p class="note">{escape(" ".join(_notes(counts, len(stale))))}</p>'


def _notes(counts: Mapping[tuple[str, ...], Ints], stale: int) -> Iterator[str]:
    """Yield the notes below the histograms; `stale` is the number of timings with stale gradients."""
    if stale:
        yield "Updates between the read of the parameters and the use of the gradient; all used gradients, all seeds together."
    for what, size in (("Staleness 0 throughout", 1), ("No gradient was used", 0)):
        names = [name for names, own in counts.items() if len(own) == size for name in names]
        if names:
            yield f"{what}: {briefly(names, _NAMES)}."
    if stale > _MOST:
        yield f"{stale - _MOST} more timings are not drawn."


def _figure(names: Sequence[str], own: Histogram, colour: str) -> str:
    """Return one histogram with its caption."""
    base, right, shapes = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT, list[str]()
    for tick in _ticks(own.top):
        y = _up(tick, own.top)
        shapes.append(f'<path d="M{_LEFT} {y:.1f}H{right}" class="grid"/>')
        shapes.append(f'<text x="{_LEFT - 5}" y="{y + 4:.1f}" text-anchor="end">{tick:g} %</text>')
    corners = "".join(
        f"V{_up(height, own.top):.1f}H{_along(edge, own.right):.1f}"
        for height, edge in zip(own.heights, own.edges[1:], strict=True)
    )
    shapes.append(
        f'<path d="M{_LEFT} {base}{corners}V{base}Z" fill="{colour}"/><path d="M{_LEFT} {base}H{right}" class="axis"/>'
    )
    for tick in (tick for tick in _ticks(own.right) if tick == int(tick)):
        shapes.append(f'<text x="{_along(tick, own.right):.1f}" y="{base + 14}" text-anchor="middle">{tick:,g}</text>')
    shapes.append(f'<text x="{(_LEFT + right) / 2:g}" y="{_HEIGHT - 6}" text-anchor="middle">staleness, updates</text>')
    svg = (
        f'<svg class="histogram" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="staleness: {own.said}">'
        f"{''.join(shapes)}</svg>"
    )
    return f"<figure><figcaption>{escape(briefly(names, _NAMES))}: {own.said}</figcaption>{svg}</figure>"


def _along(value: float, end: float) -> float:
    """Return the horizontal place of a staleness on an axis up to `end`."""
    return _LEFT + (value + 0.5) / (end + 1) * (_WIDTH - _RIGHT - _LEFT)


def _up(value: float, end: float) -> float:
    """Return the vertical place of a percentage on an axis up to `end`."""
    return _HEIGHT - _BOTTOM - value / end * (_HEIGHT - _BOTTOM - _TOP)


def _ticks(end: float) -> list[float]:
    """Return round numbers from 0 to `end`, at most five."""
    least = end / _TICKS
    power = 10.0 ** math.floor(math.log10(least))
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= least)
    return [round(tick, 6) for tick in np.arange(0, end + step / 1000, step).tolist()]
