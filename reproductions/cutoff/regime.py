"""Figure 2: throughput through a change of regime, and how soon each rule has noticed it."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from fred.components.component import NANOSECONDS
from fred.prediction import closed_loop
from fred.prediction.contract import AllWorkers, CutoffRule
from fred.prediction.deep.rule import DMM, DMMPlain, DMMPrinted, train_best
from fred.prediction.predictive import EWMA, Elfving
from fred.prediction.simple_rules import FixedCount
from fred.views import figures
from fred.views.view import marks
from reproductions.common import RESULTS, Seeds, say, store
from reproductions.cutoff.cluster import CHANGE, SCENARIOS, WARM_UP, Recorded, changing, record

RULES: dict[str, CutoffRule] = {
    "all": AllWorkers(),
    "best static": FixedCount(objective="round"),
    "Elfving": Elfving(objective="round"),
    "EWMA": EWMA(objective="round", of="worker", by="count"),
    "dmm": DMM(objective="round", by="count"),
    "dmm-plain": DMMPlain(objective="round"),
    "dmm-printed": DMMPrinted(objective="round"),
}
PREDICTING = ("Elfving", "EWMA", "dmm-printed", "dmm-plain", "dmm")
LEARNED = ("dmm", "dmm-plain", "dmm-printed")
MODEL = SCENARIOS / "cluster158.npz"
TRAINING_SEED, SEEDS = 1, (2, 3, 4, 5, 6)
PROFILE_ITERATIONS = (1, 50, 100, 150, 200)
NEAR = 0.95  # of the oracle's throughput counts as near the maximum
STEADY = 5  # so many iterations in a row, and a rule has recovered
ROUNDS, PROFILES, TRAINING = (RESULTS / f"cutoff-{name}.csv" for name in ("rounds", "profiles", "training"))
_COLOURS = dict(zip(("dmm", "all", "EWMA", "Elfving", "dmm-plain", "dmm-printed"), figures.COLOURS, strict=False))


def measure(add: bool = False) -> None:
    """Train on one recorded run. Then let every rule decide on the same run-times of others, of which it sees its own part.

    Args:
        add: whether to measure only the seeds that the file lacks, with the stored model of `dmm`. Its two variants would have
            to be trained again, which takes minutes; they keep the seeds that they have.
    """
    measured = Seeds(ROUNDS, ["rule"], add, seeds_first=True)
    training = record("figure2", "training", TRAINING_SEED)
    say(f"cutoff: recorded {len(training.seconds)} iterations")
    if not add:
        store(TRAINING, _facts(training))
        train_best(DMM(objective="round", by="count"), *training).save(MODEL)
    names = [name for name in RULES if not add or name not in LEARNED[1:]]
    rules = {name: _trained(name, RULES[name], training) for name in names}
    for seed in measured.missing(SEEDS, rule="dmm"):
        test = changing(seed)
        rounds = {name: _rounds(rule, test).assign(rule=name, seed=seed) for name, rule in rules.items()}
        measured.add(pd.concat(rounds.values()), "%.5g")
        if seed == SEEDS[0]:
            store(PROFILES, _profiles(test, rounds["dmm"]), "%.4g")
        say(f"cutoff: figure 2, seed {seed}")


def _trained(name: str, rule: CutoffRule, training: Recorded) -> CutoffRule:
    trained = DMM(objective="round", by="count", model=MODEL).unwatched() if name == "dmm" else rule.trained(*training)
    say(f"cutoff: trained {name}")
    return trained


def _facts(training: Recorded) -> pd.DataFrame:
    """Return the paper's facts about its hour, and the best static cutoff."""
    seconds = training.seconds
    static = RULES["best static"].trained(*training)
    assert isinstance(static, FixedCount)
    slowest = seconds.max(axis=1).mean()
    return pd.DataFrame([{"mean": seconds.mean(), "deviation": seconds.std(), "slowest": slowest, "static": static.workers}])


def _rounds(rule: CutoffRule, test: Recorded) -> pd.DataFrame:
    rounds = closed_loop.run(rule, *test, WARM_UP)
    columns = {
        "iteration": np.arange(len(rounds.cutoff)) + 1,
        "c": rounds.cutoff,
        "seconds": rounds.time / NANOSECONDS,
        "best_c": rounds.best_cutoff,
        "best_seconds": rounds.best_time / NANOSECONDS,
    }
    return pd.DataFrame(columns)


def _profiles(test: Recorded, rounds: pd.DataFrame) -> pd.DataFrame:
    """Return each worker's compute time in some iterations, and the cutoff of the learned rule, s."""
    frames = []
    for iteration in PROFILE_ITERATIONS:
        columns = {
            "worker": np.arange(len(test.node_of)),
            "node": test.node_of,
            "seconds": test.seconds[WARM_UP + iteration - 1],
        }
        cutoff = rounds["seconds"].iloc[iteration - 1]
        frames.append(pd.DataFrame({"iteration": iteration, **columns, "cutoff": cutoff}))
    return pd.concat(frames)


def shares_by_seed(rounds: pd.DataFrame, first: int, last: int) -> pd.DataFrame:
    """Return gradients per second relative to the oracle's over some iterations: by seed (rows) and rule."""
    sums = (
        rounds[rounds["iteration"].between(first, last)]
        .groupby(["rule", "seed"])[["c", "seconds", "best_c", "best_seconds"]]
        .sum()
    )
    return (sums["c"] / sums["seconds"] / (sums["best_c"] / sums["best_seconds"])).unstack("rule")


