"""Lines: what was learned, what was sent of what could have been, how far stale gradients are off."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from fred.views.figures import (
    FAINT,
    TARGET,
    Picture,
    caption,
    headline,
    legend,
    over_seeds,
    panels,
    style,
)
from fred.views.scales import counted, far_apart, plain_logarithmic
from fred.views.view import AXES, Look, View, marks

_POINTS = 400  # of a line
_FEW = 0.05  # of the evaluations, whose small values make no axis logarithmic
_DIVERGED = 1e4  # times as large as what is small has no room
_BANDS = 10  # more would hide each other
_TIMES = 10  # so much further goes the longest run than the shortest, if a linear axis would squeeze that
_BEFORE = 20  # of a logarithmic axis's shortest run this part of its length is the first that is shown
_LABELS = {"replicas_error": "replicas' error", "gradient_norm": "norm of the gradient"}  # of quantities that are not their own


def learning(
    metrics: pd.DataFrame,
    quantity: str,
    title: str,
    target: float | None = None,
    view: View | None = None,
    from_zero: bool = False,
) -> Picture:
    """A quantity against updates, virtual time, or what the view says: the seeds' mean as a line, their range as a band.

    A dotted line is drawn at the target, if there is one. Counts are on a logarithmic axis where the longest run goes ten times
    as far as the shortest; it begins at a twentieth of the shortest.

    Args:
        metrics: rows of evaluations, with columns run, seed, updates, gradients, virtual_seconds (s) and the quantity.
        quantity: the column to be drawn, on a logarithmic axis if its values are far apart.
        title: above all panels, on as many lines as it needs.
        target: of the quantity.
        view: against what, how wide, in which colours.
        from_zero: its axis is linear, and begins at 0.
    """
    view = view or View()
    clocked = metrics["virtual_seconds"].notna().any()
    known = [name for name in view.against if (clocked or name != "seconds") and AXES[name][0] in metrics]
    shown = [AXES[name] for name in known] or [AXES["updates"]]
    runs = {str(name): [own for _, own in rows.groupby("seed")] for name, rows in metrics.groupby("run", sort=False)}
    with style(view):
        figure, axes = panels(len(shown), (4.6, 3.5), view, share="y")
        for axis, (column, label) in zip(axes, shown, strict=True):
            axis.set_xlabel(label)
            first = _begin(axis, column, metrics)
            for name, look in view.looks_of(runs).items():
                _band(axis, runs[name], (column, quantity), name, look, first, shaded=len(runs) <= _BANDS)
            if target is not None:
                axis.axhline(target, color=FAINT, linestyle=":", linewidth=1, label=TARGET)
        axes[0].set_ylabel(_LABELS.get(quantity, quantity))
        _upwards(axes[0], metrics[quantity], from_zero)
        legend(figure, axes[0], view)
        headline(figure, title, view)
        means = over_seeds(metrics["run"], metrics["seed"])
        bands = "bands: their range, least to largest" if len(runs) <= _BANDS else f"without bands, as of {len(runs)} runs"
        caption(figure, f"lines: {means}; {bands}" if means else "", "dotted: the target" if target is not None else "")
    return figure


def _begin(axis: Axes, column: str, metrics: pd.DataFrame) -> float:
    """The panel's scale; returns where its lines begin: at 0, or at what a logarithmic axis can show."""
    ends = metrics.groupby("run")[column].max()
    if column == "virtual_seconds" or not far_apart(ends, _TIMES):
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        return 0.0
    first = max(float(metrics[column][metrics[column] > 0].min()), float(ends[ends > 0].min()) / _BEFORE)
    last = 1.05 * float(ends.max())
    plain_logarithmic(axis, "x", math.log10(last / first))
    axis.set_xlim(first, last)
    return first


