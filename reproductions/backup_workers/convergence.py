"""Figure 8: Sync-Opt with backup workers against Async-Opt, on as many workers as the paper."""

from typing import NamedTuple

import numpy as np
import pandas as pd

import fred
from fred.views import figures
from fred.views.view import marks
from reproductions.backup_workers.arrivals import SCENARIOS
from reproductions.common import RESULTS, run, say

CURVES = RESULTS / "backup-workers-curves.csv"
WORKERS = (53, 106, 212)
BACKUPS = {53: 3, 106: 6, 212: 12}
GAMMAS = (0.005, 0.01)  # rates of Async-Opt; x N of Sync-Opt
TARGET = 0.06


def measure() -> None:
    """Error against time of every run, with both gammas."""
    frames = []
    for gamma in GAMMAS:
        settings = [f"runs.async-{n}.algorithm.learning_rate={gamma}" for n in WORKERS]
        settings += [f"runs.sync-{n}.algorithm.learning_rate={gamma * (n - BACKUPS[n])}" for n in WORKERS]
        result = run(fred.load(SCENARIOS / "figure8.yaml", settings), f"backup-workers/figure8-{gamma}")
        metrics = result.metrics[["run", "seed", "virtual_seconds", "updates", "gradients", "error"]]
        frames.append(metrics.assign(gamma=gamma))
        say(f"backup workers: figure 8, gamma {gamma}")
    curves = pd.concat(frames)
    curves["method"], curves["workers"] = curves["run"].str.split("-").str[0], curves["run"].str.split("-").str[1]
    curves.drop(columns="run").to_csv(CURVES, index=False, float_format="%.6g")


class End(NamedTuple):
    """What a method came to, with the gamma that ended with the lower error; means over the seeds."""

    gamma: float
    error: float  # of the last three looks
    seconds: float  # to the target; not a number if a seed did not get there


def ends(curves: pd.DataFrame) -> dict[tuple[str, int], End]:
    """Return the last values by method and workers."""
    best: dict[tuple[str, int], End] = {}
    for keys, own in curves.groupby(["method", "workers", "gamma"]):
        method, workers, gamma = keys
        seeds = [each.sort_values("virtual_seconds") for _, each in own.groupby("seed")]
        last = np.mean([each["error"].iloc[-3:].mean() for each in seeds])
        first = np.mean([each.loc[each["error"] <= TARGET, "virtual_seconds"].min() for each in seeds])
        end, key = End(float(str(gamma)), float(last), float(first)), (str(method), int(str(workers)))
        if key not in best or end.error < best[key].error:
            best[key] = end
    return best


class Epochs(NamedTuple):
    """An epoch is an update of Sync-Opt, and N of Async-Opt [section 4.2]."""

    needed: float  # until the target
    seconds: float  # of each


def epochs(curves: pd.DataFrame, method: str, workers: int) -> Epochs:
    """Return the epochs of a method with its better gamma, means over the seeds."""
    gamma = ends(curves)[method, workers].gamma
    own = curves[(curves["method"] == method) & (curves["workers"] == workers) & (curves["gamma"] == gamma)]
    in_each = 1 if method == "sync" else workers
    reached = own[own["error"] <= TARGET].groupby("seed")["updates"].min()
    last = own.groupby("seed")[["updates", "virtual_seconds"]].max()
    return Epochs(float(reached.mean()) / in_each, float((last["virtual_seconds"] / last["updates"]).mean()) * in_each)


def picture(curves: pd.DataFrame) -> figures.Picture:
    """A panel for each number of workers: error against virtual time, each method with its better gamma."""
    best = ends(curves)
    with figures.style():
        drawn = figures.Picture(figsize=(9.6, 3.1), layout="constrained")
        axes = drawn.subplots(1, len(WORKERS), sharey=True)
        for axis, workers in zip(axes, WORKERS, strict=True):
            for colour, method in zip(figures.COLOURS, ("sync", "async"), strict=False):
                chosen = (curves["method"] == method) & (curves["workers"] == workers)
                own = curves[chosen & (curves["gamma"] == best[method, workers].gamma)]
                mean = own.groupby("virtual_seconds")["error"].mean()
                label = {"sync": "Sync-Opt", "async": "Async-Opt"}[method]
                axis.plot(mean.index, mean, color=colour, label=label, **marks(colour))
            axis.set(title=f"N + b = {workers}", xlabel="virtual time, s", ylim=(0, 0.2))
        axes[0].set_ylabel("test error")
        drawn.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return drawn
