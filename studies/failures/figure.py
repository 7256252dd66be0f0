"""The figure: the time to the target by rate of failures, and what one failure costs."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from fred.views.figures import Picture, style
from studies.failures.cases import HOUR, NONE, RATES, SYSTEMS
from studies.failures.compared import costs, values

_MARKS = "os^vD<>PX*h"
_PLACES = {NONE: 0.06}  # failures a day at which none is drawn


def draw(found: pd.DataFrame) -> Picture:
    """Draw both panels.

    Args:
        found: a row for each system, rate of failures, setting and seed.
    """
    with style():
        figure = Picture(figsize=(10, 4.9), layout="constrained")
        panels = figure.subplots(1, 2)
        _times(panels[0], found)
        _costs(panels[1], found)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _times(axes: Axes, found: pd.DataFrame) -> None:
    places = [_PLACES.get(hours, 24 / hours) for hours in RATES]
    for number, system in enumerate(SYSTEMS):
        means = [values(found, system, hours, "target_seconds").mean() / HOUR for hours in RATES]
        axes.plot(
            places, means, marker=_MARKS[number], ms=4, color=f"C{number % 10}", ls="-" if number < 10 else "--", label=system
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(places, ["none", "1 a week", "1 a day", "6 a day", "1 an hour"])
    axes.minorticks_off()
    axes.set_yticks([4, 6, 8, 12, 16, 24, 36], ["4", "6", "8", "12", "16", "24", "36"])
    axes.set_xlabel("failures of the job")
    axes.set_ylabel("hours to the target")


def _costs(axes: Axes, found: pd.DataFrame) -> None:
    for number, each in enumerate(costs(found).values()):
        axes.plot(each.interval, [number, number], color=f"C{number % 10}", lw=1.5)
        axes.plot(each.mean.value, number, _MARKS[number], color=f"C{number % 10}", ms=5)
    axes.axvline(0, color="0.5", lw=0.8)
    axes.set_yticks(np.arange(len(SYSTEMS)), list(SYSTEMS))
    axes.set_ylim(len(SYSTEMS) - 0.5, -0.5)
    axes.set_xlabel("minutes to the target that one failure costs, at one an hour")
