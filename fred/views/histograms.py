"""Histograms of staleness: their bars and their scales, for figures and for the page of a result."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_BINS = 60
_APART = 6  # scales are common unless the largest value of one histogram is more than 6 times that of another
_SHORTEST = 4  # updates; an axis is at least this long


class Histogram(NamedTuple):
    """A histogram of staleness, and where its axes end.

    Args:
        heights: height of each bar, % of the gradients.
        edges: edges of the bars, updates [bars + 1].
        mean: mean staleness, updates.
        largest: largest staleness, updates.
        right: largest staleness on the axis, updates.
        top: largest height on the axis, %.
    """

    heights: NDArray[np.float64]
    edges: NDArray[np.float64]
    mean: float
    largest: int
    right: float
    top: float

    @property
    def said(self) -> str:
        """Return the mean and the largest staleness, and how many updates a bar stands for if there are several."""
        width = round(float(self.edges[1] - self.edges[0]))
        bars = f", {width} updates a bar" if width > 1 else ""
        return f"mean {self.mean:.1f}, max {self.largest:,}{bars}"


def histograms(counts: Sequence[NDArray[np.int64]]) -> list[Histogram]:
    """Return histograms to show next to each other, with at most sixty bars each.

    All have the same axes, unless the largest value of one is more than six times that of another.

    Args:
        counts: for each histogram the number of gradients of each staleness, from 0 to the largest, updates [largest + 1]; at
            least one gradient.

    >>> (drawn,) = histograms([np.array([1, 3])])
    >>> drawn.heights.tolist(), drawn.said
    ([25.0, 75.0], 'mean 0.8, max 1')
    """
    rights = [max(end, _SHORTEST) for end in _common([len(own) - 1 for own in counts])]
    bars = [_bars(own, max(1, -(-int(right + 1) // _BINS))) for own, right in zip(counts, rights, strict=True)]
    tops = _common([float(heights.max()) for heights, _ in bars])
    return [
        Histogram(*drawn, float(np.average(np.arange(len(own)), weights=own)), len(own) - 1, right, top)
        for own, drawn, right, top in zip(counts, bars, rights, tops, strict=True)
    ]


def _bars(counts: NDArray[np.int64], width: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the heights, %, and the edges of bars of this width, updates."""
    heights: NDArray[np.float64] = np.add.reduceat(100 * counts / counts.sum(), np.arange(0, len(counts), width))
    return heights, width * np.arange(len(heights) + 1, dtype=np.float64) - 0.5


def _common(values: Sequence[float]) -> list[float]:
    """Return the end of each panel's axis: the largest of all values, unless that would hide the smallest."""
    return list(values) if max(values) > _APART * min(values) else [max(values)] * len(values)
