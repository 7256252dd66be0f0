"""The figure: each system's loss against virtual time, a panel for each case."""

import pandas as pd

from fred.views.figures import Picture, lines, style
from fred.views.scales import plain_logarithmic
from fred.views.view import marks
from studies.low_communication.compared import CASE, SYSTEMS

_LEAST = 0.03  # nats, where the axis begins


def draw(losses: pd.DataFrame) -> Picture:
    """All cases: the mean over the seeds of what the loss is above the least one.

    Args:
        losses: one row for each case, system, seed and time, with what the loss is above the least.
    """
    rows, columns = (sorted(losses[each].unique()) for each in CASE)
    with style():
        figure = Picture(figsize=(10, 1 + 2.4 * len(rows)), layout="constrained")
        panels = figure.subplots(len(rows), len(columns), sharex=True, sharey=True, squeeze=False)
        for (stragglers, megabits), own in losses.groupby(CASE):
            axes = panels[rows.index(stragglers), columns.index(megabits)]
            means = own.pivot_table(index="seconds", columns="system", values="above")
            for (colour, dashes), system in zip(lines(), SYSTEMS, strict=False):
                axes.plot(means.index, means[system], dashes, color=colour, label=system, linewidth=1.3, **marks(colour))
            axes.set_title(f"{megabits:,} Mbit/s{', stragglers' if stragglers else ''}")
            plain_logarithmic(axes, "y")
            axes.set_ylim(_LEAST, 1.3)
        figure.supxlabel("virtual time, s (a gradient takes 0.25 s)", fontsize="medium")
        figure.supylabel("loss above the least possible, nats", fontsize="medium")
        figure.legend(*panels.flat[0].get_legend_handles_labels(), loc="outside upper center", ncols=5)
    return figure
