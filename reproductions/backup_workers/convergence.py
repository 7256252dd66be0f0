"""Figure 8: Sync-Opt with backup workers against Async-Opt, on as many workers as the paper."""

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

import fred
from fred.views import figures
from fred.views.view import marks
from reproductions.backup_workers.arrivals import SCENARIOS
from reproductions.common import RESULTS, Seeds, run, say

CURVES = RESULTS / "backup-workers-curves.csv"
METHODS, WORKERS = ("sync", "async"), (53, 106, 212)
BACKUPS = {53: 3, 106: 6, 212: 12}
GAMMAS = (0.0025, 0.005, 0.01, 0.02, 0.04)  # rates of Async-Opt; x N of Sync-Opt
TUNING, REPORTED = range(1, 4), range(11, 31)  # seeds: to choose gammas, and of what is reported
TARGET = 0.06
SECONDS = 600.0  # of each run, as in the scenario


def measure(add: bool = False) -> None:
    """Measure error against time of every run with every gamma, and with the best one on other seeds.

    Args:
        add: whether to measure only the seeds that the file lacks.
    """
    measured = Seeds(CURVES, ("gamma", "method", "workers"), add)
    for gamma in GAMMAS:
        if seeds := measured.missing(TUNING, gamma=gamma):
            measured.add(_curves(gamma, [f"{method}-{workers}" for workers in WORKERS for method in METHODS], seeds), "%.6g")
    best = chosen(pd.read_csv(CURVES))
    for gamma in GAMMAS:
        names = [f"{method}-{workers}" for (method, workers), best_gamma in best.items() if best_gamma == gamma]
        if names and (seeds := measured.missing(REPORTED, gamma=gamma)):
            measured.add(_curves(gamma, names, seeds), "%.6g")


def _curves(gamma: float, names: Sequence[str], seeds: Sequence[int]) -> pd.DataFrame:
    settings = [f"seeds={list(seeds)}", *(f"runs.async-{n}.algorithm.learning_rate={gamma}" for n in WORKERS)]
    settings += [f"runs.sync-{n}.algorithm.learning_rate={gamma * (n - BACKUPS[n])}" for n in WORKERS]
    result = run(fred.load(SCENARIOS / "figure8.yaml", settings), f"backup-workers/figure8-{gamma}-{seeds[0]}", names)
    say(f"backup workers: figure 8, gamma {gamma}, seeds {seeds}")
    curves = result.metrics[["run", "seed", "virtual_seconds", "updates", "gradients", "error"]].assign(gamma=gamma)
    names_and_sizes = curves["run"].str.split("-")
    return curves.drop(columns="run").assign(method=names_and_sizes.str[0], workers=names_and_sizes.str[1].astype(int))


def tuned(curves: pd.DataFrame) -> "pd.Series[float]":
    """Return the mean error over the tuning seeds, by method, workers and gamma."""
    own = curves[curves["seed"].isin(TUNING)]
    return _ends(own).groupby(["method", "workers", "gamma"]).mean()


def chosen(curves: pd.DataFrame) -> dict[tuple[str, int], float]:
    """Return the gamma with the lowest error on the tuning seeds, by method and workers."""
    errors = tuned(curves).to_dict()
    return {
        (method, workers): min((errors[method, workers, gamma], gamma) for gamma in GAMMAS)[1]
        for method in METHODS
        for workers in WORKERS
    }


class End(NamedTuple):
    """Outcomes of a method with its best gamma, by reported seed."""

    gamma: float
    error: "pd.Series[float]"  # of the last three looks
    seconds: "pd.Series[float]"  # to the target; not a number if it never gets there
    epochs: "pd.Series[float]"  # to the target; an update of Sync-Opt, N updates of Async-Opt [section 4.2]
    epoch: "pd.Series[float]"  # s, of each epoch


def ends(curves: pd.DataFrame) -> dict[tuple[str, int], End]:
    """Return the outcomes by method and workers."""
    found = {}
    for (method, workers), gamma in chosen(curves).items():
        of = (curves["method"] == method) & (curves["workers"] == workers) & (curves["gamma"] == gamma)
        own = curves[of & curves["seed"].isin(REPORTED)]
        in_each = 1 if method == "sync" else workers
        error = _ends(own).droplevel(["method", "workers", "gamma"])
        reached = own[own["error"] <= TARGET].groupby("seed")[["virtual_seconds", "updates"]].min().reindex(error.index)
        last = own.groupby("seed")[["updates", "virtual_seconds"]].max()
        epoch = last["virtual_seconds"] / last["updates"] * in_each
        found[method, workers] = End(gamma, error, reached["virtual_seconds"], reached["updates"] / in_each, epoch)
    return found


def _ends(curves: pd.DataFrame) -> "pd.Series[float]":
    """Return the mean error of the last three looks, by method, workers, gamma and seed."""
    keys = ["method", "workers", "gamma", "seed"]
    looks = curves.sort_values("virtual_seconds").groupby(keys).tail(3)
    return looks.groupby(keys)["error"].mean()


def picture(curves: pd.DataFrame) -> figures.Picture:
    """A panel for each number of workers: error against virtual time, each method with its best gamma."""
    best, curves = chosen(curves), curves[curves["seed"].isin(REPORTED)]
    with figures.style():
        drawn = figures.Picture(figsize=(9.6, 3.1), layout="constrained")
        axes = drawn.subplots(1, len(WORKERS), sharey=True)
        for axis, workers in zip(axes, WORKERS, strict=True):
            for colour, method in zip(figures.COLOURS, ("sync", "async"), strict=False):
                of = (curves["method"] == method) & (curves["workers"] == workers)
                own = curves[of & (curves["gamma"] == best[method, workers])]
                mean = own.groupby("virtual_seconds")["error"].mean()
                label = {"sync": "Sync-Opt", "async": "Async-Opt"}[method]
                axis.plot(mean.index, mean, color=colour, label=label, **marks(colour))
            axis.set(title=f"N + b = {workers}", xlabel="virtual time, s", ylim=(0, 0.2))
        axes[0].set_ylabel("test error")
        drawn.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return drawn
