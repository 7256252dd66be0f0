"""Bar charts and line plots: shares of time, traffic, throughput, staleness; learning curves."""

import math
from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from fred.views.figures import (
    FAINT,
    TARGET,
    Picture,
    caption,
    far_apart,
    headline,
    legend,
    listed,
    name_lines,
    on_top,
    over_seeds,
    panels,
    plain_logarithmic,
    set_count_ticks,
    style,
    titled,
)
from fred.views.page_data import Histogram, histograms
from fred.views.view import AXES, COLOURS, MEASURED, SCREEN, Look, View, marks

_FEW_BARS = 12  # up to this number, bars are thick
_MOST_LETTERS = 90  # length of the list of names in the caption
_FEW_PANELS = 9  # up to this number, panels are large


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
    bar_inches = 0.3 if len(names) <= _FEW_BARS and view.width is None else 0.17
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
    # `counts` go up to the largest staleness: one count means that it is 0 throughout, none that no gradient was used.
    lengths_without_histogram = {"staleness 0 throughout": 1, "no gradient was used": 0}
    phrases = [
        f"{label}: {listed(run_names, _MOST_LETTERS)}"
        for label, length in lengths_without_histogram.items()
        if (run_names := [name for names, counts in stale.items() if len(counts) == length for name in names])
    ]
    with style(view):
        if not stale_counts:
            return _in_words(phrases, note, view)
        panel_size = (4.6, 2.4) if len(stale_counts) == 1 else (3.1, 2.1) if len(stale_counts) <= _FEW_PANELS else (2.6, 1.6)
        bars = histograms(list(stale_counts.values()))
        rights, tops = {histogram.right for histogram in bars}, {histogram.top for histogram in bars}
        share = "x" * (len(rights) == 1) + "y" * (len(tops) == 1)
        figure, axes = panels(
            len(stale_counts), panel_size, view, most=3 if len(stale_counts) <= _FEW_PANELS else 4, share=share
        )
        for axis, names, histogram in zip(axes, stale_counts, bars, strict=True):
            _stairs(axis, histogram, looks[names[0]][0])
            titled(axis, names, histogram.summary, width=_letters(axis))
            if len(stale_counts) <= _FEW_PANELS:
                axis.set(xlabel="staleness, updates", ylabel="% of gradients")
        if len(stale_counts) > _FEW_PANELS:
            figure.supylabel("% of gradients, by their staleness in updates", fontsize="medium")
        caption(figure, note, "scales differ between panels" if share != "xy" else "", *phrases)
    return figure


def _letters(axis: Axes) -> int:
    """Return the number of letters that fit into the title of a panel."""
    places, picture = axis.get_gridspec(), axis.get_figure(root=True)
    width = picture.get_figwidth() if picture else 1.0
    return int(width * 90 / matplotlib.rcParams["font.size"] / (places.ncols if places else 1))


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


_MOST_POINTS = 400  # per line at most
_WIDEST = 20  # letters of the names of runs that reach the target first, or last
_RARE_SHARE = 0.05  # the smallest 5 % of values do not make an axis logarithmic
_DIVERGED = 1e4  # values larger than this multiple of the small ones are cut off
_BANDS = 10  # more bands would hide each other
_LARGE_RATIO = 10  # the axis is logarithmic if the longest run is more than 10 times the shortest
_BEFORE = 20  # a logarithmic axis begins at 1/20 of the shortest run
_AMOUNTS = ("virtual_seconds", "cost", "energy_kwh")  # columns whose axes are linear
_COPIES = {"pushes": "gradients pushed", "fetches": "parameters fetched"}


