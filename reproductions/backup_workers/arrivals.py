"""Figures 3 and 4: when the k-th of 100 gradients arrives. Timing only."""

import numpy as np
import pandas as pd

import fred
from fred.diagnosis.backup_workers import arrivals
from fred.views import figures
from fred.views.view import marks
from reproductions.common import RESULTS, ROOT, quiet, store

SCENARIOS = ROOT / "scenarios" / "backup-workers"
ARRIVALS, SHARES = RESULTS / "backup-workers-arrivals.csv", RESULTS / "backup-workers-shares.csv"
FIGURE_RANKS = (1, 50, 90, 97, 98, 99, 100)  # k, in figure 3
LIMIT = 2.0  # s, of which the paper says who is under it
_AXIS = np.arange(0, 6.01, 0.05)  # s, of figure 3


def measure() -> None:
    """Measure, for each seed, the mean, median and longest time of the k-th arrival, and the arrivals over time."""
    result = quiet(fred.load(SCENARIOS / "figure4.yaml"))
    frames, shares = [], []
    for outcome in result.outcomes:
        rounds = arrivals(outcome.schedule)  # [rounds, k]
        columns = {
            "seed": outcome.seed,
            "k": np.arange(1, rounds.shape[1] + 1),
            "mean": rounds.mean(axis=0),
            "median": np.median(rounds, axis=0),
            "longest": rounds.max(axis=0),
            "under": (rounds < LIMIT).mean(axis=0),
        }
        frames.append(pd.DataFrame(columns))
        for k in FIGURE_RANKS:
            arrived = np.searchsorted(np.sort(rounds[:, k - 1]), _AXIS) / len(rounds)
            shares.append(pd.DataFrame({"seed": outcome.seed, "k": k, "seconds": _AXIS, "share": arrived}))
    store(ARRIVALS, pd.concat(frames))
    store(SHARES, pd.concat(shares))


def means(arrived: pd.DataFrame) -> np.ndarray:
    """Return the mean time of the first to the last arrival over the seeds, s."""
    return arrived.groupby("k")["mean"].mean().to_numpy()


def picture(arrived: pd.DataFrame, shares: pd.DataFrame) -> figures.Picture:
    """Draw figure 3 at the left, figure 4 at the right; seeds together."""
    with figures.style():
        figure = figures.Picture(figsize=(9.6, 3.4), layout="constrained")
        left, right = figure.subplots(1, 2)
        for colour, (k, curve) in zip(figures.COLOURS, shares.groupby("k"), strict=False):
            mean = curve.groupby("seconds")["share"].mean()
            left.plot(mean.index, 100 * mean, color=colour, label=f"k = {k}", **marks(colour))
        left.set(xlabel="time since the iteration began, s", ylabel="% of iterations in which\nthe k-th gradient is there")
        left.legend()
        for colour, name in zip(figures.COLOURS, ("mean", "median"), strict=False):
            times = arrived.groupby("k")[name].mean()
            right.plot(times.index, times, color=colour, label=name, **marks(colour))
        right.set(xlabel="k, of 100 gradients", ylabel="time of the k-th arrival, s", ylim=(1, None))
        right.legend()
    return figure
