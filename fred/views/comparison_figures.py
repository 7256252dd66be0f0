"""Figures that compare: runs, cutoff rules, the points of sweeps, and predicted with measured times.

- `cost` draws the time and the cost of each run, or point of a sweep, and the Pareto front.
- `paired` draws each run's differences from the baseline: a dot for the mean, and an interval.
- `cutoffs` and `throughput` draw the cutoffs of cutoff rules, and their gradients per second.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator

from fred.outcomes.comparisons import QUANTITIES
from fred.outcomes.tables import keys_of, setting, value_texts
from fred.specification.summary import label_of
from fred.specification.sweep import Criterion
from fred.views.figures import (
    BEST,
    FAINT,
    TARGET,
    Picture,
    caption,
    far_apart,
    headline,
    legend,
    name_lines,
    panels,
    plain_logarithmic,
    style,
)
from fred.views.view import COLOURS, MARKERS, SCREEN, Look, View, lines, marks

if TYPE_CHECKING:
    from fred.prediction.closed_loop import Rounds

_DASHES = list(dict.fromkeys(dashes for _, dashes in lines()))
_MOST_NAMED_POINTS = 6  # points of the front that are named
_LETTER_WIDTH = 0.015  # width of a letter of a name, share of the panel's


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
            face = colour if rows["front"].all() else "white"  # the legend shows filled points only if all of them are
            axis.plot(rows["seconds"], rows["cost"], color=colour, markerfacecolor=face, label=name, **shape)
            best = rows[rows["front"]]
            axis.plot(best["seconds"], best["cost"], color=colour, label=TARGET, **shape)  # not in the legend
        for letter, column in (("x", "seconds"), ("y", "cost")):
            if len(points) and far_apart(points[column]) and points[column].min() > 0:
                plain_logarithmic(axis, letter, math.log10(points[column].max() / points[column].min()))
        axis.margins(0.1)  # for names below points
        axis.set(xlabel=label_of(points.attrs["time"]), ylabel=label_of(points.attrs["cost"]))
        if view.width is None and len(front) <= _MOST_NAMED_POINTS:
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
        values = str(point["point"]).partition(",")[2].replace(",", "\n").replace("=", " ")  # of `run,key=value,key=value`
        place = point["seconds"], point["cost"]
        width = _LETTER_WIDTH * max(map(len, values.split("\n")))
        fits_left = (axis.transData - axis.transAxes).transform(place)[0] > width
        shape: dict[str, Any] = {"textcoords": "offset points", "ha": "right" if fits_left else "left", "va": "top"}
        axis.annotate(values, place, (-5 if fits_left else 5, -4), fontsize="small", parse_math=False, **shape)


def paired(pairs: pd.DataFrame, title: str, view: View = SCREEN) -> Picture:
    """Draw paired differences: one panel per quantity, with the mean, 95 % interval (thick) and range (thin) of each run.

    Args:
        pairs: the table from `outcomes.comparisons.compared`; with too few seeds there is no interval, only the range.
        title: title above all panels.
        view: the width of the figure, and the colours of the runs.
    """
    has_dot = pairs["mean"].notna()
    quantities = list(dict.fromkeys(pairs["quantity"][has_dot | (not has_dot.any())]))  # no panel without a dot, unless all are
    runs = list(dict.fromkeys(pairs["run"]))
    columns = 2 if len(quantities) == 4 else 3
    looks = view.looks_of(runs)
    with style(view):
        figure, axes = panels(len(quantities), (9.2 / columns, 1.0 + 0.28 * len(runs)), view, most=columns, share="y")
        for axis, quantity in zip(axes, quantities, strict=True):
            rows = pairs[pairs["quantity"] == quantity].set_index("run").reindex(runs)
            _draw_pairs(axis, rows, [looks[run][0] for run in runs])
            axis.set(xlabel=f"{QUANTITIES[quantity].axis}, {QUANTITIES[quantity].way}", ylim=(len(runs) - 0.4, -0.6))
            are_ratios = bool((rows["way"] == "ratio").any())
            axis.axvline(float(are_ratios), color=FAINT, linestyle=":", linewidth=1)  # equal runs: ratio 1, or difference 0
            if are_ratios and far_apart(pd.concat([rows["least"], rows["largest"], pd.Series([1.0])])):
                plain_logarithmic(axis, "x")
            axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.grid(axis="y", visible=False)
        thick = "thick: 95 % interval; " if pairs["low"].notna().any() else ""
        axes[0].set_yticks(range(len(runs)), runs, parse_math=False)
        headline(figure, " – ".join(filter(None, (title, f"compared with {pairs['baseline'].iloc[0]}"))), view)
        caption(figure, f"dot: mean; {thick}thin: range of {(pairs['seeds'] + pairs['missing']).max()} seeds")
    return figure


def _draw_pairs(axis: Axes, rows: pd.DataFrame, colours: list[str]) -> None:
    """Draw the range, the interval and the mean of each run's pair, one below the other."""
    for height, ((_, pair), colour) in enumerate(zip(rows.iterrows(), colours, strict=True)):
        axis.plot([pair["least"], pair["largest"]], [height, height], color=colour, linewidth=1, alpha=0.5)
        axis.plot([pair["low"], pair["high"]], [height, height], color=colour, linewidth=3, solid_capstyle="butt")
        axis.plot([pair["mean"]], [height], "o", color=colour, markersize=5, markeredgecolor="white")


