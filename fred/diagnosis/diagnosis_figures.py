"""Figures of a diagnosis: times by worker and iteration, gains of the remedies, and used gradients."""

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import LogNorm

from fred.base.numbers import percent
from fred.diagnosis.findings import Diagnosis, Gain
from fred.diagnosis.spells import runs
from fred.views.figures import COLOURS, FAINT, Picture, style

_MOST_CELLS = 600  # workers up to which the image is not smoothed
_KINDS = {  # kind of a remedy -> number of its colour
    **{"repair": 2, "remove": 2, "align": 2, "backup": 0, "deadline": 0, "rule": 0, "local": 3, "asynchronous": 3},
}
_MOST_NAMES, _LONGEST_NAME = 16, 12  # workers with a name in the image; letters of a name, from its end
_MOST_TIMES = 8.0  # largest time shown, relative to the median worker


def slow_when(found: Diagnosis) -> Picture:
    """Draw each worker's time relative to the median worker, round by round, and the share of time lost in each round.

    Args:
        found: findings about a trace.
    """
    seconds = found.trace.seconds
    relative = seconds / np.median(seconds, axis=1, keepdims=True)
    order = np.arange(seconds.shape[1]) if found.trace.node_of is None else np.argsort(found.trace.node_of, kind="stable")
    with style():
        figure = Picture(figsize=(9.0, 4.4), layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
        largest = float(np.clip(np.quantile(relative, 0.999), 1.5, _MOST_TIMES))
        image = above.imshow(
            relative[:, order].T,
            norm=LogNorm(1 / largest, largest),
            aspect="auto",
            cmap="RdBu_r",
            extent=(0, len(seconds), len(order), 0),
            interpolation="nearest" if seconds.shape[1] < _MOST_CELLS else "antialiased",
        )
        ticks = sorted({1 / largest, 1.0, largest})
        bar = figure.colorbar(image, ax=above, pad=0.01)
        bar.ax.minorticks_off()
        bar.set_ticks(ticks, labels=[f"x {tick:.2g}" for tick in ticks])
        above.set_yticks(*_rows([found.trace.workers[worker] for worker in order]), parse_math=False)
        above.set(ylabel="worker" if found.trace.node_of is None else "worker, by node", title="time / median worker's")
        above.grid(False)
        lost = 100 * (1 - np.median(seconds, axis=1) / seconds.max(axis=1))
        below.plot(np.arange(len(lost)) + 0.5, lost, color=COLOURS[0], linewidth=0.8)
        for run in runs(found.slowness.high):
            if run.high:
                below.axvspan(found.first + run.first, found.first + run.end, color=COLOURS[4], alpha=0.3, linewidth=0)
        below.set(xlabel="iteration (shaded: spells)", ylabel="lost, %", ylim=(0, 100), xlim=(0, len(seconds)))
    return figure


def gains(found: Diagnosis) -> Picture:
    """Draw the gain of each remedy over waiting for all, with its 95 % interval, and the upper bound.

    Args:
        found: findings about a trace.
    """
    shown = found.gains[::-1]
    with style():
        figure = Picture(figsize=(8.0, 0.9 + 0.27 * len(shown)), layout="constrained")
        axis = figure.subplots()
        for place, each in enumerate(shown):
            colour = COLOURS[_KINDS[each.remedy.kind]]
            low, high = each.ratio.interval or (each.ratio.value, each.ratio.value)
            axis.plot([low, high], [place, place], color=colour, linewidth=2.5, alpha=0.5, solid_capstyle="butt")
            axis.plot(each.ratio.value, place, "o" if not each.fairness.excluded else "X", color=colour)
        axis.axvline(1, color=FAINT, linewidth=1)
        axis.axvline(found.bound.ratio.value, color=COLOURS[1], linestyle="--", label="upper bound of all that drop gradients")
        axis.set(yticks=range(len(shown)), xlabel="gain (cross: excludes workers)")
        axis.set_yticklabels([_short(each) for each in shown], parse_math=False)
        if max(each.ratio.value for each in shown) > _MOST_TIMES / 2:
            axis.set_xscale("log")
        axis.xaxis.set_major_formatter(lambda value, _: f"{percent(value)} %")
        figure.legend(loc="outside upper right")
    return figure


def used(found: Diagnosis) -> Picture:
    """Draw the share of each worker's gradients that the recommended cutoff uses.

    Args:
        found: findings about a trace.
    """
    parts = found.recommended.remedy.used
    with style():
        figure = Picture(figsize=(8.0, 2.0), layout="constrained")
        axis = figure.subplots()
        axis.bar(range(len(parts)), 100 * parts, color=np.where(parts < 0.5, COLOURS[1], COLOURS[0]))
        axis.set(ylabel="gradients used, %", ylim=(0, 100), xlim=(-0.6, len(parts) - 0.4), xlabel="worker")
        axis.set_title(_short(found.recommended), parse_math=False)
        if len(parts) <= 32:
            turned = 90 if max(map(len, found.trace.workers)) > 3 else 0
            axis.set_xticks(range(len(parts)), found.trace.workers, rotation=turned, parse_math=False)
    return figure


def _rows(workers: Sequence[str]) -> tuple[list[float], list[str]]:
    """Return the middles of some rows of an image, and the names of their workers."""
    rows = range(0, len(workers), -(-len(workers) // _MOST_NAMES))
    return [row + 0.5 for row in rows], [workers[row][-_LONGEST_NAME:] for row in rows]


def _short(each: Gain, most: int = 44) -> str:
    name = each.remedy.name.replace("`", "")
    return name if len(name) <= most else f"{name[: most - 1]}…"
