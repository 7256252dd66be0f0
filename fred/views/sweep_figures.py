"""Figures of sweeps: the criterion, or the timing, at each point against the swept setting."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from fred.outcomes.tables import keys_of, setting, value_texts
from fred.specification.summary import label_of
from fred.specification.sweep import Criterion
from fred.views.figures import BEST, Picture, caption, far_apart, headline, legend, name_lines, panels, plain_logarithmic, style
from fred.views.view import SCREEN, Look, View, lines, marks

OF_TIMING = [Criterion.from_name(name, []) for name in ("seconds", "throughput", "workers_time_waiting")]
_PLACE = "_place"  # column with the place on the first key's axis
_FEW = 9  # up to this number of values, each has a tick
_LETTERS = 22  # largest length of a value that is not a number


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
                _points(axis, rows, str(name), looks[str(name)], highest=criterion.highest)
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
            for look, ((run, *values), rows) in zip(
                _looks([str(run) for (run, *_), _ in point_lines], view), point_lines, strict=True
            ):
                _points(axis, rows, ", ".join((str(run), *_setting_phrases(keys[1:], values))), look)
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
    ranks = [runs[:place].count(run) for place, run in enumerate(runs)]
    return [
        (run_looks[run][0], dashes[rank % len(dashes)] if rank else run_looks[run][1])
        for run, rank in zip(runs, ranks, strict=True)
    ]


def _points(axis: Axes, rows: pd.DataFrame, name: str, look: Look, highest: bool | None = None) -> None:
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
    if len(labels) <= _FEW:
        axis.set_xticks(list(labels), list(labels.values()), parse_math=False)
        if max(map(len, labels.values())) * len(labels) > _LETTERS:
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
    return [word if len(word) <= _LETTERS else f"{word[: _LETTERS - 2]} …" for word in value_texts(values)]


def _setting_phrases(keys: Sequence[str], values: Iterable[Any]) -> list[str]:
    return [f"{setting(key)} {word}" for key, word in zip(keys, _words(values), strict=True)]
