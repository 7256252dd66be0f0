"""A figure of losses as SVG, drawn in a millisecond: matplotlib takes a third of a second to load and a tenth to draw."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fred.views.view import Look

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 420, 180, 46, 220, 10, 36  # px: the panel, and its margins
_ROW = 17  # px of a line of text
_LETTERS = 20  # of a name
_POINTS = 300  # largest number of points of a line
_LARGE_RATIO = 6  # an axis is logarithmic if the largest value is more than 6 times the smallest
_DECADES = 3.0  # from this span on, only powers of ten get a tick
_TICKS = 4
_DASHES = {"-": "", "--": "6 3", ":": "2 2", "-.": "6 3 2 3"}
_STYLE = "max-width: 100%; font: 12px sans-serif; fill: currentColor"


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
        for place, (name, run) in enumerate(self.runs.items()):
            parts += [_line(run, axis, last), _label(name, run, _TOP + _ROW * place)]
        size = _LEFT + _WIDTH + _RIGHT, max(_TOP + _HEIGHT + _BOTTOM, _TOP + _ROW * len(self.runs))
        return f'<svg width="{size[0]}" height="{size[1]}" style="{_STYLE}">{"".join(parts)}</svg>'


class _Axis(NamedTuple):
    """The vertical axis: its ends, in logarithms if it is logarithmic."""

    low: float
    high: float
    logarithmic: bool

    @classmethod
    def fitting(cls, values: NDArray[np.float64]) -> "_Axis":
        """Return an axis for these values: from 0 on, or logarithmic if that would hide the small ones."""
        finite = values[np.isfinite(values)]
        if not len(finite):
            return cls(0.0, 1.0, False)
        low, high = float(finite.min()), float(finite.max())
        if 0 < low < high / _LARGE_RATIO:
            return cls(math.log10(low), math.log10(high), True)
        return cls(min(0.0, low), high if high > min(0.0, low) else 1.0, False)

    def height(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the vertical places of values, px from the top."""
        places = np.log10(values) if self.logarithmic else values
        return _TOP + _HEIGHT * (self.high - places) / (self.high - self.low)

    @property
    def ticks(self) -> NDArray[np.float64]:
        """Return round numbers on the axis."""
        span = self.high - self.low
        if self.logarithmic:
            powers = 10.0 ** np.arange(math.floor(self.low), math.ceil(self.high) + 1)
            ticks = np.outer(powers, (1, 2, 5) if span < _DECADES else (1,)).ravel()
            return ticks[(np.log10(ticks) >= self.low) & (np.log10(ticks) <= self.high)]
        least = span / _TICKS
        power = 10.0 ** math.floor(math.log10(least))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least)
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
    y, right = _TOP + _HEIGHT, _LEFT + _WIDTH
    return [
        f'<path d="M{_LEFT} {y}h{_WIDTH}" stroke="currentColor"/>',
        f'<text x="{_LEFT}" y="{y + 15}" text-anchor="middle">0</text>',
        f'<text x="{right}" y="{y + 15}" text-anchor="middle">{last:,}</text>',
        f'<text x="{(_LEFT + right) / 2}" y="{y + 15}" text-anchor="middle">loss at each evaluation</text>',
    ]


def _line(run: SeedLosses, axis: _Axis, last: int) -> str:
    """Return the line of a run through its finite losses, at most three hundred of them."""
    numbers = np.unique(np.linspace(0, len(run.losses) - 1, _POINTS).astype(int))
    losses = np.array(run.losses, np.float64)[numbers]
    finite = np.isfinite(losses)
    places, heights = _LEFT + _WIDTH * numbers[finite] / last, axis.height(losses[finite])
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(places.tolist(), heights.tolist(), strict=True))
    return f'<polyline points="{points}" fill="none" {_stroke(run)}/>'


def _label(name: str, run: SeedLosses, y: int) -> str:
    """Return the name of a run, its seed and its last loss, at the right of the panel."""
    x, short = _LEFT + _WIDTH + 14, name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}…"
    words = escape(f"{short}, seed {run.seed}: {run.losses[-1]:.3g}")
    return f'<path d="M{x} {y}h16" {_stroke(run)}/><text x="{x + 22}" y="{y + 4}">{words}</text>'


def _stroke(run: SeedLosses) -> str:
    colour, dashes = run.look
    return f'stroke="{colour}" stroke-width="1.6" stroke-dasharray="{_DASHES[dashes]}"'
