"""Figure 8: Sync-Opt with backup workers against Async-Opt, on as many workers as the paper."""

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import pandas as pd

import fred
from fred.views import figures
from fred.views.view import marks
from reproductions.backup_workers.arrivals import SCENARIOS
from reproductions.common import RESULTS, TUNING, Seeds, run, say

CURVES = RESULTS / "backup-workers-curves.csv"
METHODS, WORKERS = ("sync", "async"), (53, 106, 212)
BACKUPS = {53: 3, 106: 6, 212: 12}
GAMMAS = (0.0025, 0.005, 0.01, 0.02, 0.04)  # rates of Async-Opt; x N of Sync-Opt
REPORTED = range(11, 31)  # seeds: the methods differ by less than the usual five seeds show
TARGET = 0.06
SECONDS = 600.0  # of each run, as in the scenario


def measure(add: bool = False) -> None:
    """Measure error against time of every run with every gamma, and with the best one on other seeds.

    Args:
        add: whether to measure only the seeds that the file lacks.
    """
    measured = Seeds(CURVES, ("gamma", "method", "workers"), add)
    for gamma, workers, method in product(GAMMAS, WORKERS, METHODS):
        _add_curves(measured, gamma, method, workers, TUNING)
    for (method, workers), gamma in choose_gammas(pd.read_csv(CURVES)).items():
        _add_curves(measured, gamma, method, workers, REPORTED)


def _add_curves(measured: Seeds, gamma: float, method: str, workers: int, every_seed: Sequence[int]) -> None:
    seeds = measured.missing(every_seed, gamma=gamma, method=method, workers=workers)
    if seeds:
        measured.add(_curves(gamma, f"{method}-{workers}", seeds), "%.6g")


def _curves(gamma: float, name: str, seeds: Sequence[int]) -> pd.DataFrame:
    settings = [f"seeds={list(seeds)}", *(f"runs.async-{n}.algorithm.learning_rate={gamma}" for n in WORKERS)]
    settings += [f"runs.sync-{n}.algorithm.learning_rate={gamma * (n - BACKUPS[n])}" for n in WORKERS]
    result = run(fred.load(SCENARIOS / "figure8.yaml", settings), f"backup-workers/figure8-{gamma}-{name}-{seeds[0]}", [name])
    say(f"backup workers: figure 8, {name}, gamma {gamma}, seeds {seeds}")
    curves = result.metrics[["run", "seed", "virtual_seconds", "updates", "gradients", "error"]].assign(gamma=gamma)
    names_and_sizes = curves["run"].str.split("-")
    return curves.drop(columns="run").assign(method=names_and_sizes.str[0], workers=names_and_sizes.str[1].astype(int))


def tuning_errors(curves: pd.DataFrame) -> "pd.Series[float]":
    """Return the mean error over the tuning seeds, by method, workers and gamma."""
    rows = curves[curves["seed"].isin(TUNING)]
    return _ends(rows).groupby(["method", "workers", "gamma"]).mean()


def choose_gammas(curves: pd.DataFrame) -> dict[tuple[str, int], float]:
    """Return the gamma with the lowest error on the tuning seeds, by method and workers."""
    errors = tuning_errors(curves).to_dict()
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
    outcomes = {}
    for (method, workers), gamma in choose_gammas(curves).items():
        matches = (curves["method"] == method) & (curves["workers"] == workers) & (curves["gamma"] == gamma)
        rows = curves[matches & curves["seed"].isin(REPORTED)]
        epoch_updates = 1 if method == "sync" else workers
        error = _ends(rows).droplevel(["method", "workers", "gamma"])
        reached = rows[rows["error"] <= TARGET].groupby("seed")[["virtual_seconds", "updates"]].min().reindex(error.index)
        last = rows.groupby("seed")[["updates", "virtual_seconds"]].max()
        epoch = last["virtual_seconds"] / last["updates"] * epoch_updates
        outcomes[method, workers] = End(gamma, error, reached["virtual_seconds"], reached["updates"] / epoch_updates, epoch)
    return outcomes


def _ends(curves: pd.DataFrame) -> "pd.Series[float]":
    """Return the mean error of the last three looks, by method, workers, gamma and seed."""
    keys = ["method", "workers", "gamma", "seed"]
    looks = curves.sort_values("virtual_seconds").groupby(keys).tail(3)
    return looks.groupby(keys)["error"].mean()


def picture(curves: pd.DataFrame) -> figures.Picture:
    """Draw a panel for each number of workers: error against virtual time, each method with its best gamma."""
    best, curves = choose_gammas(curves), curves[curves["seed"].isin(REPORTED)]
    with figures.style():
        figure = figures.Picture(figsize=(9.6, 3.1), layout="constrained")
        axes = figure.subplots(1, len(WORKERS), sharey=True)
        for axis, workers in zip(axes, WORKERS, strict=True):
            for colour, method in zip(figures.COLOURS, ("sync", "async"), strict=False):
                matches = (curves["method"] == method) & (curves["workers"] == workers)
                rows = curves[matches & (curves["gamma"] == best[method, workers])]
                mean = rows.groupby("virtual_seconds")["error"].mean()
                label = {"sync": "Sync-Opt", "async": "Async-Opt"}[method]
                axis.plot(mean.index, mean, color=colour, label=label, **marks(colour))
            axis.set(title=f"N + b = {workers}", xlabel="virtual time, s", ylim=(0, 0.2))
        axes[0].set_ylabel("test error")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure
