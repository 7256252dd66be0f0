"""The parts that all figures share: style, size, titles, names of lines, axes, and reproducible files.

A figure is for a screen, with a title, or as wide as one or two columns of a paper, without one. Its lines have their names at
their ends in the last panel, or in a legend. An axis is logarithmic if a linear one would hide the small values.
"""

import io
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.container import Container
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from fred.base.disk import replaced
from fred.base.errors import FredError, unbroken
from fred.views.view import COLOURS as COLOURS
from fred.views.view import OF_TIME as OF_TIME
from fred.views.view import SCREEN, View
from fred.views.view import lines as lines

FORMATS = ("svg", "pdf", "png")
BEST, TARGET = "_best", "_target"  # labels of stars and lines that legends leave out
FAINT = "#5B5B5B"
_MANY_PANELS = 6  # more panels than this may be small
_NARROWEST, _NARROWEST_OF_MANY = 2.2, 1.6  # least width of a panel in a figure of a given width, inches
_HIGHEST = 0.62  # largest height of such a panel, relative to its width
_ROOM = 18  # more lines than this make the letters of a legend smaller
_UNDATED: dict[str, Any] = {  # no dates, so that the same figure is the same bytes
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}
_STYLE: Any = {
    "axes.titlesize": "medium",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E6E6E6",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "svg.hashsalt": "fred",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,  # TrueType: publishers refuse matplotlib's usual Type 3
    "savefig.dpi": 200,
}
_POINTS = {None: 9.0, "two": 8.0, "one": 7.0}  # font size in points, by the width
_MOST_NAMED_LINES = 8  # more lines than this are named in a legend
_LINE_ENDS = 0.9  # where all lines must end, share of the panel's width
_LABEL_PLACE = 1.06  # of the labels, share of the panel's width
_MARGINS = 1.3  # inches of a figure's height that are not the panel's
_SPACING = 1.3  # distance of two labels, in font sizes
_LINE_HEIGHT = 0.019  # inches per point of the font size
_DECADES = 3.0  # from this span on, only powers of ten get a tick


@contextmanager
def style(view: View = SCREEN) -> Iterator[None]:
    """Apply the style of all figures within a `with` block, and silence warnings, such as for letters that the font lacks.

    Args:
        view: the view whose width sets the font size.
    """
    letters = {"font.size": _POINTS[view.width]}
    with matplotlib.rc_context(_STYLE | letters), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Picture(Figure):
    """A matplotlib figure that notebooks display directly.

    It can be changed with matplotlib like any figure before it is saved.
    """

    def save(self, path: str | Path) -> None:
        """Write an SVG, PDF or PNG file. The same figure gives the same bytes. Raises FredError.

        Args:
            path: the file, in an existing folder; its ending sets the format. An existing file is replaced atomically.

        >>> with style():
        ...     Picture(figsize=(1, 1)).save("empty.svg")
        >>> Path("empty.svg").read_text().count("<svg")
        1
        """
        path = Path(path)
        with style(), replaced(path) as new:
            self.savefig(new, metadata=_UNDATED.get(path.suffix))

    def savefig(self, *target: Any, **options: Any) -> None:
        """Write the figure as matplotlib does, with linear axes where no value is above 0.

        Args:
            target: file or buffer, as in matplotlib.
            options: matplotlib's options.
        """
        for axis in self.axes:
            for letter, least in (("x", axis.dataLim.minposx), ("y", axis.dataLim.minposy)):
                if getattr(axis, f"get_{letter}scale")() == "log" and not np.isfinite(least):
                    getattr(axis, f"set_{letter}scale")("linear")  # matplotlib refuses to find ticks
        with matplotlib.rc_context({"pdf.fonttype": 42}):  # as in `save`
            super().savefig(*target, **options)

    def draw(self, renderer: Any) -> None:
        """Draw the figure. The extra drawing that matplotlib does before saving only computes the layout, to save time.

        Args:
            renderer: matplotlib's renderer.
        """
        engine = self.get_layout_engine()  # matplotlib turns it off before it draws into the file
        if self.axes and isinstance(engine, ConstrainedLayoutEngine) and self.canvas.is_saving():
            with suppress(ValueError):  # matplotlib ignores it too
                engine.execute(self)
        else:
            super().draw(renderer)

    def _repr_svg_(self) -> str:
        buffer = io.StringIO()
        with style():
            self.savefig(buffer, format="svg", metadata=_UNDATED[".svg"])
        return buffer.getvalue()


