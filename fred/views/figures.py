"""Pictures of results: matplotlib figures that show themselves in a notebook and are saved as the same SVG bytes each time."""

import io
import itertools
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from numpy.typing import NDArray

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F3C8D", "#5B5B5B", "#A5AA39", "#8C2D04")
OF_TIME = {"computing": "#56B4E9", "in_vain": "#D55E00", "network": "#CC79A7", "waiting": "#D0D0D0", "away": "#5B5B5B"}
BEST, _TARGET = "_best", "_target"  # labels of stars and lines that no legend names
_ROOM = 18  # lines of a legend of the usual size
_STYLE: Any = {
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E6E6E6",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "svg.hashsalt": "fred",
    "svg.fonttype": "path",
}


@contextmanager
def style() -> Iterator[None]:
    """The look of all pictures, for the duration of a `with`; what the font lacks is drawn as boxes without a word."""
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Picture(Figure):
    """A matplotlib figure that notebooks show without further ado.

    Whatever matplotlib does with figures can be done with it, before it is saved.
    """

    def save(self, path: Path) -> None:
        """Write an SVG file (or what the name's ending says), the same bytes for the same picture.

        Args:
            path: the file, in a folder that is there; what it held is replaced.

        >>> from pathlib import Path
        >>> with style():
        ...     Picture(figsize=(1, 1)).save(Path("empty.svg"))
        >>> Path("empty.svg").read_text().count("<svg")
        1
        """
        with style():
            self.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)

    def _repr_svg_(self) -> str:
        buffer = io.StringIO()
        with style():
            self.savefig(buffer, format="svg", metadata={"Date": None})
        return buffer.getvalue()


def learning(metrics: pd.DataFrame, quantity: str, title: str, target: float | None = None) -> Picture:
    """A quantity against updates and against virtual time: the seeds' mean as a line, their range as a band.

    A dotted line is drawn at the target, if there is one.

    Args:
        metrics: rows of evaluations, with columns run, seed, updates, virtual_seconds (s) and the quantity.
        quantity: the column to be drawn, on a logarithmic axis if its values are far apart.
        title: above both panels, on as many lines as it needs.
        target: of the quantity.
    """
    clocked = metrics["virtual_seconds"].notna().any()
    panels = [("updates", "updates")] + ([("virtual_seconds", "virtual time, s")] if clocked else [])
    with style():
        figure = Picture(figsize=(4.6 * len(panels), 3.5), layout="constrained")
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axis, (column, label) in zip(axes, panels, strict=True):
            for (colour, dashes), (name, runs) in zip(lines(), metrics.groupby("run", sort=False), strict=False):
                _band(axis, [own for _, own in runs.groupby("seed")], column, quantity, str(name), colour, dashes)
            axis.set(xlabel=label)
            if column == "updates" and far_apart(metrics.groupby("run")[column].max()):
                axis.set_xscale("symlog", linthresh=10)
                axis.set_xlim(left=-1)  # margins would reach far into what is negative
            if target is not None:
                axis.axhline(target, color="#5B5B5B", linestyle=":", linewidth=1, label=_TARGET)
        axes[0].set(ylabel=_LABELS.get(quantity, quantity), yscale="log" if far_apart(metrics[quantity]) else "linear")
        for axis in (*[each.xaxis for each in axes], axes[0].yaxis):
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_formatter(NullFormatter())
        if axes[0].get_yscale() == "log":
            axes[0].set_ylim(bottom=max(axes[0].get_ylim()[0], metrics[quantity][np.isfinite(metrics[quantity])].max() / 1e4))
            axes[0].yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        legend(figure, axes[0])
        headline(figure, title)
    return figure


_LABELS = {"replicas_error": "replicas' error"}  # of quantities that are not their own


