"""The figure: each system's time on each case, as a multiple of the best one's."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.image import AxesImage

from fred.views.figures import Picture, style
from studies.asynchrony.cases import TASKS
from studies.asynchrony.compared import SYSTEMS, medians


def draw(times: pd.DataFrame) -> Picture:
    """All cases: each system's time, as a multiple of the best one's.

    Args:
        times: one row for each case, system and seed.
    """
    with style():
        figure = Picture(figsize=(10, 8.6), layout="constrained")
        panels = figure.subplots(len(TASKS), 2, sharex=True, sharey=True)
        for row, task in zip(panels, TASKS, strict=True):
            for axes, messages in zip(row, (False, True), strict=True):
                image = _shares(axes, times[(times["task"] == task) & (times["messages"] == messages)])
                axes.set_title(f"{task}, messages {'cost' if messages else 'free'}")
        bar = figure.colorbar(image, ax=panels, ticks=range(4), shrink=0.6)
        bar.ax.set_yticklabels(["the best", "2 times", "4 times", "8 times"])
    return figure


def _shares(axes: Axes, own: pd.DataFrame) -> AxesImage:
    """Draw one panel; cells in which a system never reached the target have a dash."""
    laws = list(dict.fromkeys(own["times"]))
    values = np.array([list(medians(one).values()) for _, one in own.groupby("times", sort=False)])
    shares = values / values.min(axis=1, keepdims=True)
    shown = np.log2(np.where(np.isinf(shares), np.nan, shares))
    image = axes.imshow(shown, cmap="viridis_r", vmin=0, vmax=3, aspect="auto")
    for (y, x), share in np.ndenumerate(shares):
        word = "–" if np.isinf(share) else f"{share:.1f}"
        dark = np.isfinite(share) and share > 2.8
        axes.text(x, y, word, ha="center", va="center", color="white" if dark else "black")
    axes.set_xticks(range(len(SYSTEMS)), SYSTEMS, rotation=60, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(laws)), laws)
    axes.grid(visible=False)
    return image