def shares(rounds: pd.DataFrame, first: int, last: int) -> "pd.Series[float]":
    """Return the same of each rule, mean over seeds."""
    return shares_by_seed(rounds, first, last).mean()


def ratio(rounds: pd.DataFrame) -> "pd.Series[float]":
    """Return the gradients per second of each round, relative to the oracle's."""
    return (rounds["c"] / rounds["seconds"]) / (rounds["best_c"] / rounds["best_seconds"])


def find_recoveries(rounds: pd.DataFrame, rule: str) -> list[int | None]:
    """Return, for each seed, the first iteration after the change from which a rule stays near the maximum."""
    iterations: list[int | None] = []
    for _, seed_rounds in rounds[(rounds["rule"] == rule) & (rounds["iteration"] >= CHANGE)].groupby("seed"):
        near = (ratio(seed_rounds) >= NEAR).to_numpy()
        steady = np.lib.stride_tricks.sliding_window_view(near, STEADY).all(axis=1)
        iterations.append(CHANGE + int(steady.argmax()) if steady.any() else None)
    return iterations


def count_low_rounds(rounds: pd.DataFrame, rule: str, first: int, last: int) -> float:
    """Return the number of these iterations in which a rule is not near the maximum, mean over seeds."""
    window = rounds[(rounds["rule"] == rule) & rounds["iteration"].between(first, last)]
    return float((ratio(window) < NEAR).sum() / window["seed"].nunique())


def time_saved(rounds: pd.DataFrame, first: int, last: int) -> float:
    """Return the share of an iteration's time that the learned rule saves against waiting for all."""
    seconds = rounds[rounds["iteration"].between(first, last)].groupby("rule")["seconds"].sum()
    return float(1 - seconds["dmm"] / seconds["all"])


def figure2(rounds: pd.DataFrame, profiles: pd.DataFrame) -> figures.Picture:
    """Draw figure 2 as in the paper: profiles of five iterations, throughput by iteration, and the time saved."""
    first_seed = rounds[rounds["seed"] == SEEDS[0]]
    by_rule = dict(list(first_seed.groupby("rule")))
    with figures.style():
        picture = figures.Picture(figsize=(9.5, 7), layout="constrained")
        grid = picture.add_gridspec(3, len(PROFILE_ITERATIONS), height_ratios=(1.1, 1.5, 1))
        first: Axes | None = None
        for column, (iteration, workers) in enumerate(profiles.groupby("iteration")):
            axis = picture.add_subplot(grid[0, column], sharey=first)
            _profile(axis, workers)
            axis.set(title=f"iteration {iteration}", xlabel="worker", ylabel="" if first else "compute time, s")
            axis.tick_params(labelleft=first is None)
            first = first or axis
        picture.axes[0].set_ylim(0, 1.05 * profiles["seconds"].max())
        top, bottom = (picture.add_subplot(grid[row, :]) for row in (1, 2))
        oracle = by_rule["all"]
        top.plot(oracle["iteration"], oracle["best_c"] / oracle["best_seconds"], color="#999999", linewidth=3, label="oracle")
        for name, label in (("dmm", "cutoff (dmm)"), ("all", "all workers")):
            curve = by_rule[name]
            top.plot(curve["iteration"], curve["c"] / curve["seconds"], color=_COLOURS[name], linewidth=1.1, label=label)
        reduction = 100 * (1 - by_rule["dmm"]["seconds"].to_numpy() / by_rule["all"]["seconds"].to_numpy())
        bottom.fill_between(oracle["iteration"], reduction, step="mid", color=_COLOURS["dmm"], alpha=0.35, linewidth=0)
        for axis in (top, bottom):
            axis.axvline(CHANGE, color="#555555", linestyle=":")
            axis.set(xlim=(1, 200))
        top.set(ylabel="gradients per second", ylim=(0, None))
        top.legend(loc="lower right", ncols=3)
        bottom.set(
            ylabel="shorter than\nwaiting for all, %", xlabel="iteration (the slow node sheds its load at the dotted line)"
        )
    return picture


def _profile(axis: Axes, workers: pd.DataFrame) -> None:
    for colour, (_, node) in zip(("#56B4E9", "#009E73", "#CC79A7", "#E69F00"), workers.groupby("node"), strict=False):
        axis.scatter(node["worker"], node["seconds"], s=4, color=colour)
    axis.axhline(workers["cutoff"].iloc[0], color=_COLOURS["dmm"], linewidth=1.2)


def recovery(rounds: pd.DataFrame) -> figures.Picture:
    """Draw the throughput of the predicting rules around the change, relative to the oracle's, mean over seeds."""
    nearby = rounds[rounds["iteration"].between(CHANGE - 6, CHANGE + 34)]
    nearby = nearby.assign(ratio=ratio(nearby))
    with figures.style():
        picture = figures.Picture(figsize=(9.5, 3.4), layout="constrained")
        axis = picture.subplots()
        for name in PREDICTING:
            mean = nearby[nearby["rule"] == name].groupby("iteration")["ratio"].mean()
            width, shape = 2 if name == "dmm" else 1.2, marks(_COLOURS[name])["marker"]
            axis.plot(mean.index, 100 * mean, color=_COLOURS[name], label=name, linewidth=width, marker=shape, markersize=4)
        axis.axvline(CHANGE, color="#555555", linestyle=":")
        axis.axvline(85, color="#BBBBBB", linestyle="--")
        axis.set(
            xlabel="iteration (dotted: the change; dashed: 85, by when the paper's recovers)",
            ylabel="throughput, % of the oracle's",
        )
        picture.legend(loc="outside right center")
    return picture
