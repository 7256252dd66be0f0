"""Pictures of sweeps: what came out at each point, against what was swept."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle as forever
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from fred.outcomes.sweeps import keys_of, said
from fred.specification.sweep import Criterion
from fred.views.figures import BEST, COLOURS, Picture, far_apart, headline, legend, lines, style

OF_TIMING = [Criterion.of(name, False, False) for name in ("seconds", "throughput", "workers_time_waiting")]
_LABELS = {
    "loss": "loss at the end",
    "error": "error at the end",
    "target_seconds": "virtual time to the target, s",
    "target_updates": "updates to the target",
    "virtual_seconds": "virtual time, s",
    "throughput": "gradients per second",
    "workers_time_waiting": "waiting, share of time",
}
_PLACE = "_place"  # column: where on the first key's axis
_FEW = 9  # values, each of which has its tick
_LETTERS = 22  # of a value that is no number


def sweep(points: pd.DataFrame, criterion: Criterion, title: str) -> Picture:
    """The criterion at each point: a line per run over the first key, a panel for each combination of the others.

    Args:
        points: a row per point, as `outcomes.sweeps.table` makes them.
        criterion: its column is named on the axis, and a star is at the best point of each run.
        title: above all panels.
    """
    keys = keys_of(points)
    points = _placed(points, keys[0])
    panels: list[tuple[Any, pd.DataFrame]] = [((), points)]
    if keys[1:]:
        panels = list(points.groupby(keys[1:], sort=False, dropna=False))
    with style():
        columns = min(3, len(panels))
        rows = -(-len(panels) // columns)
        figure = Picture(figsize=(1.6 + 3.6 * columns, 0.6 + 2.9 * rows), layout="constrained")
        axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
        for axis, (others, panel) in zip(axes, panels, strict=False):
            for colour, (name, own) in zip(forever(COLOURS), panel.groupby("run", sort=False), strict=False):
                _points(axis, own, str(name), colour, highest=criterion.highest)
            axis.set_title(", ".join(_named(keys[1:], others)), parse_math=False)
            _across(axis, points, keys[0])
        for axis in axes[len(panels) :]:
            axis.set_axis_off()
        _upwards(axes[0], points["mean"], criterion.column)
        legend(figure, axes[0])
        headline(figure, title)
    return figure


def timing(tables: Mapping[str, pd.DataFrame], title: str) -> Picture:
    """Columns of the summary side by side, over the first key: a line per run and combination of the others.

    The time is left out where all points took the same.

    Args:
        tables: points by the column of the summary that is their mean, one of them virtual_seconds.
        title: above all panels.
    """
    if tables["virtual_seconds"]["mean"].nunique() == 1:
        tables = {column: points for column, points in tables.items() if column != "virtual_seconds"}
    with style():
        figure = Picture(figsize=(1.6 + 3.6 * len(tables), 3.5), layout="constrained")
        axes = figure.subplots(1, len(tables), squeeze=False)[0]
        for axis, (column, points) in zip(axes, tables.items(), strict=True):
            keys = keys_of(points)
            points = _placed(points, keys[0])
            each = points.groupby(["run", *keys[1:]], sort=False, dropna=False)
            for (colour, dashes), ((run, *others), own) in zip(lines(), each, strict=False):
                _points(axis, own, ", ".join((str(run), *_named(keys[1:], others))), colour, dashes)
            _across(axis, points, keys[0])
            _upwards(axis, points["mean"], column)
        legend(figure, axes[0])
        headline(figure, title)
    return figure


def _points(axis: Axes, own: pd.DataFrame, name: str, colour: str, dashes: str = "-", highest: bool | None = None) -> None:
    """A run's line, with the band of its seeds and, if it is said which way, a star at its best; without what is not finite."""
    own = own[np.isfinite(own["mean"])].sort_values(_PLACE, kind="stable")
    axis.plot(own[_PLACE], own["mean"], color=colour, linestyle=dashes, label=name, linewidth=1.5, marker="o", markersize=3)
    axis.fill_between(own[_PLACE], own["least"], own["largest"], color=colour, alpha=0.18, linewidth=0)
    if len(own) and highest is not None:
        best = own.nlargest(1, "mean") if highest else own.nsmallest(1, "mean")
        axis.plot(best[_PLACE], best["mean"], marker="*", markersize=12, color=colour, markeredgecolor="white", label=BEST)


def _placed(points: pd.DataFrame, key: str) -> pd.DataFrame:
    """With the place of each point on the axis of a key: its value if all are numbers, else which of the values it is."""
    values = points[key]
    return points.assign(**{_PLACE: values if _are_numbers(values) else pd.factorize(values.map(repr))[0]})


def _across(axis: Axes, points: pd.DataFrame, key: str) -> None:
    """The axis of a key, with a tick at each value if they are few."""
    values, places = points[key], points[_PLACE]
    labels = dict(zip(places, _words(values), strict=True))
    axis.set(xlabel=_last(key), xscale="log" if _are_numbers(values) and far_apart(values) else "linear")
    if len(labels) <= _FEW:
        axis.set_xticks(list(labels), list(labels.values()), parse_math=False)
        if max(map(len, labels.values())) * len(labels) > _LETTERS:
            axis.set_xticklabels(list(labels.values()), parse_math=False, rotation=30, ha="right", rotation_mode="anchor")
        axis.xaxis.set_minor_locator(NullLocator())


def _upwards(axis: Axes, means: pd.Series, column: str) -> None:
    """The axis of a column of the summary."""
    finite = means[np.isfinite(means)]
    share = column.startswith("workers_time")
    axis.set(ylabel=_LABELS.get(column, column.replace("_", " ")))
    if finite.empty:
        axis.text(0.5, 0.5, "nothing finite", transform=axis.transAxes, ha="center")
        axis.set(xticks=(), yticks=())
    elif far_apart(finite) and not share and finite.min() > 0:
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.yaxis.set_minor_formatter(NullFormatter())
    if share:
        axis.set_ylim(0, max(0.1, axis.get_ylim()[1]))


def _are_numbers(values: pd.Series) -> bool:
    return bool(pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values) and values.notna().all())


def _words(values: Iterable[Any]) -> list[str]:
    """Values, cut to what there is room for."""
    return [each if len(each) <= _LETTERS else f"{each[: _LETTERS - 2]} …" for each in said(values)]


def _named(keys: Sequence[str], values: Iterable[Any]) -> list[str]:
    return [f"{_last(key)} {word}" for key, word in zip(keys, _words(values), strict=True)]


def _last(key: str) -> str:
    return key.rsplit(".", 1)[-1].replace("_", " ")