def cutoffs(rounds: "dict[str, Rounds]") -> Picture:
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


def throughput(rounds: "dict[str, Rounds]") -> Picture:
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


OF_TIMING = [Criterion.from_name(name, []) for name in ("seconds", "throughput", "workers_time_waiting")]
_PLACE = "_place"  # column with the place on the first key's axis
_FEW_VALUES = 9  # up to this number of values, each has a tick
_MOST_LETTERS = 22  # largest length of a value that is not a number


def sweep(points: pd.DataFrame, criterion: Criterion, title: str, means: str = "", view: View = SCREEN) -> Picture:
    """Draw the criterion at each point: a line per run over the first key, and a panel for each combination of the others.

    Args:
        points: a row per point, as `outcomes.sweeps.table` makes them.
        criterion: the criterion; the axis names its column, and a star marks the best point of each run in a panel.
        title: title above all panels.
        means: phrase that says over how many seeds the points are means; empty for one seed.
        view: the width of the figure, and the colours of the runs.
    """
    keys = keys_of(points)
    points = _placed(points, keys[0])
    point_groups: list[tuple[Any, pd.DataFrame]] = [((), points)]
    if keys[1:]:
        point_groups = list(points.groupby(keys[1:], sort=False, dropna=False))
    looks = view.looks_of(dict.fromkeys(points["run"]))
    with style(view):
        figure, axes = panels(len(point_groups), (4.2, 3.1) if keys[1:] else (5.2, 3.4), view, share="xy")
        for axis, (panel_values, panel) in zip(axes, point_groups, strict=True):
            for name, rows in panel.groupby("run", sort=False):
                _draw_points(axis, rows, str(name), looks[str(name)], highest=criterion.highest)
            axis.set_title(", ".join(_setting_phrases(keys[1:], panel_values)), parse_math=False)
            _set_horizontal_axis(axis, points, keys[0])
        _set_vertical_axis(axes[0], points["mean"], criterion.column)
        name_lines(figure, axes, view)
        headline(figure, title, view)
        caption(figure, _banded(means), f"star: the {criterion.way} mean of a run in its panel")
    return figure


def _banded(means: str) -> str:
    return f"points: {means}; bands: their range, least to largest" if means else ""


def timing(tables: Mapping[str, pd.DataFrame], title: str, means: str = "", view: View = SCREEN) -> Picture:
    """Draw columns of the summary over the first key, a panel for each: a line per run and combination of the other keys.

    Virtual time is left out if it is the same at all points.

    Args:
        tables: points by the column of the summary that they are means of; one column is virtual_seconds.
        title: title above all panels.
        means: phrase that says over how many seeds the points are means; empty for one seed.
        view: the width of the figure, and the colours of the runs.
    """
    if tables["virtual_seconds"]["mean"].nunique() == 1:
        tables = {column: points for column, points in tables.items() if column != "virtual_seconds"}
    with style(view):
        figure, axes = panels(len(tables), (4.0, 3.5), view)
        for axis, (column, points) in zip(axes, tables.items(), strict=True):
            keys = keys_of(points)
            points = _placed(points, keys[0])
            point_lines = list(points.groupby(["run", *keys[1:]], sort=False, dropna=False))
            looks = _looks([str(run) for (run, *_), _ in point_lines], view)
            for look, ((run, *values), rows) in zip(looks, point_lines, strict=True):
                _draw_points(axis, rows, ", ".join((str(run), *_setting_phrases(keys[1:], values))), look)
            _set_horizontal_axis(axis, points, keys[0])
            _set_vertical_axis(axis, points["mean"], column)
        legend(figure, axes[0], view)
        headline(figure, title, view)
        caption(figure, _banded(means))
    return figure


def _looks(runs: Sequence[str], view: View) -> list[Look]:
    """Return the look of each line, given the run that it belongs to.

    Lines of one run share its colour and differ in dashes. If there is only one run, its lines differ in colour too.
    """
    run_looks = view.looks_of(dict.fromkeys(runs))
    if len(run_looks) == 1 and len(runs) > 1:
        return lines()[: len(runs)]
    dashes = list(dict.fromkeys(dashes for _, dashes in lines()))
    ranks = [runs[:i].count(run) for i, run in enumerate(runs)]  # number of lines of the same run before each line
    return [
        (run_looks[run][0], dashes[rank % len(dashes)] if rank else run_looks[run][1])
        for run, rank in zip(runs, ranks, strict=True)
    ]


