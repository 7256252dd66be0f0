"""Options of figures: colours, widths, horizontal axes, and the part of a timeline."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from fred.base.errors import FredError
from fred.components import registry

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F3C8D", "#5B5B5B", "#A5AA39", "#8C2D04")
MARKERS = "os^DvPX*<>"  # of lines in these colours, which distinguish them in grey
OF_TIME = {"computing": "#56B4E9", "wasted": "#D55E00", "network": "#CC79A7", "waiting": "#D0D0D0", "away": "#5B5B5B"}
OF_A_JOB = {"saving": "#009E73", "undone": "#D55E00", "detecting": "#E69F00", "repairing": "#5B5B5B", "loading": "#0072B2"}
WIDTHS = {"one": 3.5, "two": 7.2}  # in, of one and of two columns of a paper
AXES = {  # name -> column of the metrics, label
    "updates": ("updates", "updates"),
    "gradients": ("gradients", "gradients"),
    "seconds": ("virtual_seconds", "virtual time, s"),
    "tokens": ("tokens", "tokens"),
    "cost": ("cost", "cost"),
    "energy": ("energy_kwh", "energy, kWh"),
}
MEASURED = {  # column of the metrics -> label
    "error": "error",
    "loss": "loss",
    "perplexity": "perplexity",
    "gradient_norm": "norm of the gradient",
    "replicas_error": "replicas' error",
    "replicas_loss": "replicas' loss",
    "disagreement": "disagreement of workers' models",
}

LearningCurve = Literal["loss", "error", "perplexity", "gradient-norm", "disagreement", "replicas-error"]
OtherFigure = Literal[
    "paired",
    "traffic",
    "staleness",
    "copies",
    "throughput",
    "workers-time",
    "timeline",
    "pace",
    "cost",
    "sweep",
    "sweep-timing",
]
FigureName = Literal[LearningCurve, OtherFigure]
LEARNING: tuple[str, ...] = get_args(LearningCurve)  # figures whose horizontal axes can be chosen
FIGURES: tuple[str, ...] = get_args(FigureName)
Look = tuple[str, str]  # colour, dashes


@dataclass(frozen=True)
class View:
    """Options for drawing figures. By default figures look like those in a result folder. Raises FredError.

    Args:
        width: width of the figure, `one` or `two` columns of a paper, without a title; None: for a screen, with a title.
        against: horizontal axes of learning curves, one panel each: `updates`, `gradients`, `seconds`, for sequences `tokens`,
            or with `cluster.prices` `cost` and `energy`.
        begin: start of the timeline, virtual time in s.
        end: end of the timeline, virtual time in s.
        workers: workers on the timeline, in this order.
        looks: colour and dashes by the name of a run; other runs get theirs by their order.
        ax: axes of another figure to draw the only panel into, without title and caption; None: a figure of its own.
    >>> View(against=("update",))
    Traceback (most recent call last):
    ...
    fred.FredError: nothing can be shown against `update`; did you mean `updates`?; there are updates, ...
    """

    width: str | None = None
    against: tuple[str, ...] = ("updates", "seconds")
    begin: float | None = None
    end: float | None = None
    workers: tuple[int, ...] | None = None
    looks: Mapping[str, Look] = field(default_factory=dict)
    ax: Any = None

    def __post_init__(self) -> None:
        if self.width is not None and self.width not in WIDTHS:
            raise FredError(f"no width `{self.width}`; a paper has {' or '.join(WIDTHS)} columns")
        for name in self.against:
            if name not in AXES:
                raise FredError(
                    f"nothing can be shown against `{name}`{registry.nearest(name, AXES)}; there are {', '.join(AXES)}"
                )
        if self.begin is not None and not 0 <= self.begin < float("inf"):
            raise FredError(f"the timeline cannot begin at {self.begin:g} s; expected 0 or more")
        if self.end is not None and not (self.begin or 0.0) < self.end < float("inf"):
            raise FredError(
                f"the timeline cannot end at {self.end:g} s; expected more than its beginning, {self.begin or 0:g} s"
            )
        if self.workers is not None and (not self.workers or min(self.workers) < 0):
            raise FredError("the timeline needs workers; their numbers are 0 or more")

    @property
    def inches(self) -> float | None:
        """Return the width of the figure in inches, or None for the default."""
        return None if self.width is None else WIDTHS[self.width]

    def looks_of(self, names: Iterable[str]) -> dict[str, Look]:
        """Return the colour and dashes of each of these runs.
        >>> View(looks={"b": ("red", ":")}).looks_of(["a", "b"])
        {'a': ('#0072B2', '-'), 'b': ('red', ':')}
        """
        return {name: self.looks.get(name, default) for name, default in zip(names, lines(), strict=False)}


SCREEN = View()


def marks(colour: str) -> dict[str, Any]:
    """Return how a line in this colour is marked, now and then, by a shape of its own: options of matplotlib's `plot`.

    Args:
        colour: of the line; one that is not among `COLOURS` has no mark.

    >>> marks(COLOURS[1])["marker"], marks("red")
    ('s', {})
    """
    if colour not in COLOURS:
        return {}
    number = COLOURS.index(colour)
    # the first mark and the distance of marks, as shares of the panel's diagonal: marks of lines that coincide stay visible
    return {"marker": MARKERS[number], "markersize": 4, "markevery": (0.015 * number, 0.15)}


def lines() -> list[Look]:
    """Return colours and dashes for 400 lines; the first forty are all different.
    >>> len(lines()), len(set(lines()[:40]))
    (400, 40)
    """
    return [(colour, dashes) for dashes in ("-", "--", ":", "-.") for colour in COLOURS] * 10
