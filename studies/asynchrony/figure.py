"""The figure: each system's time on each case, as a multiple of the best one's."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from studies.asynchrony.cases import TASKS
from studies.asynchrony.compared import SYSTEMS, medians


def draw(times: pd.DataFrame) -> Figure:
    """All cases: each system's time, as a multiple of the best one's.

    Args:
        times: one row for each case, system and seed.
    """
    laws = list(dict.fromkeys(times["times"]))
    figure = Figure(figsize=(11, 6.6), layout="constrained")
    panels = figure.subplots(2, len(TASKS), sharex=True, sharey=True)
    for row, messages in zip(panels, (False, True), strict=True):
        for axes, task in zip(row, TASKS, strict=True):
            own = times[(times["task"] == task) & (times["messages"] == messages)]
            values = np.array([list(medians(one).values()) for _, one in own.groupby("times", sort=False)])
            shares = values / values.min(axis=1, keepdims=True)
            image = axes.imshow(
                np.log2(np.where(np.isinf(shares), np.nan, shares)), cmap="viridis_r", vmin=0, vmax=3, aspect="auto"
            )
            for (y, x), share in np.ndenumerate(shares):
                word = "–" if np.isinf(share) else f"{share:.1f}"
                dark = np.isfinite(share) and share > 2.8
                axes.text(x, y, word, ha="center", va="center", fontsize=7, color="white" if dark else "black")
            axes.set_title(f"{task}, messages {'cost' if messages else 'free'}", fontsize=9)
            axes.set_xticks(range(len(SYSTEMS)), SYSTEMS, rotation=60, ha="right", fontsize=8)
            axes.set_yticks(range(len(laws)), laws, fontsize=8)
    bar = figure.colorbar(image, ax=panels, ticks=range(4), shrink=0.6)
    bar.ax.set_yticklabels(["the best", "2 times", "4 times", "8 times"])
    return figure
