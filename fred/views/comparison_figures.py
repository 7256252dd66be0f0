"""Figures that compare runs: time against cost, paired differences, and cutoff rules in closed loop.

- `cost` draws the time and the cost of each run, or point of a sweep, and the Pareto front.
- `paired` draws each run's differences from the baseline: a dot for the mean, and an interval.
- `cutoffs` and `throughput` draw the cutoffs of cutoff rules, and their gradients per second.
"""

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from fred.prediction.closed_loop import Rounds
from fred.specification.summary import label_of
from fred.views.figures import FAINT, TARGET, Picture, caption, far_apart, headline, legend, panels, plain_logarithmic, style
from fred.views.view import COLOURS, MARKERS, SCREEN, View, lines

_DASHES = list(dict.fromkeys(dashes for _, dashes in lines()))
_MOST = 6  # points of the front that are named
_LETTER = 0.015  # width of a letter of a name, share of the panel's
_LABELS = {
    "loss": "loss, difference",
    "error": "error, difference",
    "gradient_norm": "norm of the gradient, ratio",
    "to_target": "time or updates to the target, ratio",
    "cost_to_target": "cost to the target, ratio",
    "throughput": "gradients per second, ratio",
}


def cost(points: pd.DataFrame, title: str, means: str = "", missed: str = "", view: View = SCREEN) -> Picture:
    """Draw the time and the cost of each point. Filled points are on the Pareto front, which a line joins.

    On a screen, the points of the front have their values as names.

    Args:
        points: the table from `outcomes.comparisons.trade_off`.
        title: title above the panel.
        means: phrase for the caption that says over how many seeds the points are means; empty for one seed.
        missed: phrase for the caption that says how many points missed the target; empty if none did.
        view: the width of the figure, and the colours of the runs.
    """
    front = points[points["front"]].sort_values("seconds")
    with style(view):
        figure, (axis,) = panels(1, (6.0, 3.9), view)
        axis.step(front["seconds"], front["cost"], where="post", color=FAINT, linewidth=1, label=TARGET, zorder=1)
        for name, look in view.looks_of(dict.fromkeys(points["run"])).items():
            rows, colour = points[points["run"] == name], look[0]
            shape: dict[str, Any] = {"marker": _marker(*look), "linestyle": "", "markersize": 5}
            face = colour if rows["front"].all() else "white"
            axis.plot(rows["seconds"], rows["cost"], color=colour, markerfacecolor=face, label=name, **shape)
            best = rows[rows["front"]]
            axis.plot(best["seconds"], best["cost"], color=colour, label=TARGET, **shape)
        for letter, column in (("x", "seconds"), ("y", "cost")):
            if len(points) and far_apart(points[column]) and points[column].min() > 0:
                plain_logarithmic(axis, letter, math.log10(points[column].max() / points[column].min()))
        axis.margins(0.1)  # for names below points
        axis.set(xlabel=label_of(points.attrs["time"]), ylabel=label_of(points.attrs["cost"]))
        if view.width is None and len(front) <= _MOST:
            _annotate_front(axis, front)
        legend(figure, axis, view)
        headline(figure, title, view)
        caption(figure, f"points: {means}" if means else "", "filled, on the line: no other is both faster and cheaper", missed)
    return figure


def _marker(colour: str, dashes: str) -> str:
    """Return a marker by which runs of one colour differ, as lines do by their dashes."""
    place = COLOURS.index(colour) if colour in COLOURS else 0
    return MARKERS[(place + _DASHES.index(dashes)) % len(MARKERS)]


def _annotate_front(axis: Axes, front: pd.DataFrame) -> None:
    """Name the points of the front that are points of a sweep, by their values: below them, where no other point can be."""
    axis.get_xlim(), axis.get_ylim()  # matplotlib sets limits late
    for _, point in front.iterrows():
        values = str(point["point"]).partition(",")[2].replace(",", "\n").replace("=", " ")
        place = point["seconds"], point["cost"]
        left = (axis.transData - axis.transAxes).transform(place)[0] > _LETTER * max(map(len, values.split("\n")))
        shape: dict[str, Any] = {"textcoords": "offset points", "ha": "right" if left else "left", "va": "top"}
        axis.annotate(values, place, (-5 if left else 5, -4), fontsize="small", parse_math=False, **shape)


