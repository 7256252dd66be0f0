"""The figure: what momentum gains or costs in each case, tuned and matched."""

import pandas as pd
from matplotlib.axes import Axes

from fred.views.figures import Picture, style
from studies.kit.study import Tables
from studies.outer_momentum.compared import MARGIN, differences

_WAYS = {"tuned": "rates tuned for it", "matched": "same effective step", "published": "0.7 and 0.9, as published"}


def draw(tables: Tables) -> Picture:
    """Draw the differences of all cases, a panel for each momentum.

    Args:
        tables: the first has a row for each case, way to choose rates, momentum and seed.
    """
    losses = tables[""]
    with style():
        figure = Picture(figsize=(9, 6.2), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        for axes, momentum in zip(panels, (0.5, 0.9), strict=True):
            _panel(axes, losses, momentum)
        figure.legend(*panels[1].get_legend_handles_labels(), loc="outside lower center", ncols=len(_WAYS))
    return figure


def _panel(axes: Axes, losses: pd.DataFrame, momentum: float) -> None:
    names = list[str]()
    for number, kind in enumerate(_WAYS):
        found = differences(losses, kind, momentum)
        names = names or [name(case) for case in found]
        for case, each in found.items():
            place = names.index(name(case)) + 0.25 * (number - 1)
            low, high = each.interval
            axes.plot([low, high], [place, place], color=f"C{number}", lw=1.5)
            axes.plot(each.mean.value, place, "os^"[number], color=f"C{number}", ms=4)
        if found:
            axes.plot([], [], "os^"[number], color=f"C{number}", label=_WAYS[kind])
    axes.axvspan(-MARGIN, MARGIN, color="0.9", zorder=0)
    axes.axvline(0, color="0.5", lw=0.8)
    axes.set_xscale("symlog", linthresh=0.05)
    axes.set_xticks([-0.05, 0, 0.05, 0.2, 1], ["-0.05", "0", "0.05", "0.2", "1"])
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_title(f"momentum {momentum:g}")
    axes.set_xlabel("loss less that of plain averages, nats")


def name(case: tuple[object, ...]) -> str:
    """Return the name of a case in tables and figures: what differs from the base point.

    Args:
        case: its values, in the order of CASE.

    >>> name(("H", "diloco", "bigrams", "adamw", 64, 8, 512)), name(("base", "diloco", "bigrams", "adamw", 32, 8, 512))
    ('H = 64', 'base')
    """
    factor, system, task, inner, period, workers, steps = case
    words = {
        "H": f"H = {period}",
        "workers": f"{workers} workers",
        "length": f"{steps:,} steps",
        "H and length": f"H = {period}, {steps:,} steps",
        "inner": f"inner {inner}",
        "system": str(system),
        "task": str(task),
    }
    return words.get(str(factor), str(factor))
