"""The figure of time against cost, with the Pareto front."""

import math
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from fred.views.figures import FAINT, TARGET, Picture, caption, headline, legend, panels, style
from fred.views.scales import far_apart, plain_logarithmic
from fred.views.view import COLOURS, MARKERS, SCREEN, View, lines

_LABELS = {
    "target_seconds": "virtual time to the target, s",
    "virtual_seconds": "virtual time, s",
    "target_cost": "cost to the target",
    "cost_total": "cost",
    "target_energy_kwh": "energy to the target, kWh",
    "energy_kwh": "energy, kWh",
}
_DASHES = list(dict.fromkeys(dashes for _, dashes in lines()))
_MOST = 6  # points of the front that are named
_LETTER = 0.015  # width of a letter of a name, share of the panel's


def cost(points: pd.DataFrame, title: str, means: str = "", missed: str = "", view: View = SCREEN) -> Picture:
    """Draw the time and the cost of each point. Filled points are on the Pareto front, which a line joins.

    On a screen, the points of the front have their values as names.

    Args:
        points: the table from `outcomes.trade_offs.trade_off`.
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
            own, colour = points[points["run"] == name], look[0]
            shape: dict[str, Any] = {"marker": _marker(*look), "linestyle": "", "markersize": 5}
            face = colour if own["front"].all() else "white"
            axis.plot(own["seconds"], own["cost"], color=colour, markerfacecolor=face, label=name, **shape)
            best = own[own["front"]]
            axis.plot(best["seconds"], best["cost"], color=colour, label=TARGET, **shape)
        for which, column in (("x", "seconds"), ("y", "cost")):
            if len(points) and far_apart(points[column]) and points[column].min() > 0:
                plain_logarithmic(axis, which, math.log10(points[column].max() / points[column].min()))
        axis.margins(0.1)  # for names below points
        axis.set(xlabel=_LABELS[points.attrs["time"]], ylabel=_LABELS[points.attrs["cost"]])
        if view.width is None and len(front) <= _MOST:
            _named(axis, front)
        legend(figure, axis, view)
        headline(figure, title, view)
        caption(figure, f"points: {means}" if means else "", "filled, on the line: no other is both faster and cheaper", missed)
    return figure


def _marker(colour: str, dashes: str) -> str:
    """Return a marker by which runs of one colour differ, as lines do by their dashes."""
    place = COLOURS.index(colour) if colour in COLOURS else 0
    return MARKERS[(place + _DASHES.index(dashes)) % len(MARKERS)]


def _named(axis: Axes, front: pd.DataFrame) -> None:
    """Name the points of the front that are points of a sweep, by their values: below them, where no other point can be."""
    axis.get_xlim(), axis.get_ylim()  # matplotlib sets limits late
    for _, each in front.iterrows():
        values = str(each["point"]).partition(",")[2].replace(",", "\n").replace("=", " ")
        place = each["seconds"], each["cost"]
        left = (axis.transData - axis.transAxes).transform(place)[0] > _LETTER * max(map(len, values.split("\n")))
        shape: dict[str, Any] = {"textcoords": "offset points", "ha": "right" if left else "left", "va": "top"}
        axis.annotate(values, place, (-5 if left else 5, -4), fontsize="small", parse_math=False, **shape)
