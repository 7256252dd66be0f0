"""Figure 3: predicted order statistics of the next iteration against those observed, on 158 and on 2,175 workers."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from fred.prediction.deep import saved
from fred.prediction.deep.rule import DMM, train_best
from fred.views import figures
from reproductions.common import RESULTS, say, store
from reproductions.cutoff.cluster import WARM_UP, Recorded, changing, record
from reproductions.cutoff.regime import MODEL, SEEDS, TRAINING_SEED

ITERATIONS = {158: (1, 60, 62, 150), 2175: (1, 70, 140, 200)}  # by workers
ORDERED, COVERAGE = (RESULTS / f"cutoff-{name}.csv" for name in ("ordered", "coverage"))
_POINTS = 160  # of an order statistic's curve that are kept
_BAND, _CUTOFF = "#0072B2", "#D55E00"


def measure() -> None:
    """Predict the next iteration from complete ones, by the deep model, which is trained once for each cluster."""
    rule, training = DMM(objective="round", by="count").unwatched(), record("figure3", "training", TRAINING_SEED)
    say(f"cutoff: recorded {len(training.seconds)} iterations of 2,175 workers")
    small, large = (rule.with_model(trained.without_plainer()) for trained in (saved.load(MODEL), train_best(rule, *training)))
    say("cutoff: trained dmm on them")
    parts = [_predict(small, changing(SEEDS[0])), _predict(large, record("figure3", "test", SEEDS[0]))]
    for number, path in enumerate((ORDERED, COVERAGE)):
        store(path, pd.concat([part[number] for part in parts]), "%.5g")


def _predict(rule: DMM, test: Recorded) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return order statistics of the shown iterations, and for all the accuracy of predictions and the gain of the cutoff."""
    chooser: Any = rule.start(test.node_of)
    workers = len(test.node_of)
    counts, ranks = np.arange(1, workers + 1), np.unique(np.linspace(0, workers - 1, _POINTS).round().astype(int))
    curves, quality = [], []
    for number, seconds in enumerate(test.seconds):
        iteration = number - WARM_UP + 1
        times = np.rint(seconds * 1e9).astype(np.int64)
        c = chooser.choose(times)
        if iteration >= 1:
            samples, observed = chooser.ordered_samples(), np.sort(seconds)
            mean, deviation = samples.mean(axis=0), samples.std(axis=0)
            rates = counts / observed
            quality.append(
                {
                    "workers": workers,
                    "iteration": iteration,
                    "within": (np.abs(observed - mean) <= 2 * deviation).mean(),
                    "error": np.abs(mean / observed - 1).mean(),
                    "c": c,
                    "ratio": rates[c - 1] / rates.max(),
                    "saved": 1 - observed[c - 1] / observed[-1],
                }
            )
            if iteration in ITERATIONS[workers]:
                columns = {"rank": ranks + 1, "observed": observed[ranks], "mean": mean[ranks], "deviation": deviation[ranks]}
                curves.append(pd.DataFrame({"workers": workers, "iteration": iteration, "c": c, **columns}))
        chooser.observe(times, np.ones(workers, bool))
    return pd.concat(curves), pd.DataFrame(quality)


def figure3(ordered: pd.DataFrame) -> figures.Picture:
    """Draw a row for each cluster, a panel for each of its iterations."""
    with figures.style():
        picture = figures.Picture(figsize=(9.5, 5), layout="constrained")
        for axes, (workers, iterations) in zip(picture.subplots(2, 4, sharey="row"), ITERATIONS.items(), strict=True):
            for axis, iteration in zip(axes, iterations, strict=True):
                _panel(axis, ordered[(ordered["workers"] == workers) & (ordered["iteration"] == iteration)])
                axis.set_title(f"iteration {iteration}")
            axes[0].set_ylabel(f"{workers:,} workers:\ncompute time, s")
        for axis in picture.axes[-4:]:
            axis.set_xlabel("rank of the worker")
        picture.legend(*picture.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return picture


def _panel(axis: Axes, curve: pd.DataFrame) -> None:
    low, high = (curve["mean"] + sign * 2 * curve["deviation"] for sign in (-1, 1))
    axis.fill_between(curve["rank"], low, high, color=_BAND, alpha=0.25, linewidth=0)
    axis.plot(curve["rank"], curve["mean"], color=_BAND, linewidth=1.2, label="predicted, ± 2 deviations")
    axis.scatter(curve["rank"], curve["observed"], s=3, color="#222222", zorder=3, label="observed")
    axis.axvline(curve["c"].iloc[0], color=_CUTOFF, linewidth=1.2, label="cutoff chosen")
    axis.set(ylim=(0, None))