def save_or_note(draw: Callable[[], Picture], path: Path) -> None:
    """Draw a figure and save it; if it cannot be drawn, warn, and save a note. So a figure never costs a result.

    Args:
        draw: makes the figure.
        path: the file.

    Raises FredError and OSError for a file that cannot be written.
    """
    try:
        draw().save(path)
    except (FredError, OSError, MemoryError):
        raise
    except Exception as error:  # of matplotlib
        reason = f"{path.name} cannot be drawn: {type(error).__name__}: {error}"
        warnings.warn(reason, stacklevel=2)
        with style():
            note = Picture(figsize=(6, 1.2))
            note.text(0.02, 0.5, textwrap.fill(reason, 80), va="center", parse_math=False)
            note.save(path)


def panels(
    count: int, panel_inches: tuple[float, float], view: View, most: int = 3, share: str = ""
) -> tuple[Picture, list[Axes]]:
    """Return a figure and its panels, arranged in rows.

    Args:
        count: number of panels; the rest of the last row stays empty.
        panel_inches: width and height of one panel, in inches, if the view sets no width; otherwise panels fill that width.
        view: the view that sets the width of the figure.
        most: largest number of panels in a row.
        share: axes that all panels share, `x`, `y` or both.
    """
    if view.ax is not None:
        if count != 1:
            raise FredError(f"this figure has {count} panels, which do not fit into one `ax`; draw it without `ax`")
        return view.ax.figure, [view.ax]
    columns = min(most, max(1, count))
    width, height = columns * panel_inches[0], panel_inches[1]  # of the figure, and of one panel
    if view.inches:
        columns = max(1, min(columns, int(view.inches / (_NARROWEST if count <= _MANY_PANELS else _NARROWEST_OF_MANY))))
        width, height = view.inches, min(panel_inches[1], _HIGHEST * view.inches / columns)
    rows = -(-max(1, count) // columns)
    figure = Picture(figsize=(width, 0.2 + height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex="x" in share, sharey="y" in share).ravel().tolist()
    for axis in axes[count:]:
        axis.set_axis_off()
    for axis in axes[max(0, count - columns) : count]:  # the lowest of each column, which may not be in the last row
        axis.xaxis.set_tick_params(labelbottom=True)
    return figure, axes[:count]


def headline(figure: Picture, title: str, view: View) -> None:
    """Add the scenario's title, wrapped to the figure. In a paper the text has the title, so the figure gets none.

    Args:
        figure: the figure.
        title: plain text; `$` does not start mathematics.
        view: the view; if it sets a width, the figure is for a paper.
    """
    if view.width is None and view.ax is None:
        most_letters = int(10.8 * figure.get_figwidth())  # in a line
        wrapped = "\n".join(textwrap.wrap(unbroken(title), most_letters)).replace("\N{NO-BREAK SPACE}", " ")
        figure.suptitle(wrapped, x=0.01, ha="left", fontsize=10.8, fontweight="bold", parse_math=False)


def caption(figure: Picture, *parts: str) -> None:
    """Add a caption at the bottom, such as the meanings of lines and ranges.

    Args:
        figure: the figure; it grows by the lines of the caption.
        parts: parts of the caption; empty ones are left out.
    """
    if not isinstance(figure, Picture):
        return  # the user's figure has a caption of its own
    size = float(matplotlib.rcParams["font.size"])
    most_letters = int(figure.get_figwidth() * 72 / (0.56 * size))  # in a line; 72 points are an inch
    lines = textwrap.wrap("; ".join(filter(None, parts)), most_letters, break_on_hyphens=False)
    if lines:
        figure.set_figheight(figure.get_figheight() + _LINE_HEIGHT * size * len(lines))
        figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=size, color=FAINT, parse_math=False)


def over_seeds(runs: Iterable[Any], seeds: Iterable[Any]) -> str:
    """Return the phrase that says over how many seeds means are taken; empty if each run has one seed.

    Args:
        runs: the run of each measurement.
        seeds: the seed of each measurement.

    >>> over_seeds(["a", "a", "b", "b"], [1, 2, 1, 2]), over_seeds(["a", "b", "b"], [1, 1, 2]), over_seeds(["a", "b"], [1, 2])
    ('means over 2 seeds', "means over each run's seeds", '')
    """
    counts = pd.DataFrame({"run": list(runs), "seed": list(seeds)}).groupby("run")["seed"].nunique()
    if counts.max() == 1:
        return ""
    return f"means over {counts.max()} seeds" if counts.nunique() == 1 else "means over each run's seeds"


def legend(figure: Picture, axis: Axes, view: View) -> None:
    """Add a legend at the right, or in a paper at the top. Many lines make its letters smaller and the figure taller.

    Args:
        figure: the figure, which may grow.
        axis: the panel whose lines are named; stars and targets are left out.
        view: the view; if it sets a width, the figure is for a paper.
    """
    handles = [line for line in axis.get_lines() if line.get_label() not in (BEST, TARGET)]
    if view.ax is not None:
        axis.legend(handles=handles)
        return
    usual_size = matplotlib.rcParams["font.size"]
    size = usual_size if len(handles) <= _ROOM else 0.75 * usual_size
    if view.width is None:
        figure.set_figheight(max(figure.get_figheight(), 0.6 + _LINE_HEIGHT * size * len(handles)))
        figure.legend(handles=handles, loc="outside right center", fontsize=size)
    else:
        on_top(figure, handles, [str(line.get_label()) for line in handles], size)


def on_top(figure: Picture, handles: Sequence[Any], labels: Sequence[str], size: float | None = None) -> None:
    """Add a legend above all panels, in as many columns as fit; the figure grows by its rows.

    Args:
        figure: the figure.
        handles: the matplotlib artists to explain.
        labels: their labels.
        size: font size, points.
    """
    if not len(handles):
        return
    if not isinstance(figure, Picture):  # the user's, whose size stays: a legend inside the panel, if there are bars in it
        bars = [handle for handle in handles if isinstance(handle, Container) and len(handle)]
        if bars:
            bars[0][0].axes.legend(handles=handles, labels=labels)
        return
    size = size or float(matplotlib.rcParams["font.size"])
    longest = max((len(label) for label in labels), default=0)
    entry_inches = (4.5 + 0.62 * longest) * size / 72  # width of one entry: its mark and its letters
    columns = max(1, min(len(labels), int((figure.get_figwidth() - 0.1) / entry_inches)))
    rows = -(-len(labels) // columns)
    figure.set_figheight(figure.get_figheight() + _LINE_HEIGHT * size * rows)
    box = figure.legend(
        handles=handles,
        labels=labels,
        loc="outside upper left",
        ncols=columns,
        fontsize=size,
        handlelength=1.6,
        columnspacing=1.2,
    )
    for text in box.get_texts():
        text.set_parse_math(False)


def titled(axis: Axes, names: Sequence[str], suffix: str = "", width: int = 34) -> None:
    """Set the title of a panel: the names of its runs, as many as fit, and `suffix` on a second line.

    Args:
        axis: the panel.
        names: one or more names; the title says how many were left out.
        suffix: text that is never cut.
        width: number of letters that fit.
    """
    axis.set_title("\n".join(filter(None, (listed(names, width), suffix))), parse_math=False)


def listed(names: Sequence[str], width: int) -> str:
    """Return as many names as fit, and the number of the others.

    Args:
        names: one or more names; a single name is cut if it is too long.
        width: number of letters that fit.

    >>> listed(["asgd", "sasgd"], 20), listed(["asgd", "sasgd", "fasgd"], 16), listed(["asgd-with-a-long-name"], 10)
    ('asgd, sasgd', 'asgd and 2 more', 'asgd-with- …')
    """
    text, omitted = ", ".join(names), 0
    while len(text) > width and omitted < len(names) - 1:
        omitted += 1
        text = f"{', '.join(names[:-omitted])} and {omitted} more"
    return text if len(text) <= width + 4 else f"{text[:width]} …"  # a text that is a little too long is not cut


def name_lines(figure: Picture, axes: Sequence[Axes], view: View) -> None:
    """Name the lines at their right ends if there are up to eight; otherwise, and in a paper, in a legend.

    Args:
        figure: the figure.
        axes: its panels; the last one gets the labels if all are in one row. Their limits are final.
        view: the view; if it sets a width, the figure is for a paper.
    """
    lines = [line for line in axes[-1].get_lines() if line.get_label() not in (BEST, TARGET)]
    # Labels at the last panel name the lines of all panels, so they must include those of the first one.
    same_labels = {line.get_label() for line in lines} >= {line.get_label() for line in axes[0].get_lines()} - {BEST, TARGET}
    one_row = np.ptp([axis.get_position().y0 for axis in axes]) == 0
    if view.width is None and view.ax is None and one_row and same_labels and 0 < len(lines) <= _MOST_NAMED_LINES:
        ends = np.array([_end(axes[-1], line) for line in lines])
        if (ends[:, 0] > _LINE_ENDS).all():
            _label_ends(figure, axes[-1], lines, ends)
            return
    legend(figure, axes[0], view)


def _end(axis: Axes, line: Line2D) -> NDArray[np.float64]:
    """Return the last finite point of a line, as shares of the panel's width and height; (0, 0) if there is none."""
    axis.get_xlim(), axis.get_ylim()  # matplotlib sets limits late
    points = (axis.transData - axis.transAxes).transform(line.get_xydata())
    points = points[np.isfinite(points).all(axis=1)]
    return np.clip(points[-1], 0, 1) if len(points) else np.zeros(2)


def _label_ends(figure: Picture, axis: Axes, lines: Sequence[Line2D], ends: NDArray[np.float64]) -> None:
    """Write the name and the mark of each line at the right of the panel, with a thin line to its end.

    Args:
        figure: the figure.
        axis: the panel.
        lines: the lines of the panel.
        ends: end of each line, shares of the panel's width and height [lines, 2].
    """
    size = matplotlib.rcParams["font.size"]
    gap = _SPACING * size / 72 / (figure.get_figheight() - _MARGINS)  # share of the panel's height
    order = np.argsort(ends[:, 1], kind="stable")
    heights = spaced(ends[order, 1], gap)
    for line, end, height in zip([lines[i] for i in order], ends[order], heights, strict=True):
        colour, place = line.get_color(), (_LABEL_PLACE, height)
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
    # Without the steps, labels `gap` apart are at one height. So this is isotonic regression, by pooling adjacent violators.
    steps = gap * np.arange(len(heights))
    groups: list[list[float]] = []  # of labels that touch: the sum of their heights without the steps, and their number
    for value in heights - steps:
        groups.append([float(value), 1])
        while len(groups) > 1 and groups[-2][0] / groups[-2][1] > groups[-1][0] / groups[-1][1]:
            total, count = groups.pop()
            groups[-1] = [groups[-1][0] + total, groups[-1][1] + count]
    means: NDArray[np.float64] = np.concatenate([np.full(int(count), total / count) for total, count in groups])
    return np.clip(means, 0, max(0, 1 - steps[-1])) + steps


def plain_logarithmic(axis: Axes, letter: str, decades: float = 1) -> None:
    """Make an axis logarithmic, with numbers in plain notation.

    Values that are not above 0 are left out of an `x` axis, and lie below the visible part of a `y` axis.

    Args:
        axis: the panel.
        letter: `x` or `y`.
        decades: number of decades that the axis spans; from three on, only powers of ten get a tick.
    """
    getattr(axis, f"set_{letter}scale")("log", nonpositive="mask" if letter == "x" else "clip")
    ticked_axis = getattr(axis, f"{letter}axis")
    ticked_axis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < _DECADES else (1,)))
    ticked_axis.set_minor_locator(NullLocator())
    ticked_axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))


def set_count_ticks(axis: Axis) -> None:
    """Give a linear axis few ticks, with numbers written out in full.

    Args:
        axis: the axis, `xaxis` or `yaxis` of a panel.
    """
    axis.set_major_locator(MaxNLocator(5, steps=(1, 2, 2.5, 5, 10)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def far_apart(values: pd.Series, times: float = 6) -> bool:
    """Return True if a linear axis would hide the small values.

    Args:
        values: the values; those that are not finite or not above 0 are ignored.
        times: ratio of the largest to the smallest value above which this is so.

    >>> far_apart(pd.Series([1.0, 2.0, 5.0])), far_apart(pd.Series([0.01, 2.0, np.inf]))
    (False, True)
    """
    positive = values[np.isfinite(values) & (values > 0)]
    return bool(len(positive) and positive.max() > times * positive.min())
