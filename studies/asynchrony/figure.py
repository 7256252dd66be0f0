"""The figure: each system's time in each case, as a multiple of the best one's."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.image import AxesImage

from fred.views.figures import Picture, style
from studies.asynchrony.compared import medians, tuned_cases
from studies.asynchrony.rows import columns
from studies.asynchrony.systems import SYSTEMS
from studies.kit.study import Tables


def draw(tables: Tables) -> Picture:
    """Draw each system's time in all cases with 32 workers.

    Args:
        tables: the first has a row for each case, system and seed.
    """
    times = tables[""]
    cases, panels = tuned_cases(times), columns(times)
    with style():
        rows = -(-len(panels) // 2)
        figure = Picture(figsize=(10.5, 1 + 2.7 * rows), layout="constrained")
        every = figure.subplots(rows, 2, sharex=True, sharey=True, squeeze=False)
        for axes, (messages, task) in zip(every.T.flat, panels, strict=False):
            image = _shares(axes, {key: own for key, own in cases.items() if key[1:3] == (messages, task)})
            axes.set_title(f"{task}, messages {'cost' if messages else 'free'}")
        for axes in every.T.flat[len(panels) :]:
            axes.set_visible(False)
        bar = figure.colorbar(image, ax=every, ticks=range(4), shrink=0.6)
        bar.ax.set_yticklabels(["the best", "2 times", "4 times", "8 times"])
    return figure


def _shares(axes: Axes, own: dict[tuple[Any, ...], pd.DataFrame]) -> AxesImage:
    """Draw one panel; a dash marks a cell in which most seeds missed the target."""
    values = np.array([list(medians(rows).values()) for rows in own.values()])
    shares = values / values.min(axis=1, keepdims=True)
    shown = np.log2(np.where(np.isinf(shares), np.nan, shares))
    image = axes.imshow(shown, cmap="viridis_r", vmin=0, vmax=3, aspect="auto")
    for (y, x), share in np.ndenumerate(shares):
        word = "–" if np.isinf(share) else f"{share:.1f}"
        dark = np.isfinite(share) and share > 2.8
        axes.text(x, y, word, ha="center", va="center", color="white" if dark else "black")
    axes.set_xticks(range(len(SYSTEMS)), SYSTEMS, rotation=60, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(own)), [key[3] for key in own])
    axes.grid(visible=False)
    return image
