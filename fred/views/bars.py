"""Bar charts: shares of time, traffic, throughput, and histograms of staleness."""

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fred.views.figures import Picture, caption, counted, listed, on_top, panels, style, titled
from fred.views.page_data import Histogram, histograms
from fred.views.view import COLOURS, SCREEN, View

_FEW = 12  # up to this number, bars are thick
_LETTERS = 90  # length of the list of names in the caption
_LARGE = 9  # up to this number, panels are large


def stacked(
    parts: dict[str, dict[str, float]], label: str, colours: Sequence[str] = COLOURS, said: str = "", view: View = SCREEN
) -> Picture:
    """Draw one stacked bar for each run. Parts that are 0 in all runs are left out.

    Args:
        parts: by the name of a run, the length of each of its parts; all runs have the same parts in the same order.
        label: label of the axis, with the unit of the lengths.
        colours: one colour for each part.
        said: text of the caption.
        view: the width of the figure.
    """
    with style(view):
        figure, axis = _bars(list(parts), label, view)
        left, named = np.zeros(len(parts)), list[BarContainer]()
        for colour, part in zip(colours, next(iter(parts.values())), strict=False):
            lengths = np.array([own[part] for own in parts.values()])
            if lengths.any():
                bars = axis.barh(range(len(parts)), lengths, 0.7, left, color=colour, label=part.replace("_", " "))
                left, named = left + lengths, [*named, bars]
        on_top(figure, named, [str(bars.get_label()) for bars in named])
        caption(figure, said)
    return figure


def spread(values: Mapping[str, Sequence[float]], label: str, said: str = "", view: View = SCREEN) -> Picture:
    """Draw one bar for each run: its length is the mean over the seeds, and a whisker shows their range.

    Args:
        values: by the name of a run, one value for each seed.
        label: label of the axis, with the unit of the values.
        said: text of the caption.
        view: the width of the figure, and the colours of the runs.
    """
    looks = view.looks_of(values)
    with style(view):
        figure, axis = _bars(list(values), label, view)
        means = np.array([np.mean(own) for own in values.values()])
        axis.barh(range(len(values)), means, 0.7, color=[looks[name][0] for name in values])
        ends = np.array([(min(own), max(own)) for own in values.values()])
        several = [place for place, own in enumerate(values.values()) if len(own) > 1]
        axis.hlines(several, *ends[several].T, color="black", linewidth=1.2)
        for place, (mean, end) in enumerate(zip(means, ends[:, 1], strict=True)):
            axis.annotate(f"{mean:,.4g}", (end, place), (4, 0), textcoords="offset points", va="center")
        axis.set_xlim(0, 1.15 * (ends.max() or 1.0))
        caption(figure, f"bars: {said}; lines: their range, least to largest" if several else said)
    return figure


def _bars(names: Sequence[str], label: str, view: View) -> tuple[Picture, Axes]:
    """Return a figure with a horizontal place for each name, the first at the top."""
    each = 0.3 if len(names) <= _FEW and view.width is None else 0.17
    figure, (axis,) = panels(1, (6.5, 1.0), view)
    if view.ax is None:
        figure.set_figheight(0.8 + each * len(names))
    axis.set(yticks=range(len(names)), yticklabels=list(names), xlabel=label)
    for tick in axis.get_yticklabels():
        tick.set_parse_math(False)
    counted(axis.xaxis)
    axis.grid(axis="y", visible=False)
    axis.set_ylim(len(names) - 0.5, -0.5)
    return figure, axis


def staleness(stale: Mapping[tuple[str, ...], NDArray[np.int64]], said: str = "", view: View = SCREEN) -> Picture:
    """Draw a histogram of staleness for each timing. Runs without stale gradients are only named in the caption.

    All panels have the same scales, unless the largest value of one is more than six times that of another.

    Args:
        stale: by the names of all runs that share a timing, the number of gradients of each staleness, from 0 to the largest,
            in updates [largest + 1].
        said: the gradients that are counted, for the caption.
        view: the width of the figure, and the colours; a panel has the colour of its first run.
    """
    looks = view.looks_of(names[0] for names in stale)
    shown = {names: counts for names, counts in stale.items() if len(counts) > 1}
    others = {"staleness 0 throughout": 1, "no gradient was used": 0}
    named = [f"{what}: {listed(own, _LETTERS)}" for what, size in others.items() if (own := _of_size(stale, size))]
    with style(view):
        if not shown:
            return _in_words(named, said, view)
        each = (4.6, 2.4) if len(shown) == 1 else (3.1, 2.1) if len(shown) <= _LARGE else (2.6, 1.6)
        drawn = histograms(list(shown.values()))
        share = "x" * (len({each.right for each in drawn}) == 1) + "y" * (len({each.top for each in drawn}) == 1)
        figure, axes = panels(len(shown), each, view, most=3 if len(shown) <= _LARGE else 4, share=share)
        for axis, names, one in zip(axes, shown, drawn, strict=True):
            _stairs(axis, one, looks[names[0]][0])
            titled(axis, names, one.said, width=_letters(axis))
            if len(shown) <= _LARGE:
                axis.set(xlabel="staleness, updates", ylabel="% of gradients")
        if len(shown) > _LARGE:
            figure.supylabel("% of gradients, by their staleness in updates", fontsize="medium")
        caption(figure, said, "scales differ between panels" if share != "xy" else "", *named)
    return figure


def _letters(axis: Axes) -> int:
    """Return the number of letters that fit into the title of a panel."""
    places, picture = axis.get_gridspec(), axis.get_figure(root=True)
    width = picture.get_figwidth() if picture else 1.0
    return int(width * 90 / matplotlib.rcParams["font.size"] / (places.ncols if places else 1))


def _of_size(stale: Mapping[tuple[str, ...], NDArray[np.int64]], size: int) -> list[str]:
    return [name for names, counts in stale.items() if len(counts) == size for name in names]


def _stairs(axis: Axes, drawn: Histogram, colour: str) -> None:
    """Draw a histogram as one outline."""
    axis.stairs(drawn.heights, drawn.edges, fill=True, color=colour)
    axis.set(xlim=(-0.6, drawn.right + 0.5), ylim=(0, 1.05 * drawn.top))
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axis.yaxis.set_major_locator(MaxNLocator(4))


def _in_words(named: Sequence[str], said: str, view: View) -> Picture:
    """Return a figure that has only a caption."""
    figure, (axis,) = panels(1, (6.5, 0.1), view)
    if view.ax is None:
        figure.set_figheight(0.3)
    axis.set_axis_off()
    caption(figure, *named, said)
    return figure
