"""The figure: what lags cost three optimizers on three tasks, and how the experiments' claims fared."""

from collections import Counter

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from studies.local_updates.claims import LOSS, Claim
from studies.local_updates.compared import Found, Verdict
from studies.local_updates.lags import LAGS, OLD, OPTIMIZERS, UPDATES
from studies.local_updates.measure import experiments

_COLOURS = dict(zip(Verdict, ("#2a9d5c", "#c8443c", "#c9c9c9"), strict=True))
_LINES = dict(zip(OPTIMIZERS, ("#c8443c", "#2166ac", "#e0912f"), strict=True))


def draw(rows: pd.DataFrame) -> Figure:
    """All of it.

    Args:
        rows: one for each experiment, system and seed.
    """
    figure = Figure(figsize=(11, 8), layout="constrained")
    tasks = tuple(UPDATES)
    grid = figure.add_gridspec(2, len(tasks), height_ratios=[1, 1.45])
    for place, task in enumerate(tasks):
        axes = figure.add_subplot(grid[0, place])
        _lags(axes, rows[rows["task"] == task])
        axes.set_title({"heavy tail": "tokens by Zipf's law", "no tail": "tokens all as frequent"}.get(task, task), fontsize=10)
    _verdicts(figure.add_subplot(grid[1, :]), rows)
    return figure


def _lags(axes: Axes, own: pd.DataFrame) -> None:
    """The last of the lags is another experiment's."""
    lags = [(lag, own[own["experiment"] == "one age"]) for lag in LAGS[1:]] + [(OLD, own[own["experiment"] == "great age"])]
    places = np.arange(len(lags))
    for number, (name, label) in enumerate(OPTIMIZERS.items()):
        gaps = [Found(Claim("", "", LOSS, {f"{name} {lag}": 1.0, f"{name} 0": -1.0}), made) for lag, made in lags]
        means = np.array([gap.mean for gap in gaps])
        ends = np.abs(np.array([[gap.low for gap in gaps], [gap.high for gap in gaps]]) - means)
        axes.errorbar(places + 0.08 * (number - 1), means, ends, color=_LINES[name], marker="o", capsize=3, label=label)
    axes.axhline(0, color="black", linewidth=0.6)
    axes.set_xticks(places, [str(lag) for lag, _ in lags])
    axes.set_xlabel("age of gradients, updates")
    axes.set_ylabel("loss above that without age, nats")
    axes.legend(fontsize=8, frameon=False)


def _verdicts(axes: Axes, rows: pd.DataFrame) -> None:
    counts: dict[str, Counter[Verdict]] = {}
    for each in reversed(list(experiments())):
        own = rows[(rows["experiment"] == each.name) & (rows["task"] == each.task)]
        if len(own):
            counts[f"{each.name}, {each.task}"] = Counter(Found(claim, own).verdict for claim in each.claims)
    left = np.zeros(len(counts))
    for verdict in Verdict:
        widths = np.array([count[verdict] for count in counts.values()])
        bars = axes.barh(list(counts), widths, left=left, color=_COLOURS[verdict], label=verdict)
        axes.bar_label(bars, [str(width) if width else "" for width in widths], label_type="center", fontsize=8)
        left += widths
    axes.set_xlabel("claims")
    axes.tick_params(axis="y", labelsize=8)
    axes.legend(fontsize=8, frameon=False, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)
