"""Bar charts: shares of time, traffic, throughput, and histograms of staleness."""

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fred.views.figures import Picture, caption, listed, on_top, panels, set_count_ticks, style, titled
from fred.views.page_data import Histogram, histograms
from fred.views.view import COLOURS, SCREEN, View

_FEW = 12  # up to this number, bars are thick
_LETTERS = 90  # length of the list of names in the caption
_LARGE = 9  # up to this number, panels are large


def stacked(
    parts: dict[str, dict[str, float]], label: str, colours: Sequence[str] = COLOURS, note: str = "", view: View = SCREEN
) -> Picture:
    """Draw one stacked bar for each run. Parts that are 0 in all runs are left out.

    Args:
        parts: by the name of a run, the length of each of its parts; all runs have the same parts in the same order.
        label: label of the axis, with the unit of the lengths.
        colours: one colour for each part.
        note: text of the caption.
        view: the width of the figure.
    """
    with style(view):
        figure, axis = _bars(list(parts), label, view)
        starts, legend_bars = np.zeros(len(parts)), list[BarContainer]()
        for colour, part in zip(colours, next(iter(parts.values())), strict=False):
            lengths = np.array([lengths_by_part[part] for lengths_by_part in parts.values()])
            if lengths.any():
                bars = axis.barh(range(len(parts)), lengths, 0.7, starts, color=colour, label=part.replace("_", " "))
                starts, legend_bars = starts + lengths, [*legend_bars, bars]
        on_top(figure, legend_bars, [str(bars.get_label()) for bars in legend_bars])
        caption(figure, note)
    return figure


def spread(values: Mapping[str, Sequence[float]], label: str, note: str = "", view: View = SCREEN) -> Picture:
    """Draw one bar for each run: its length is the mean over the seeds, and a whisker shows their range.

    Args:
        values: by the name of a run, one value for each seed.
        label: label of the axis, with the unit of the values.
        note: text of the caption.
        view: the width of the figure, and the colours of the runs.
    """
    looks = view.looks_of(values)
    with style(view):
        figure, axis = _bars(list(values), label, view)
        means = np.array([np.mean(seed_values) for seed_values in values.values()])
        axis.barh(range(len(values)), means, 0.7, color=[looks[name][0] for name in values])
        ends = np.array([(min(seed_values), max(seed_values)) for seed_values in values.values()])
        ranged = [place for place, seed_values in enumerate(values.values()) if len(seed_values) > 1]
        axis.hlines(ranged, *ends[ranged].T, color="black", linewidth=1.2)
        for place, (mean, end) in enumerate(zip(means, ends[:, 1], strict=True)):
            axis.annotate(f"{mean:,.4g}", (end, place), (4, 0), textcoords="offset points", va="center")
        axis.set_xlim(0, 1.15 * (ends.max() or 1.0))
        caption(figure, f"bars: {note}; lines: their range, least to largest" if ranged else note)
    return figure


def _bars(names: Sequence[str], label: str, view: View) -> tuple[Picture, Axes]:
    """Return a figure with a horizontal place for each name, the first at the top."""
    bar_inches = 0.3 if len(names) <= _FEW and view.width is None else 0.17
    figure, (axis,) = panels(1, (6.5, 1.0), view)
    if view.ax is None:
        figure.set_figheight(0.8 + bar_inches * len(names))
    axis.set(yticks=range(len(names)), yticklabels=list(names), xlabel=label)
    for tick in axis.get_yticklabels():
        tick.set_parse_math(False)
    set_count_ticks(axis.xaxis)
    axis.grid(axis="y", visible=False)
    axis.set_ylim(len(names) - 0.5, -0.5)
    return figure, axis


def staleness(stale: Mapping[tuple[str, ...], NDArray[np.int64]], note: str = "", view: View = SCREEN) -> Picture:
    """Draw a histogram of staleness for each timing. Runs without stale gradients are only named in the caption.

    All panels have the same scales, unless the largest value of one is more than six times that of another.

    Args:
        stale: by the names of all runs that share a timing, the number of gradients of each staleness, from 0 to the largest,
            in updates [largest + 1].
        note: the gradients that are counted, for the caption.
        view: the width of the figure, and the colours; a panel has the colour of its first run.
    """
    looks = view.looks_of(names[0] for names in stale)
    stale_counts = {names: counts for names, counts in stale.items() if len(counts) > 1}
    empty_cases = {"staleness 0 throughout": 1, "no gradient was used": 0}
    phrases = [
        f"{label}: {listed(run_names, _LETTERS)}" for label, size in empty_cases.items() if (run_names := _of_size(stale, size))
    ]
    with style(view):
        if not stale_counts:
            return _in_words(phrases, note, view)
        panel_size = (4.6, 2.4) if len(stale_counts) == 1 else (3.1, 2.1) if len(stale_counts) <= _LARGE else (2.6, 1.6)
        bars = histograms(list(stale_counts.values()))
        share = "x" * (len({histogram.right for histogram in bars}) == 1) + "y" * (
            len({histogram.top for histogram in bars}) == 1
        )
        figure, axes = panels(len(stale_counts), panel_size, view, most=3 if len(stale_counts) <= _LARGE else 4, share=share)
        for axis, names, histogram in zip(axes, stale_counts, bars, strict=True):
            _stairs(axis, histogram, looks[names[0]][0])
            titled(axis, names, histogram.summary, width=_letters(axis))
            if len(stale_counts) <= _LARGE:
                axis.set(xlabel="staleness, updates", ylabel="% of gradients")
        if len(stale_counts) > _LARGE:
            figure.supylabel("% of gradients, by their staleness in updates", fontsize="medium")
        caption(figure, note, "scales differ between panels" if share != "xy" else "", *phrases)
    return figure


def _letters(axis: Axes) -> int:
    """Return the number of letters that fit into the title of a panel."""
    places, picture = axis.get_gridspec(), axis.get_figure(root=True)
    width = picture.get_figwidth() if picture else 1.0
    return int(width * 90 / matplotlib.rcParams["font.size"] / (places.ncols if places else 1))


def _of_size(stale: Mapping[tuple[str, ...], NDArray[np.int64]], size: int) -> list[str]:
    return [name for names, counts in stale.items() if len(counts) == size for name in names]


def _stairs(axis: Axes, histogram: Histogram, colour: str) -> None:
    """Draw a histogram as one outline."""
    axis.stairs(histogram.heights, histogram.edges, fill=True, color=colour)
    axis.set(xlim=(-0.6, histogram.right + 0.5), ylim=(0, 1.05 * histogram.top))
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axis.yaxis.set_major_locator(MaxNLocator(4))


def _in_words(phrases: Sequence[str], note: str, view: View) -> Picture:
    """Return a figure that has only a caption."""
    figure, (axis,) = panels(1, (6.5, 0.1), view)
    if view.ax is None:
        figure.set_figheight(0.3)
    axis.set_axis_off()
    caption(figure, *phrases, note)
    return figure
