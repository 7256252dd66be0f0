"""The picture of paired differences: a dot and an interval for each run, against the baseline."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from fred.views.figures import COLOURS, Picture, far_apart, headline, style

_LABELS = {
    "loss": "loss, difference",
    "error": "error, difference",
    "to_target": "time or updates to the target, ratio",
    "throughput": "gradients per second, ratio",
}


def paired(pairs: pd.DataFrame, title: str) -> Picture:
    """A panel for each quantity, a line for each run: the mean, its 95 % interval (thick) and the range of the seeds (thin).

    Args:
        pairs: as `outcomes.paired.compared` gives them; where there are too few seeds for an interval, the range is all.
        title: above all panels.
    """
    quantities = list(dict.fromkeys(pairs["quantity"]))
    runs = list(dict.fromkeys(pairs["run"]))
    with style():
        figure = Picture(figsize=(1.4 + 2.6 * len(quantities), 1.5 + 0.28 * len(runs)), layout="constrained")
        axes = figure.subplots(1, len(quantities), sharey=True, squeeze=False)[0]
        for axis, quantity in zip(axes, quantities, strict=True):
            own = pairs[pairs["quantity"] == quantity].set_index("run").reindex(runs)
            _dots(axis, own)
            axis.set(xlabel=_LABELS.get(quantity, quantity), ylim=(len(runs) - 0.4, -0.6))
            ratios = bool((own["way"] == "ratio").any())
            axis.axvline(float(ratios), color="#5B5B5B", linestyle=":", linewidth=1)
            if ratios and far_apart(pd.concat([own["least"], own["largest"], pd.Series([1.0])])):
                axis.set_xscale("log")
                axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                axis.xaxis.set_minor_formatter(NullFormatter())
            axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.grid(axis="y", visible=False)
        thick = "thick: 95 % interval; " if pairs["low"].notna().any() else ""
        figure.supxlabel(f"dot: mean; {thick}thin: range of {(pairs['seeds'] + pairs['missing']).max()} seeds", fontsize=8)
        axes[0].set_yticks(range(len(runs)), runs, parse_math=False)
        headline(figure, " – ".join(filter(None, (title, f"compared with {pairs['baseline'].iloc[0]}"))))
    return figure


def _dots(axis: Axes, own: pd.DataFrame) -> None:
    for place, (_, pair) in enumerate(own.iterrows()):
        axis.plot([pair["least"], pair["largest"]], [place, place], color=COLOURS[0], linewidth=1, alpha=0.5)
        axis.plot([pair["low"], pair["high"]], [place, place], color=COLOURS[0], linewidth=3, solid_capstyle="butt")
        axis.plot([pair["mean"]], [place], "o", color=COLOURS[0], markersize=5, markeredgecolor="white")