def learning(
    metrics: pd.DataFrame,
    quantity: str,
    title: str,
    target: float | None = None,
    view: View = SCREEN,
    from_zero: bool = False,
) -> Picture:
    """Draw a quantity against updates, virtual time, or the axes of the view. Lines are means over the seeds, bands ranges.

    A dotted line marks the target, if there is one, and titles name the runs that reach it first and last. An axis of counts
    is logarithmic if the longest run is more than ten times as long as the shortest; it then begins at a twentieth of the
    shortest.

    Args:
        metrics: rows of evaluations, with columns run, seed, updates, gradients, virtual_seconds (s) and the quantity.
        quantity: the column to draw; its axis is logarithmic if the values are far apart.
        title: title above all panels; it is wrapped.
        target: the target value of the quantity.
        view: the horizontal axes, the width of the figure, and the colours of the runs.
        from_zero: True for a linear axis of the quantity that begins at 0.
    """
    clocked = metrics["virtual_seconds"].notna().any()
    names = [name for name in view.against if (clocked or name != "seconds") and AXES[name][0] in metrics]
    axis_columns = [AXES[name] for name in names] or [AXES["updates"]]
    runs = {
        str(name): [seed_rows for _, seed_rows in rows.groupby("seed")] for name, rows in metrics.groupby("run", sort=False)
    }
    with style(view):
        figure, axes = panels(len(axis_columns), (4.6, 3.5), view, share="y")
        for axis, (column, label) in zip(axes, axis_columns, strict=True):
            axis.set_xlabel(label)
            first = _set_horizontal_axis(axis, column, metrics)
            for name, look in view.looks_of(runs).items():
                _draw_run(axis, runs[name], (column, quantity), name, look, first, shaded=len(runs) <= _BANDS)
            if target is not None:
                axis.axhline(target, color=FAINT, linestyle=":", linewidth=1, label=TARGET)
                if view.width is None:
                    places = {
                        name: [_first_at_target(rows, column, quantity, target) for rows in seeds]
                        for name, seeds in runs.items()
                    }
                    axis.set_title(_describe_order(places), loc="left", fontweight="normal", color=FAINT, parse_math=False)
        if target is not None:
            _label_target(axes[0], target)
        axes[0].set_ylabel(MEASURED.get(quantity, quantity))
        _set_vertical_axis(axes[0], metrics[quantity], from_zero)
        name_lines(figure, axes, view)
        headline(figure, title, view)
        means = over_seeds(metrics["run"], metrics["seed"])
        bands = "bands: their range, least to largest" if len(runs) <= _BANDS else f"without bands, as of {len(runs)} runs"
        caption(figure, f"lines: {means}; {bands}" if means else "")
    return figure


