"""Names of lines, at their ends in the last panel or in a legend."""

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from fred.views.figures import BEST, TARGET, Picture, legend
from fred.views.view import View

_MOST = 8  # more lines than this are named in a legend
_NEAR = 0.9  # where all lines must end, share of the panel's width
_PLACE = 1.06  # of the labels, share of the panel's width
_MARGINS = 1.3  # inches of a figure's height that are not the panel's
_SPACING = 1.3  # distance of two labels, in font sizes


def named(figure: Picture, axes: Sequence[Axes], view: View) -> None:
    """Name the lines at their right ends if there are up to eight; otherwise, and in a paper, in a legend.

    Args:
        figure: the figure.
        axes: its panels; the last one gets the labels if all are in one row. Their limits are final.
        view: the view; if it sets a width, the figure is for a paper.
    """
    lines = [line for line in axes[-1].get_lines() if line.get_label() not in (BEST, TARGET)]
    same = {line.get_label() for line in lines} >= {line.get_label() for line in axes[0].get_lines()} - {BEST, TARGET}
    one_row = np.ptp([axis.get_position().y0 for axis in axes]) == 0
    if view.width is None and view.ax is None and one_row and same and 0 < len(lines) <= _MOST:
        ends = np.array([_end(axes[-1], line) for line in lines])
        if (ends[:, 0] > _NEAR).all():
            _label(figure, axes[-1], lines, ends)
            return
    legend(figure, axes[0], view)


def _end(axis: Axes, line: Line2D) -> NDArray[np.float64]:
    """Return the last finite point of a line, as shares of the panel's width and height; (0, 0) if there is none."""
    axis.get_xlim(), axis.get_ylim()  # matplotlib sets limits late
    points = (axis.transData - axis.transAxes).transform(line.get_xydata())
    points = points[np.isfinite(points).all(axis=1)]
    return np.clip(points[-1], 0, 1) if len(points) else np.zeros(2)


def _label(figure: Picture, axis: Axes, lines: Sequence[Line2D], ends: NDArray[np.float64]) -> None:
    size = matplotlib.rcParams["font.size"]
    gap = _SPACING * size / 72 / (figure.get_figheight() - _MARGINS)
    order = np.argsort(ends[:, 1], kind="stable")
    heights = spaced(ends[order, 1], gap)
    for line, end, height in zip([lines[i] for i in order], ends[order], heights, strict=True):
        colour, place = line.get_color(), (_PLACE, height)
        arrow = {"arrowstyle": "-", "color": colour, "linewidth": 0.7, "shrinkA": 0, "shrinkB": 0}
        axis.annotate("", end, place, "axes fraction", "axes fraction", arrowprops=arrow)
        shape = {"marker": line.get_marker(), "markersize": 4, "color": colour}
        figure.add_artist(Line2D([place[0]], [place[1]], transform=axis.transAxes, **shape))
        text = str(line.get_label())
        axis.annotate(text, place, (6, 0), "axes fraction", "offset points", va="center", parse_math=False)


def spaced(heights: NDArray[np.float64], gap: float) -> NDArray[np.float64]:
    """Return heights that are at least `gap` apart, between 0 and 1 if they fit, and as near the given ones as possible.

    Args:
        heights: heights in ascending order, shares of a panel's height [labels].
        gap: smallest distance of two labels, share of a panel's height.

    >>> spaced(np.array([0.1, 0.5, 0.5]), 0.2).round(2).tolist()
    [0.1, 0.4, 0.6]
    """
    steps = gap * np.arange(len(heights))
    groups: list[list[float]] = []  # of labels that touch: the sum of their places without the steps, and their number
    for value in heights - steps:
        groups.append([float(value), 1])
        while len(groups) > 1 and groups[-2][0] / groups[-2][1] > groups[-1][0] / groups[-1][1]:
            total, number = groups.pop()
            groups[-1] = [groups[-1][0] + total, groups[-1][1] + number]
    places: NDArray[np.float64] = np.concatenate([np.full(int(number), total / number) for total, number in groups])
    return np.clip(places, 0, max(0, 1 - steps[-1])) + steps
