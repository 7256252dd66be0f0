"""The figure: what lags cost three optimizers on three tasks, and how the experiments' claims fared."""

from collections import Counter

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from fred.views.figures import COLOURS, Picture, style
from fred.views.view import MARKERS
from studies.local_updates.claims import LOSS, Claim
from studies.local_updates.compared import Found, Verdict
from studies.local_updates.lags import LAGS, OLD, OPTIMIZERS, UPDATES
from studies.local_updates.measure import experiments

_COLOURS = dict(zip(Verdict, (*COLOURS[:2], "#D0D0D0"), strict=True))
_LOOKS = dict(zip(OPTIMIZERS, zip(COLOURS, MARKERS, strict=True), strict=False))


def draw(rows: pd.DataFrame) -> Picture:
    """All of it.

    Args:
        rows: one for each experiment, system and seed.
    """
    with style():
        figure = Picture(figsize=(10, 8.4), layout="constrained")
        above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=[1, 1.45]).ravel()
        for axes, task in zip(above.subplots(1, len(UPDATES)), UPDATES, strict=True):
            _lags(axes, rows[rows["task"] == task])
            axes.set_title({"heavy tail": "tokens by Zipf's law", "no tail": "tokens all as frequent"}.get(task, task))
        above.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=len(OPTIMIZERS))
        axes = below.subplots()
        _verdicts(axes, rows)
        below.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=len(Verdict))
    return figure


def _lags(axes: Axes, own: pd.DataFrame) -> None:
    """The last of the lags is another experiment's."""
    lags = [(lag, own[own["experiment"] == "one age"]) for lag in LAGS[1:]] + [(OLD, own[own["experiment"] == "great age"])]
    places = np.arange(len(lags))
    for number, (name, label) in enumerate(OPTIMIZERS.items()):
        gaps = [Found(Claim("", "", LOSS, {f"{name} {lag}": 1.0, f"{name} 0": -1.0}), made) for lag, made in lags]
        means = np.array([gap.mean for gap in gaps])
        ends = np.abs(np.array([[gap.low for gap in gaps], [gap.high for gap in gaps]]) - means)
        colour, marker = _LOOKS[name]
        axes.errorbar(places + 0.08 * (number - 1), means, ends, color=colour, marker=marker, capsize=3, label=label)
    axes.axhline(0, color="black", linewidth=0.6)
    axes.set_xticks(places, [str(lag) for lag, _ in lags])
    axes.set_xlabel("age of gradients, updates")
    axes.set_ylabel("loss above that without age, nats")


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
        axes.bar_label(
            bars,
            [str(width) if width else "" for width in widths],
            label_type="center",
            color="white" if verdict is next(iter(Verdict)) else "black",
        )
        left += widths
    axes.set_xlabel("claims")
    axes.grid(axis="y", visible=False)
    axes.margins(y=0.01)
