"""Figures of cutoff rules in closed loop: their cutoffs and their throughput."""

import numpy as np

from fred.prediction.closed_loop import Rounds
from fred.views.figures import Picture, style
from fred.views.view import View


def cutoffs(rounds: dict[str, Rounds]) -> Picture:
    """Draw the cutoff of each rule, round by round, in front of the oracle's.

    Args:
        rounds: by the name of a rule, its rounds in closed loop; each rule has a panel.
    """
    with style():
        columns = min(2, len(rounds))
        rows = -(-len(rounds) // columns)
        figure = Picture(figsize=(4.6 * columns, 0.4 + 1.5 * rows), layout="constrained")
        axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
        for axis, (name, (colour, _)) in zip(axes, View().looks_of(rounds).items(), strict=False):
            each = rounds[name]
            edges = np.arange(len(each.cutoff) + 1) + 0.5
            axis.stairs(each.best_cutoff, edges, fill=True, color="#DADADA", label="oracle")
            axis.stairs(each.cutoff, edges, baseline=None, color=colour, linewidth=1.3)
            axis.set_title(f"{name}: {each.summary()['of_oracle']:.1%} of the oracle's throughput", parse_math=False)
            axis.set(ylabel="c", xlim=edges[[0, -1]], ylim=(0, None))
        for axis in axes[len(rounds) :]:
            axis.set_axis_off()
        for axis in axes[max(0, len(rounds) - columns) : len(rounds)]:
            axis.set_xlabel("round")
            axis.xaxis.set_tick_params(labelbottom=True)
        figure.legend(handles=axes[0].patches[:1], loc="outside upper right")
    return figure


def throughput(rounds: dict[str, Rounds]) -> Picture:
    """Draw the gradients per second of each rule; a dashed line marks the oracle.

    Args:
        rounds: by the name of a rule, its rounds in closed loop, all on the same compute times.
    """
    with style():
        figure = Picture(figsize=(6.5, 0.9 + 0.3 * len(rounds)), layout="constrained")
        axis = figure.subplots()
        reached = {name: each.summary() for name, each in rounds.items()}
        per_second = [each["throughput"] for each in reached.values()]
        axis.barh(range(len(rounds)), per_second, 0.7, color=[colour for colour, _ in View().looks_of(rounds).values()])
        first = next(iter(reached.values()))
        oracle = first["throughput"] / first["of_oracle"]
        axis.axvline(oracle, color="#5B5B5B", linestyle="--", label="oracle")
        end = 1.02 * max(oracle, *per_second)
        for place, each in enumerate(per_second):
            axis.text(end, place, f"{each:.4g}", va="center")
        axis.set(yticks=range(len(rounds)), yticklabels=list(rounds), xlabel="gradients/s", xlim=(0, 1.1 * end))
        for label in axis.get_yticklabels():
            label.set_parse_math(False)
        axis.grid(axis="y", visible=False)
        axis.invert_yaxis()
        figure.legend(loc="outside lower right")
    return figure