def _upwards(axis: Axes, values: pd.Series, from_zero: bool) -> None:
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    if from_zero:
        axis.set_ylim(bottom=0)
        return
    positive = values[np.isfinite(values) & (values > 0)]
    low = positive.quantile(_FEW, interpolation="lower")  # not what one run had for a moment, such as equal models at the start
    if far_apart(positive[positive >= low]):
        bottom, top = max(float(positive.min()), low / 3), min(float(positive.max()), _DIVERGED * low)
        plain_logarithmic(axis, "y", math.log10(top / bottom))
        axis.set_ylim(bottom / 1.1, top * 1.1)


def _band(
    axis: Axes, seeds: Sequence[pd.DataFrame], columns: tuple[str, str], name: str, look: Look, first: float, shaded: bool
) -> None:
    """The mean of the seeds where one of them was evaluated, as far as all reach, from the first place that is shown."""
    across, quantity = columns
    grid = _knots([own[across].to_numpy(np.float64) for own in seeds], first)
    curves = np.stack([np.interp(grid, own[across], own[quantity]) for own in seeds])
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


def _knots(places: Sequence[NDArray[np.float64]], first: float) -> NDArray[np.float64]:
    reach = min(own.max() for own in places)
    grid = np.unique(np.concatenate(places))
    grid = grid[(grid >= first) & (grid <= reach)]
    return grid if len(grid) <= _POINTS else grid[np.unique(np.linspace(0, len(grid) - 1, _POINTS).astype(int))]


def b_staleness(means: dict[str, pd.DataFrame], said: str = "", view: View | None = None) -> Picture:
    """Mean B-staleness against staleness, a line per run; larger dots where more gradients had that staleness.

    Args:
        means: by the name of a run, a table with columns staleness, gradients (how many) and mean.
        said: of which seed.
        view: how wide, in which colours.
    """
    view = view or View()
    with style(view):
        figure, (axis,) = panels(1, (5.6, 3.5), view)
        for name, (colour, dashes) in view.looks_of(means).items():
            own = means[name]
            axis.plot(own["staleness"], own["mean"], color=colour, linestyle=dashes, label=name, linewidth=1, **marks(colour))
            sizes = 4 + 60 * own["gradients"] / max(1, own["gradients"].sum())
            axis.scatter(own["staleness"], own["mean"], s=sizes, color=colour, linewidths=0)
        axis.set(xlabel="staleness, updates", ylabel="B-staleness", ylim=(0, None))
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        legend(figure, axis, view)
        caption(figure, said, "lines: means of the gradients of each staleness; larger dots: more gradients")
    return figure


def copies(runs: dict[str, pd.DataFrame], said: str = "", view: View | None = None) -> Picture:
    """Copies of gradients pushed and of parameters fetched, against how many could have been; dotted: all of them.

    Args:
        runs: by the name of a run, a table with columns potential, pushes and fetches, all counted from the start.
        said: of which seed.
        view: how wide, in which colours.
    """
    view = view or View()
    most = max(each["potential"].iloc[-1] for each in runs.values())
    drawn = {"pushes": "gradients pushed", "fetches": "parameters fetched"}
    with style(view):
        figure, axes = panels(2, (4.6, 3.5), view, share="xy")
        for axis, (column, label) in zip(axes, drawn.items(), strict=True):
            axis.plot((0, most), (0, most), color=FAINT, linestyle=":", linewidth=1, label=TARGET)
            for name, (colour, dashes) in view.looks_of(runs).items():
                own = runs[name]
                shown = own.iloc[np.unique(np.linspace(0, len(own) - 1, _POINTS).astype(int))]
                axis.plot(
                    shown["potential"],
                    shown[column],
                    color=colour,
                    linestyle=dashes,
                    label=name,
                    linewidth=1.5,
                    **marks(colour),
                )
            axis.set(xlabel="potential copies", ylabel=f"{label}, copies")
            counted(axis.xaxis)
            counted(axis.yaxis)
        legend(figure, axes[0], view)
        caption(figure, said, "dotted: all that could have been sent")
    return figure
