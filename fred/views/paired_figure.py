"""The figure of paired differences: a dot and an interval for each run, against the baseline."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from fred.views.figures import FAINT, Picture, caption, headline, panels, style
from fred.views.scales import far_apart, plain_logarithmic
from fred.views.view import SCREEN, View

_LABELS = {
    "loss": "loss, difference",
    "error": "error, difference",
    "gradient_norm": "norm of the gradient, ratio",
    "to_target": "time or updates to the target, ratio",
    "cost_to_target": "cost to the target, ratio",
    "throughput": "gradients per second, ratio",
}


def paired(pairs: pd.DataFrame, title: str, view: View = SCREEN) -> Picture:
    """Draw paired differences: one panel per quantity, with the mean, 95 % interval (thick) and range (thin) of each run.

    Args:
        pairs: the table from `outcomes.paired.compared`; with too few seeds there is no interval, only the range.
        title: title above all panels.
        view: the width of the figure, and the colours of the runs.
    """
    dotted = pairs["mean"].notna()
    quantities = list(dict.fromkeys(pairs["quantity"][dotted | (not dotted.any())]))  # no panel without a dot, unless all are
    runs = list(dict.fromkeys(pairs["run"]))
    columns = 2 if len(quantities) == 4 else 3
    looks = view.looks_of(runs)
    with style(view):
        figure, axes = panels(len(quantities), (9.2 / columns, 1.0 + 0.28 * len(runs)), view, most=columns, share="y")
        for axis, quantity in zip(axes, quantities, strict=True):
            own = pairs[pairs["quantity"] == quantity].set_index("run").reindex(runs)
            _dots(axis, own, [looks[run][0] for run in runs])
            axis.set(xlabel=_LABELS.get(quantity, quantity), ylim=(len(runs) - 0.4, -0.6))
            ratios = bool((own["way"] == "ratio").any())
            axis.axvline(float(ratios), color=FAINT, linestyle=":", linewidth=1)
            if ratios and far_apart(pd.concat([own["least"], own["largest"], pd.Series([1.0])])):
                plain_logarithmic(axis, "x")
            axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.grid(axis="y", visible=False)
        thick = "thick: 95 % interval; " if pairs["low"].notna().any() else ""
        axes[0].set_yticks(range(len(runs)), runs, parse_math=False)
        headline(figure, " – ".join(filter(None, (title, f"compared with {pairs['baseline'].iloc[0]}"))), view)
        caption(figure, f"dot: mean; {thick}thin: range of {(pairs['seeds'] + pairs['missing']).max()} seeds")
    return figure


def _dots(axis: Axes, own: pd.DataFrame, colours: list[str]) -> None:
    for place, ((_, pair), colour) in enumerate(zip(own.iterrows(), colours, strict=True)):
        axis.plot([pair["least"], pair["largest"]], [place, place], color=colour, linewidth=1, alpha=0.5)
        axis.plot([pair["low"], pair["high"]], [place, place], color=colour, linewidth=3, solid_capstyle="butt")
        axis.plot([pair["mean"]], [place], "o", color=colour, markersize=5, markeredgecolor="white")
