"""The figure: each system's loss against virtual time, a panel for each case."""

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullFormatter

from studies.low_communication.compared import CASE, SYSTEMS

_TICKS = (0.03, 0.1, 0.3, 1.0)


def draw(losses: pd.DataFrame) -> Figure:
    """All cases: the mean over the seeds of what the loss is above the least one.

    Args:
        losses: one row for each case, system, seed and time, with what the loss is above the least.
    """
    lines, columns = (sorted(losses[each].unique()) for each in CASE)
    figure = Figure(figsize=(11, 1 + 2.4 * len(lines)), layout="constrained")
    panels = figure.subplots(len(lines), len(columns), sharex=True, sharey=True, squeeze=False)
    for (stragglers, megabits), own in losses.groupby(CASE):
        axes = panels[lines.index(stragglers), columns.index(megabits)]
        means = own.pivot_table(index="seconds", columns="system", values="above")
        for number, system in enumerate(SYSTEMS):
            dashed = "--" if system == "sync" else "-"
            axes.plot(means.index, means[system], dashed, color=f"C{number}", label=system, linewidth=1.3)
        axes.set_title(f"{megabits:,} Mbit/s{', stragglers' if stragglers else ''}", fontsize=9)
        axes.set_yscale("log")
        axes.set_ylim(_TICKS[0], 1.3)
        axes.yaxis.set_major_locator(FixedLocator(_TICKS))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.grid(alpha=0.3)
    figure.supxlabel("virtual time, s (a gradient takes 0.25 s)", fontsize=9)
    figure.supylabel("loss above the least possible, nats", fontsize=9)
    figure.legend(*panels.flat[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(SYSTEMS), fontsize=8)
    return figure