def headline(figure: Picture, title: str) -> None:
    """The scenario's title, on as many lines as it needs.

    Args:
        figure: whose width says how much fits on a line.
        title: text, in which nothing is taken for mathematics.
    """
    words = "\n".join(textwrap.wrap(title, int(11.5 * figure.get_figwidth())))
    figure.suptitle(words, x=0.01, ha="left", fontweight="bold", parse_math=False)


def legend(figure: Picture, axis: Axes) -> None:
    """At the right; in smaller letters and taller pictures where there are many lines.

    Args:
        figure: the picture, which may grow.
        axis: whose lines are named; stars and targets are not.
    """
    lines = [line for line in axis.get_lines() if line.get_label() not in (BEST, _TARGET)]
    size = 9 if len(lines) <= _ROOM else 6
    figure.set_figheight(max(figure.get_figheight(), 0.4 + 0.019 * size * len(lines)))
    figure.legend(handles=lines, loc="outside right center", fontsize=size)


def staleness(stale: dict[str, NDArray[np.int64]]) -> Picture:
    """One histogram of staleness per run, on a shared scale; `stale` counts the gradients of each staleness.

    Args:
        stale: by the name of a run (or several that share a timing), the number of gradients of each staleness, from 0 to the
            largest, in updates [largest + 1].
    """
    with style():
        columns = min(3, len(stale))
        rows = -(-len(stale) // columns)
        figure = Picture(figsize=(3.1 * columns, 0.2 + 2.1 * rows), layout="constrained")
        axes = figure.subplots(rows, columns, sharex=True, squeeze=False).ravel()
        largest = max(0, *(len(counts) - 1 for counts in stale.values()))
        width = max(1, -(-(largest + 1) // 60))
        bins = np.arange(0, largest + 1 + width, width) - 0.5
        for axis, colour, (name, counts) in zip(axes, cycle(), stale.items(), strict=False):
            values = np.arange(len(counts))
            axis.hist(values, bins=bins, color=colour, weights=100 * counts / max(1, counts.sum()))
            titled(axis, name, f"mean {np.average(values, weights=counts):.1f}, max {values[-1]}" if len(counts) else "none")
            axis.set(ylabel="% of gradients", xlim=(min(bins[0], -0.6), max(bins[-1], 4.5)))
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        for axis in axes[len(stale) :]:
            axis.set_axis_off()
        for axis in axes[max(0, len(stale) - columns) : len(stale)]:
            axis.set_xlabel("staleness, updates")
            axis.xaxis.set_tick_params(labelbottom=True)
    return figure


def b_staleness(means: dict[str, pd.DataFrame]) -> Picture:
    """Mean B-staleness against staleness, a line per run; larger dots where more gradients had that staleness.

    Args:
        means: by the name of a run, a table with columns staleness, gradients (how many) and mean.
    """
    with style():
        figure = Picture(figsize=(5.6, 3.5), layout="constrained")
        axis = figure.subplots()
        for (colour, dashes), (name, own) in zip(lines(), means.items(), strict=False):
            axis.plot(own["staleness"], own["mean"], color=colour, linestyle=dashes, label=name, linewidth=1)
            sizes = 4 + 60 * own["gradients"] / max(1, own["gradients"].sum())
            axis.scatter(own["staleness"], own["mean"], s=sizes, color=colour, linewidths=0)
        axis.set(xlabel="staleness, updates", ylabel="B-staleness", ylim=(0, None))
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        legend(figure, axis)
    return figure


def titled(axis: Axes, name: str, more: str = "", width: int = 34) -> None:
    """A run's name, or all that share a panel, cut to what the panel has room for; `more` on a line of its own.

    Args:
        axis: the panel.
        name: cut after whole words, if there are several.
        more: never cut.
        width: letters for which there is room.
    """
    shown = textwrap.shorten(name, width, placeholder=" …") if len(name) > width else name
    axis.set_title("\n".join(filter(None, (shown[: width + 2], more))), parse_math=False, fontsize=9)


def stacked(parts: dict[str, dict[str, float]], label: str, colours: Sequence[str] = COLOURS) -> Picture:
    """A bar for each run, put together from its parts; those that no run has are left out.

    Args:
        parts: by the name of a run, the length of each of its parts; all runs have the same ones, in this order.
        label: what the lengths are, with their unit.
        colours: one for each part; further parts begin again with the first.
    """
    with style():
        figure = Picture(figsize=(6.5, 1.0 + 0.3 * len(parts)), layout="constrained")
        axis = figure.subplots()
        left = np.zeros(len(parts))
        for colour, part in zip(itertools.cycle(colours), next(iter(parts.values())), strict=False):
            lengths = np.array([own[part] for own in parts.values()])
            if lengths.any():
                axis.barh(range(len(parts)), lengths, 0.7, left, color=colour, label=part.replace("_", " "))
                left += lengths
        axis.set(yticks=range(len(parts)), yticklabels=list(parts), xlabel=label)
        for tick in axis.get_yticklabels():
            tick.set_parse_math(False)
        axis.grid(axis="y", visible=False)
        axis.invert_yaxis()
        if left.any():
            figure.legend(loc="outside lower right", ncols=len(OF_TIME))
    return figure


def copies(runs: dict[str, pd.DataFrame]) -> Picture:
    """Copies of gradients pushed and of parameters fetched, against how many could have been; dotted: all of them.

    Args:
        runs: by the name of a run, a table with columns potential, pushes and fetches, all counted from the start.
    """
    with style():
        figure = Picture(figsize=(9.2, 3.5), layout="constrained")
        axes = figure.subplots(1, 2, sharex=True, sharey=True)
        for axis, (column, label) in zip(
            axes, (("pushes", "gradients pushed"), ("fetches", "parameters fetched")), strict=True
        ):
            most = max(each["potential"].iloc[-1] for each in runs.values())
            axis.plot((0, most), (0, most), color="#5B5B5B", linestyle=":", linewidth=1, label=_TARGET)
            for (colour, dashes), (name, each) in zip(lines(), runs.items(), strict=False):
                shown = each.iloc[np.unique(np.linspace(0, len(each) - 1, 400).astype(int))]
                axis.plot(shown["potential"], shown[column], color=colour, linestyle=dashes, label=name, linewidth=1.5)
            axis.set(xlabel="potential copies", ylabel=f"{label}, copies")
        legend(figure, axes[0])
    return figure


def _band(axis: Axes, seeds: list[pd.DataFrame], column: str, quantity: str, name: str, colour: str, dashes: str = "-") -> None:
    reach = min(own[column].max() for own in seeds)
    grid = np.linspace(0, reach, 200)
    curves = np.stack([np.interp(grid, own[column], own[quantity]) for own in seeds])
    axis.plot(grid, np.mean(curves, axis=0), color=colour, linestyle=dashes, label=name, linewidth=1.5)
    if len(seeds) > 1:
        axis.fill_between(grid, curves.min(axis=0), curves.max(axis=0), color=colour, alpha=0.18, linewidth=0)


def far_apart(values: pd.Series) -> bool:
    """Whether a linear axis would hide the small values.

    Args:
        values: those that are not finite, or not above 0, do not count.

    >>> far_apart(pd.Series([1.0, 2.0, 5.0])), far_apart(pd.Series([0.01, 2.0, np.inf]))
    (False, True)
    """
    positive = values[np.isfinite(values) & (values > 0)]
    return bool(len(positive) and positive.max() > 6 * positive.min())


def lines() -> list[tuple[str, str]]:
    """Colours and dashes, none twice for forty lines.

    >>> len(lines()), len(set(lines()[:40]))
    (400, 40)
    """
    return [(colour, dashes) for dashes in ("-", "--", ":", "-.") for colour in COLOURS] * 10


def cycle() -> list[str]:
    """Enough colours for any number of runs."""
    return list(COLOURS) * 10
