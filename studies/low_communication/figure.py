"""The figure: each system's loss against virtual time, a panel for each case in which it is tuned."""

import pandas as pd

from fred.views.figures import Picture, lines, plain_logarithmic, style
from fred.views.view import marks
from studies.low_communication.cases import MEGABITS, NARROW
from studies.low_communication.compared import KINDS, keys
from studies.low_communication.systems import SYSTEMS

_LIMITS = {True: (1.85, 3.5), False: (0.04, 1.3)}  # nats, of the axes: on the grammar, and on bigrams


def draw(losses: pd.DataFrame) -> Picture:
    """Draw the mean loss over the seeds.

    Args:
        losses: one row for each case, system, seed and time; on bigrams above the least possible loss.
    """
    tuned = losses[losses["way"] == "tuned"]
    with style():
        figure = Picture(figsize=(10, 6.4), layout="constrained")
        panels = figure.subplots(2, len(MEGABITS), squeeze=False)
        for key in keys(KINDS[:2]):
            own = tuned[(tuned["megabits"] == key.megabits) & (tuned["workers"] == key.workers)]
            axes = panels[int(key.workers != "alike"), MEGABITS.index(key.megabits)]
            means = own.pivot_table(index="seconds", columns="system", values="loss")
            for (colour, dashes), system in zip(lines(), SYSTEMS, strict=False):
                axes.plot(means.index, means[system], dashes, color=colour, label=system, linewidth=1.3, **marks(colour))
            axes.set_title(f"{key.megabits:,} Mbit/s, {key.workers}")
            plain_logarithmic(axes, "y")
            axes.set_ylim(*_LIMITS[key.megabits == NARROW])
        figure.supxlabel("virtual time, s (a gradient takes 0.25 s)", fontsize="medium")
        figure.supylabel("loss, nats (50 Mbit/s), and above the least possible (others)", fontsize="medium")
        figure.legend(*panels.flat[0].get_legend_handles_labels(), loc="outside upper center", ncols=6)
    return figure