def _label_target(axis: Axes, target: float) -> None:
    """Write the target above the start of its line, if that is inside the panel."""
    axis.annotate(
        *(f"target {target:g}", (0.0, target)),
        xycoords=axis.get_yaxis_transform(),
        xytext=(3.0, 2.0),
        textcoords="offset points",
        color=FAINT,
        fontsize="small",
        annotation_clip=True,  # a target far away would take all of the figure
        bbox={"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 0.5},
    )


def _first_at_target(rows: pd.DataFrame, column: str, quantity: str, target: float) -> float:
    """Return where a run's quantity is first at or below the target; infinite if never."""
    reached = rows[column][rows[quantity] <= target]
    return float(reached.iloc[0]) if len(reached) else math.inf


def _describe_order(places: Mapping[str, Sequence[float]]) -> str:
    """Return the names of the runs that reach the target first and last, on average over the seeds.

    The title is empty if fewer than two runs reach it with all seeds.

    Args:
        places: where a run reaches the target [seeds], by its name.

    >>> _describe_order({"a": [3.0], "b": [2.0], "c": [math.inf], "d": [2.0]}), _describe_order({"a": [3.0], "b": [3.0]})
    ('target reached by b, d first, a last', '')
    """
    means = {name: mean for name, seeds in places.items() if (mean := float(np.mean(seeds))) < math.inf}
    ends = [end(means.values(), default=0.0) for end in (min, max)]
    first, last = ([name for name in means if means[name] == end] for end in ends)
    if first == last:
        return ""
    return f"target reached by {listed(first, _WIDEST)} first, {listed(last, _WIDEST)} last"


def _set_horizontal_axis(axis: Axes, column: str, metrics: pd.DataFrame) -> float:
    """Set the scale of a panel's horizontal axis. Return where its lines begin: at 0, or at the start of a logarithmic axis."""
    ends = metrics.groupby("run")[column].max()
    if column in _AMOUNTS or not far_apart(ends, _LARGE_RATIO):
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        return 0.0
    first = max(float(metrics[column][metrics[column] > 0].min()), float(ends[ends > 0].min()) / _BEFORE)
    last = 1.05 * float(ends.max())
    plain_logarithmic(axis, "x", math.log10(last / first))
    axis.set_xlim(first, last)
    return first


def _set_vertical_axis(axis: Axes, values: pd.Series, from_zero: bool) -> None:
    """Set the scale of a panel's vertical axis: from 0 if asked for, and else logarithmic if the values lie far apart."""
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    if from_zero:
        axis.set_ylim(bottom=0)
        return
    positive = values[np.isfinite(values) & (values > 0)]
    # Rare values, such as those near 0 between equal models at the start, do not count.
    low = positive.quantile(_RARE_SHARE, interpolation="lower")
    if far_apart(positive[positive >= low]):
        # The axis ends at the least value, but not far below `low`, and at the largest, but not where a run diverges.
        bottom, top = max(float(positive.min()), low / 3), min(float(positive.max()), _DIVERGED * low)
        plain_logarithmic(axis, "y", math.log10(top / bottom))
        axis.set_ylim(bottom / 1.1, top * 1.1)


def _draw_run(
    axis: Axes, seeds: Sequence[pd.DataFrame], columns: tuple[str, str], name: str, look: Look, first: float, shaded: bool
) -> None:
    """Draw a run's mean over the seeds and, if `shaded`, their range, as far as all seeds reach.

    Values are interpolated at the places where any seed was evaluated, from `first` on.
    """
    axis_column, quantity = columns
    grid = _choose_places([rows[axis_column].to_numpy(np.float64) for rows in seeds], first)
    curves = np.stack([np.interp(grid, rows[axis_column], rows[quantity]) for rows in seeds])
    colour, dashes = look
    axis.plot(
        grid,
        np.mean(curves, axis=0),
        color=colour,
        linestyle=dashes,
        label=name,
        linewidth=1.5 if shaded else 1.1,
        **marks(colour),
    )
    if len(seeds) > 1 and shaded:
        axis.fill_between(grid, curves.min(axis=0), curves.max(axis=0), color=colour, alpha=0.18, linewidth=0)


def _choose_places(places: Sequence[NDArray[np.float64]], first: float) -> NDArray[np.float64]:
    """Return where any seed was evaluated, from `first` to the end of the shortest seed, in ascending order.

    Return at most 400 of them, evenly spaced.
    """
    reach = min(seed_places.max() for seed_places in places)
    grid = np.unique(np.concatenate(places))
    grid = grid[(grid >= first) & (grid <= reach)]
    return grid if len(grid) <= _MOST_POINTS else grid[np.unique(np.linspace(0, len(grid) - 1, _MOST_POINTS).astype(int))]


def b_staleness(means: dict[str, pd.DataFrame], note: str = "", view: View = SCREEN) -> Picture:
    """Draw mean B-staleness against staleness, one line per run. Larger dots stand for more gradients.

    Args:
        means: by the name of a run, a table with columns staleness (updates), gradients (their number) and mean.
        note: the seed, for the caption.
        view: the width of the figure, and the colours of the runs.
    """
    with style(view):
        figure, (axis,) = panels(1, (5.6, 3.5), view)
        for name, (colour, dashes) in view.looks_of(means).items():
            table = means[name]
            axis.plot(
                table["staleness"], table["mean"], color=colour, linestyle=dashes, label=name, linewidth=1, **marks(colour)
            )
            sizes = 4 + 60 * table["gradients"] / max(1, table["gradients"].sum())
            axis.scatter(table["staleness"], table["mean"], s=sizes, color=colour, linewidths=0)
        axis.set(xlabel="staleness, updates", ylabel="B-staleness", ylim=(0, None))
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        legend(figure, axis, view)
        caption(figure, note, "lines: means of the gradients of each staleness; larger dots: more gradients")
    return figure


def copies(runs: dict[str, pd.DataFrame], note: str = "", view: View = SCREEN) -> Picture:
    """Draw copies of gradients pushed and of parameters fetched against potential copies. A dotted line marks all of them.

    A panel in which every run sent all copies is left out, unless this is so in both.

    Args:
        runs: by the name of a run, a table with columns potential, pushes and fetches, all counted from the start.
        note: the seed, for the caption.
        view: the width of the figure, and the colours of the runs.
    """
    most = max(table["potential"].iloc[-1] for table in runs.values())
    complete = [name for name in _COPIES if all((table[name] == table["potential"]).all() for table in runs.values())]
    labels = {name: label for name, label in _COPIES.items() if name not in complete} or _COPIES
    left_out = [f"all {_COPIES[name]}" for name in complete if name not in labels]
    with style(view):
        figure, axes = panels(len(labels), (4.6 if len(labels) > 1 else 6.2, 3.5), view, share="xy")
        for axis, (column, label) in zip(axes, labels.items(), strict=True):
            axis.plot((0, most), (0, most), color=FAINT, linestyle=":", linewidth=1, label=TARGET)
            for name, (colour, dashes) in view.looks_of(runs).items():
                table = runs[name]
                points = table.iloc[np.unique(np.linspace(0, len(table) - 1, _MOST_POINTS).astype(int))]
                axis.plot(
                    points["potential"],
                    points[column],
                    color=colour,
                    linestyle=dashes,
                    label=name,
                    linewidth=1.5,
                    **marks(colour),
                )
            axis.set(xlabel="potential copies", ylabel=f"{label}, copies")
            set_count_ticks(axis.xaxis)
            set_count_ticks(axis.yaxis)
        legend(figure, axes[0], view)
        caption(figure, note, *left_out, "dotted: all that could have been sent")
    return figure