def paired(pairs: pd.DataFrame, title: str, view: View = SCREEN) -> Picture:
    """Draw paired differences: one panel per quantity, with the mean, 95 % interval (thick) and range (thin) of each run.

    Args:
        pairs: the table from `outcomes.comparisons.compared`; with too few seeds there is no interval, only the range.
        title: title above all panels.
        view: the width of the figure, and the colours of the runs.
    """
    dotted = pairs["mean"].notna()
    quantities = list(dict.fromkeys(pairs["quantity"][dotted | (not dotted.any())]))  # no panel without a dot, unless all are
    runs = list(dict.fromkeys(pairs["run"]))
    columns = 2 if len(quantities) == 4 else 3
    looks = view.looks_of(runs)
    with style(view):
        figure, axes = panels(len(quantities), (9.2 / columns, 1.0 + 0.28 * len(runs)), view, most=columns, share="y")
        for axis, quantity in zip(axes, quantities, strict=True):
            rows = pairs[pairs["quantity"] == quantity].set_index("run").reindex(runs)
            _dots(axis, rows, [looks[run][0] for run in runs])
            axis.set(xlabel=_LABELS.get(quantity, quantity), ylim=(len(runs) - 0.4, -0.6))
            ratios = bool((rows["way"] == "ratio").any())
            axis.axvline(float(ratios), color=FAINT, linestyle=":", linewidth=1)
            if ratios and far_apart(pd.concat([rows["least"], rows["largest"], pd.Series([1.0])])):
                plain_logarithmic(axis, "x")
            axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.grid(axis="y", visible=False)
        thick = "thick: 95 % interval; " if pairs["low"].notna().any() else ""
        axes[0].set_yticks(range(len(runs)), runs, parse_math=False)
        headline(figure, " – ".join(filter(None, (title, f"compared with {pairs['baseline'].iloc[0]}"))), view)
        caption(figure, f"dot: mean; {thick}thin: range of {(pairs['seeds'] + pairs['missing']).max()} seeds")
    return figure


def _dots(axis: Axes, rows: pd.DataFrame, colours: list[str]) -> None:
    for place, ((_, pair), colour) in enumerate(zip(rows.iterrows(), colours, strict=True)):
        axis.plot([pair["least"], pair["largest"]], [place, place], color=colour, linewidth=1, alpha=0.5)
        axis.plot([pair["low"], pair["high"]], [place, place], color=colour, linewidth=3, solid_capstyle="butt")
        axis.plot([pair["mean"]], [place], "o", color=colour, markersize=5, markeredgecolor="white")


def cutoffs(rounds: dict[str, Rounds]) -> Picture:
    """Draw the cutoff of each rule, round by round, in front of the oracle's.

    Args:
        rounds: by the name of a rule, its rounds in closed loop; each rule has a panel.
    """
    with style():
        columns = min(2, len(rounds))
        rows = -(-len(rounds) // columns)
        figure = Picture(figsize=(4.6 * columns, 0.4 + 1.5 * rows), layout="constrained")
        axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
        for axis, (name, (colour, _)) in zip(axes, View().looks_of(rounds).items(), strict=False):
            run_rounds = rounds[name]
            edges = np.arange(len(run_rounds.cutoff) + 1) + 0.5
            axis.stairs(run_rounds.best_cutoff, edges, fill=True, color="#DADADA", label="oracle")
            axis.stairs(run_rounds.cutoff, edges, baseline=None, color=colour, linewidth=1.3)
            axis.set_title(f"{name}: {run_rounds.summary()['of_oracle']:.1%} of the oracle's throughput", parse_math=False)
            axis.set(ylabel="c", xlim=edges[[0, -1]], ylim=(0, None))
        for axis in axes[len(rounds) :]:
            axis.set_axis_off()
        for axis in axes[max(0, len(rounds) - columns) : len(rounds)]:
            axis.set_xlabel("round")
            axis.xaxis.set_tick_params(labelbottom=True)
        figure.legend(handles=axes[0].patches[:1], loc="outside upper right")
    return figure


def throughput(rounds: dict[str, Rounds]) -> Picture:
    """Draw the gradients per second of each rule; a dashed line marks the oracle.

    Args:
        rounds: by the name of a rule, its rounds in closed loop, all on the same compute times.
    """
    with style():
        figure = Picture(figsize=(6.5, 0.9 + 0.3 * len(rounds)), layout="constrained")
        axis = figure.subplots()
        summaries = {name: run.summary() for name, run in rounds.items()}
        per_second = [summary["throughput"] for summary in summaries.values()]
        axis.barh(range(len(rounds)), per_second, 0.7, color=[colour for colour, _ in View().looks_of(rounds).values()])
        any_summary = next(iter(summaries.values()))
        oracle = any_summary["throughput"] / any_summary["of_oracle"]
        axis.axvline(oracle, color="#5B5B5B", linestyle="--", label="oracle")
        end = 1.02 * max(oracle, *per_second)
        for place, value in enumerate(per_second):
            axis.text(end, place, f"{value:.4g}", va="center")
        axis.set(yticks=range(len(rounds)), yticklabels=list(rounds), xlabel="gradients/s", xlim=(0, 1.1 * end))
        for label in axis.get_yticklabels():
            label.set_parse_math(False)
        axis.grid(axis="y", visible=False)
        axis.invert_yaxis()
        figure.legend(loc="outside lower right")
    return figure