def _draw_points(axis: Axes, rows: pd.DataFrame, name: str, look: Look, highest: bool | None = None) -> None:
    """Draw the finite points of a run as a line with a band for the seeds.

    A star marks the best point, unless `highest` is None.
    """
    colour, dashes = look
    shape: dict[str, Any] = {"marker": marks(colour).get("marker", "o"), "markersize": 4}
    rows = rows[np.isfinite(rows["mean"])].sort_values(_PLACE, kind="stable")
    axis.plot(rows[_PLACE], rows["mean"], color=colour, linestyle=dashes, label=name, linewidth=1.5, **shape)
    axis.fill_between(rows[_PLACE], rows["least"], rows["largest"], color=colour, alpha=0.18, linewidth=0)
    if len(rows) and highest is not None:
        best = rows.nlargest(1, "mean") if highest else rows.nsmallest(1, "mean")
        shape = {"marker": "*", "markersize": 15, "markeredgecolor": "black", "markeredgewidth": 0.7, "zorder": 5}
        axis.plot(best[_PLACE], best["mean"], color=colour, label=BEST, **shape)


def _placed(points: pd.DataFrame, key: str) -> pd.DataFrame:
    """Return the points with their place on the axis of a key: the value if all are numbers, else the value's index."""
    values = points[key]
    return points.assign(**{_PLACE: values if _are_numbers(values) else pd.factorize(values.map(repr))[0]})


def _set_horizontal_axis(axis: Axes, points: pd.DataFrame, key: str) -> None:
    """Set up the horizontal axis of a key, with a tick at each value if there are few."""
    values, places = points[key], points[_PLACE]
    labels = dict(zip(places, _words(values), strict=True))
    axis.set(xlabel=setting(key), xscale="log" if _are_numbers(values) and far_apart(values) else "linear")
    if len(labels) <= _FEW_VALUES:
        axis.set_xticks(list(labels), list(labels.values()), parse_math=False)
        if max(map(len, labels.values())) * len(labels) > _MOST_LETTERS:
            axis.set_xticklabels(list(labels.values()), parse_math=False, rotation=30, ha="right", rotation_mode="anchor")
        axis.xaxis.set_minor_locator(NullLocator())


def _set_vertical_axis(axis: Axes, means: pd.Series, column: str) -> None:
    """Set up the vertical axis of a column of the summary."""
    finite = means[np.isfinite(means)]
    share = column.startswith("workers_time")
    axis.set(ylabel=label_of(column))
    if finite.empty:
        axis.text(0.5, 0.5, "nothing finite", transform=axis.transAxes, ha="center")
        axis.set(xticks=(), yticks=())
    elif far_apart(finite) and not share and finite.min() > 0:
        plain_logarithmic(axis, "y", math.log10(finite.max() / finite.min()))
    if share:
        axis.set_ylim(0, max(0.1, axis.get_ylim()[1]))


def _are_numbers(values: pd.Series) -> bool:
    return bool(pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values) and values.notna().all())


def _words(values: Iterable[Any]) -> list[str]:
    """Return values as text, cut to 22 letters."""
    return [word if len(word) <= _MOST_LETTERS else f"{word[: _MOST_LETTERS - 2]} …" for word in value_texts(values)]


def _setting_phrases(keys: Sequence[str], values: Iterable[Any]) -> list[str]:
    return [f"{setting(key)} {word}" for key, word in zip(keys, _words(values), strict=True)]


_MARKS = "osD^vP*X<>hdp8"


def picture(rows: pd.DataFrame, near: float, colours: Mapping[str, str] | None = None) -> Picture:
    """Plot predicted against measured times, in s.

    Args:
        rows: a row for each time, with its `name`, `measured` and `predicted` time, s, as of `Judgement.rows`.
        near: error that dotted lines mark, such as 0.15.
        colours: colour by name; absent: those of all figures, in turn.
    """
    with style():
        figure = Picture(figsize=(7.2, 7.4), layout="constrained")
        axis = figure.subplots()
        for i, (name, group) in enumerate(rows.groupby("name", sort=False)):
            colour = colours[str(name)] if colours else COLOURS[i % len(COLOURS)]
            mark = _MARKS[i % len(_MARKS)]
            axis.plot(group["measured"], group["predicted"], mark, label=name, color=colour, markersize=4, alpha=0.8)
        ends = [rows["predicted"].min() / 1.5, rows["predicted"].max() * 1.5]
        for factor, dashes in ((1.0, "-"), (1 + near, ":"), (1 / (1 + near), ":")):
            axis.plot(ends, [factor * end for end in ends], dashes, color="0.5", linewidth=0.8, zorder=0)
        axis.set(xscale="log", yscale="log", xlabel="measured, s", ylabel="predicted, s", xlim=ends, ylim=ends)
        figure.legend(loc="outside lower center", ncols=2, fontsize=6.5)
        return figure
