"""The figure: each system's time to the target, and the error of the worst tenth of the clients, by case."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from fred.views.figures import Picture, style
from studies.asked.cases import BUDGET, CASES
from studies.asked.compared import values
from studies.asked.systems import SYSTEMS

_MARKS = "os^D*"


def draw(found: pd.DataFrame) -> Picture:
    """Draw both panels.

    Args:
        found: a row for each case, system, way and seed.
    """
    with style():
        figure = Picture(figsize=(10, 4.9), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        for axes, column in zip(panels, ("target_seconds", "worst_error"), strict=True):
            _panel(axes, found, column)
        panels[0].set_xscale("log")
        panels[0].set_xticks([10, 30, 100, BUDGET], ["10", "30", "100", f"{BUDGET:.0f} or missed"])
        panels[0].minorticks_off()
        panels[0].set_xlabel("s to the target")
        panels[0].set_yticks(np.arange(len(SYSTEMS)), list(SYSTEMS))
        panels[0].set_ylim(len(SYSTEMS) - 0.5, -0.5)
        panels[1].set_xlabel("error of the worst tenth of the clients, at the end")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _panel(axes: Axes, found: pd.DataFrame, column: str) -> None:
    shifts = np.linspace(-0.26, 0.26, len(CASES))
    for number, (case, about) in enumerate(CASES.items()):
        own = [values(found, case, system, column) for system in SYSTEMS]
        places = np.arange(len(SYSTEMS)) + shifts[number]
        for place, each in zip(places, own, strict=True):
            axes.plot([each.min(), each.max()], [place, place], color=f"C{number}", lw=1, alpha=0.5)
        means = [np.exp(np.log(each).mean()) if column == "target_seconds" else each.mean() for each in own]
        axes.plot(means, places, _MARKS[number], color=f"C{number}", ms=5, label=about.about)
    axes.grid(axis="x", alpha=0.3)
