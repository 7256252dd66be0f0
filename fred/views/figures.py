"""What all pictures share: their look, their size on a screen or a page, titles, legends, and the same bytes each time."""

import io
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from fred.files.inputs import replaced
from fred.views.view import COLOURS as COLOURS
from fred.views.view import OF_TIME as OF_TIME
from fred.views.view import View
from fred.views.view import lines as lines

FORMATS = ("svg", "pdf", "png")
BEST, TARGET = "_best", "_target"  # labels of stars and lines that no legend names
FAINT = "#5B5B5B"
_MANY = 6  # panels, from which on they may be small
_ROOM = 18  # lines of a legend of the usual size
_UNDATED: dict[str, Any] = {  # so that the same picture is the same bytes
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
_POINTS = {None: 9.0, "two": 8.0, "one": 7.0}  # size of letters, by the width


@contextmanager
def style(view: View | None = None) -> Iterator[None]:
    """The look of all pictures, for the duration of a `with`; what the font lacks is drawn as boxes without a word.

    Args:
        view: whose width says how large letters are.
    """
    letters = {"font.size": _POINTS[view.width if view else None]}
    with matplotlib.rc_context(_STYLE | letters), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Picture(Figure):
    """A matplotlib figure that notebooks show without further ado.

    Whatever matplotlib does with figures can be done with it, before it is saved.
    """

    def save(self, path: Path) -> None:
        """Write an SVG, PDF or PNG file, as the name's ending says, the same bytes for the same picture. Raises FredError.

        Args:
            path: the file, in a folder that is there; what it held is replaced by a whole picture.

        >>> from pathlib import Path
        >>> with style():
        ...     Picture(figsize=(1, 1)).save(Path("empty.svg"))
        >>> Path("empty.svg").read_text().count("<svg")
        1
        """
        with style(), replaced(path) as new:
            self.savefig(new, metadata=_UNDATED.get(path.suffix))

    def draw(self, renderer: Any) -> None:
        """Draw; where matplotlib does so before it saves, which is for the layout alone, lay out alone.

        Args:
            renderer: of matplotlib's.
        """
        engine = self.get_layout_engine()
        if self.axes and isinstance(engine, ConstrainedLayoutEngine) and self.canvas.is_saving():
            with suppress(ValueError):  # as matplotlib does
                engine.execute(self)
        else:
            super().draw(renderer)

    def _repr_svg_(self) -> str:
        buffer = io.StringIO()
        with style():
            self.savefig(buffer, format="svg", metadata=_UNDATED[".svg"])
        return buffer.getvalue()


def panels(count: int, each: tuple[float, float], view: View, most: int = 3, share: str = "") -> tuple[Picture, list[Axes]]:
    """A picture with so many panels in rows, each as large as it can be on a page, or as large as is said.

    Args:
        count: of panels; what is left of the last row stays empty.
        each: width and height of one, in, where there is no page.
        view: whose width is that of the page.
        most: in a row.
        share: the axes that all have alike, `x`, `y` or both.
    """
    columns = min(most, max(1, count))
    wide, high = columns * each[0], each[1]
    if view.inches:
        columns = max(1, min(columns, int(view.inches / (2.2 if count <= _MANY else 1.6))))
        wide, high = view.inches, min(each[1], 0.62 * view.inches / columns)
    rows = -(-max(1, count) // columns)
    figure = Picture(figsize=(wide, 0.2 + high * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex="x" in share, sharey="y" in share).ravel().tolist()
    for axis in axes[count:]:
        axis.set_axis_off()
    for axis in axes[max(0, count - columns) : count]:
        axis.xaxis.set_tick_params(labelbottom=True)
    return figure, axes[:count]


def headline(figure: Picture, title: str, view: View) -> None:
    """The scenario's title, on as many lines as it needs; on a page, where the text has it, none.

    Args:
        figure: whose width says how much fits on a line.
        title: text, in which nothing is taken for mathematics.
        view: whether there is a page.
    """
    if view.width is None:
        words = "\n".join(textwrap.wrap(title, int(10.8 * figure.get_figwidth())))
        figure.suptitle(words, x=0.01, ha="left", fontsize=10.8, fontweight="bold", parse_math=False)


def caption(figure: Picture, *said: str) -> None:
    """A faint line at the bottom: what is a mean, what a range, what is left out.

    Args:
        figure: whose width says how much fits on a line.
        said: what there is to say; nothing if it is empty.
    """
    size = 0.85 * matplotlib.rcParams["font.size"]
    room = int(figure.get_figwidth() * 72 / (0.56 * size))
    words = textwrap.wrap("; ".join(filter(None, said)), room, break_on_hyphens=False)
    if words:
        figure.set_figheight(figure.get_figheight() + 0.019 * size * len(words))
        figure.supxlabel("\n".join(words), x=0.01, ha="left", fontsize=size, color=FAINT, parse_math=False)


def over_seeds(runs: Iterable[Any], seeds: Iterable[Any]) -> str:
    """What the mean is of, in the words of the table; empty where each run has one seed.

    Args:
        runs: the name of a run, of each measurement.
        seeds: its seed, of each measurement.

    >>> over_seeds(["a", "a", "b", "b"], [1, 2, 1, 2]), over_seeds(["a", "b", "b"], [1, 1, 2]), over_seeds(["a", "b"], [1, 2])
    ('means over 2 seeds', "means over each run's seeds", '')
    """
    counts = pd.DataFrame({"run": list(runs), "seed": list(seeds)}).groupby("run")["seed"].nunique()
    if counts.max() == 1:
        return ""
    return f"means over {counts.max()} seeds" if counts.nunique() == 1 else "means over each run's seeds"


def legend(figure: Picture, axis: Axes, view: View) -> None:
    """At the right; on a page on top. In smaller letters, and with taller pictures, where there are many lines.

    Args:
        figure: the picture, which may grow.
        axis: whose lines are named; stars and targets are not.
        view: whether there is a page.
    """
    shown = [line for line in axis.get_lines() if line.get_label() not in (BEST, TARGET)]
    letters = matplotlib.rcParams["font.size"]
    size = letters if len(shown) <= _ROOM else 0.75 * letters
    if view.width is None:
        figure.set_figheight(max(figure.get_figheight(), 0.6 + 0.019 * size * len(shown)))
        figure.legend(handles=shown, loc="outside right center", fontsize=size)
    else:
        on_top(figure, shown, [str(line.get_label()) for line in shown], size)


def on_top(figure: Picture, handles: Sequence[Any], labels: Sequence[str], size: float | None = None) -> None:
    """A legend above all panels, in as many columns as there is room for; the picture grows by its rows.

    Args:
        figure: the picture.
        handles: what is explained.
        labels: how it is called.
        size: of the letters, points.
    """
    if not len(handles):
        return
    size = size or float(matplotlib.rcParams["font.size"])
    one = (4.5 + 0.62 * max((len(label) for label in labels), default=0)) * size / 72  # in, with its mark
    columns = max(1, min(len(labels), int((figure.get_figwidth() - 0.1) / one)))
    figure.set_figheight(figure.get_figheight() + 0.019 * size * -(-len(labels) // columns))
    drawn = figure.legend(
        handles=handles,
        labels=labels,
        loc="outside upper left",
        ncols=columns,
        fontsize=size,
        handlelength=1.6,
        columnspacing=1.2,
    )
    for text in drawn.get_texts():
        text.set_parse_math(False)


def titled(axis: Axes, names: Sequence[str], more: str = "", width: int = 34) -> None:
    """The names of those who share a panel, as many as it has room for; `more` on a line of its own.

    Args:
        axis: the panel.
        names: one or several; how many were left out is said.
        more: never cut.
        width: letters for which there is room.
    """
    axis.set_title("\n".join(filter(None, (listed(names, width), more))), parse_math=False)


def listed(names: Sequence[str], width: int) -> str:
    """As many names as there is room for, and how many more there are.

    Args:
        names: one or several; a single one is cut if it must be.
        width: letters for which there is room.

    >>> listed(["asgd", "sasgd"], 20), listed(["asgd", "sasgd", "fasgd"], 16), listed(["asgd-with-a-long-name"], 10)
    ('asgd, sasgd', 'asgd and 2 more', 'asgd-with- …')
    """
    shown, left_out = ", ".join(names), 0
    while len(shown) > width and left_out < len(names) - 1:
        left_out += 1
        shown = f"{', '.join(names[:-left_out])} and {left_out} more"
    return shown if len(shown) <= width + 4 else f"{shown[:width]} …"
