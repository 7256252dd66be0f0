"""Rules for the cutoff when a cluster does what training had not seen: nine kinds of change, and the four old clusters."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.cluster.contention import NodeOf
from fred.prediction import closed_loop, comparison
from fred.prediction.closed_loop import Rounds
from fred.prediction.comparison import rule_named
from fred.prediction.deep import saved
from fred.prediction.deep.rule import DMM
from reproductions import predictors
from reproductions.common import RESULTS, fill, store, table, write
from reproductions.predictors import Case

FILE, RECORDED = RESULTS / "changes.csv", RESULTS / "changes-traces.csv"
RULES = tuple(name for name in comparison.RULES if not name.startswith("oracle"))
OLD = ("paper", "bursty", "rotate", "iid")
SEEDS = range(400, 410)  # on which nothing was chosen
SIZES = (24, 158)
TRAIN, TEST = 600, 420  # rounds
WINDOW, STEP = 100, 10  # rounds of a window, and between the beginnings of two
_SMALL, _LARGE = 0.02, 0.04  # of the oracle
Matrix = NDArray[np.float64]
Rng = np.random.Generator


@dataclass
class World:
    """A cluster whose workers' logarithmic slowdowns change in a round of the test part."""

    rng: Rng
    node_of: NodeOf
    at: int  # the round from which on all is different
    slow: Matrix  # log slow-down [rounds, workers]
    noise: Matrix  # factor of all noise [rounds, 1]

    @property
    def changed(self) -> Matrix:
        """The rounds from the change on, which kinds of change write."""
        return self.slow[self.at :]

    def draw_workers(self, number: int) -> NDArray[np.intp]:
        """Draw a number of workers."""
        return self.rng.permutation(len(self.node_of))[:number]

    def node(self, ahead: int = 0) -> NDArray[np.bool_]:
        """Tell which workers are on a node."""
        return self.node_of == ahead


def _noisy(world: World) -> None:
    world.noise[world.at :] = 3.0


def _slower(world: World) -> None:
    world.changed[:] = np.log(4.0)


def _now_and_then(world: World) -> None:
    workers = world.draw_workers(max(3, len(world.node_of) // 8))
    late = world.rng.random((len(world.changed), len(workers))) < 0.3
    world.changed[:, workers] = np.where(late, np.log(4.0), 0.0)


def _node_gone(world: World) -> None:
    world.changed[:, world.node()] = np.log(50.0)


def _stalls(world: World) -> None:
    world.changed[:: int(world.rng.integers(25, 50))] = np.log(8.0)


def _successively_slower(world: World) -> None:
    workers = world.draw_workers(len(world.node_of) // 4)
    for number, worker in enumerate(workers):
        world.changed[number * 240 // len(workers) :, worker] = np.log(world.rng.uniform(1.5, 4.0))


def _exchanged(world: World) -> None:
    world.slow[: world.at, world.node()] = np.log(2.5)
    world.changed[:, world.node(1)] = np.log(2.5)


def _another_node(world: World) -> None:
    world.changed[:80, world.node()] = np.log(3.0)
    world.changed[130:, world.node(1)] = np.log(3.0)


def _daily(world: World) -> None:
    phases, period = world.rng.uniform(0, 2 * np.pi, 4), world.rng.integers(120, 260)
    rounds = np.arange(len(world.changed))[:, None]
    world.changed[:] = (np.log(2.2) * (0.5 + 0.5 * np.sin(2 * np.pi * rounds / period + phases)))[:, world.node_of]


CHANGES: dict[str, tuple[str, Callable[[World], None]]] = {
    "noise": ("all noise becomes three times as large", _noisy),
    "slower": ("all workers become four times slower", _slower),
    "now and then": ("one worker of eight is four times slower in three of ten rounds", _now_and_then),
    "node gone": ("the workers of a node become fifty times slower", _node_gone),
    "stalls": ("every 25 to 50 rounds all workers take eight times as long", _stalls),
    "one by one": ("a quarter of the workers becomes 1.5 to 4 times slower, one after the other", _successively_slower),
    "exchanged": ("the node that was slow is quick, another one is slow", _exchanged),
    "another node": ("a node is three times slower for 80 rounds, later another one for good", _another_node),
    "daily": ("nodes become up to 2.2 times slower and quicker again, in a cycle of 120 to 260 rounds", _daily),
}


def generate(case: Case) -> tuple[Matrix, Matrix, NodeOf]:
    """Make run-times to train on and to run on, s [rounds, workers], and the workers' nodes."""
    kind, workers, seed = case.kind, case.workers, case.seed
    rng = np.random.default_rng([seed, list(CHANGES).index(kind), workers])
    node_of = np.sort(np.arange(workers) % (3 if workers < 100 else 4))
    rounds = TRAIN + TEST
    world = World(rng, node_of, TRAIN + int(rng.integers(60, 140)), np.zeros((rounds, workers)), np.ones((rounds, 1)))
    usual = 0.05 * rng.standard_normal(workers)
    if seed % 3 == 1:
        world.slow += _spells(rng, rounds, int(node_of.max()) + 1)[:, node_of]
    if seed % 3 == 2:
        world.slow[:, rng.integers(workers)] += np.log(rng.uniform(1.3, 2.5))
    CHANGES[kind][1](world)
    of_node = _autoregressive(rng, 0.95, 0.04, rounds, int(node_of.max()) + 1)[:, node_of]
    of_worker = _autoregressive(rng, 0.7, 0.04, rounds, workers) + 0.08 * rng.standard_normal((rounds, workers))
    spikes = (rng.random((rounds, workers)) < 0.005) * np.log1p(rng.exponential(0.5, (rounds, workers)))
    times = np.exp(usual + world.slow + world.noise * (of_node + of_worker) + spikes)
    return times[:TRAIN], times[TRAIN:], node_of


def _spells(rng: Rng, rounds: int, nodes: int) -> Matrix:
    """Return logarithmic slowdowns of nodes that are slow for 8 to 60 rounds, after 120 on average: [rounds, nodes]."""
    slow = np.zeros((rounds, nodes))
    for node in range(nodes):
        at = -int(rng.integers(0, 120))
        while at < rounds:
            at += int(rng.exponential(120)) + 5
            long = int(rng.integers(8, 60))
            slow[max(at, 0) : max(at + long, 0), node] = np.log(rng.uniform(1.8, 2.3))
            at += long
    return slow


def _autoregressive(rng: Rng, rho: float, deviation: float, rounds: int, width: int) -> Matrix:
    noise = rng.standard_normal((rounds + 60, width)) * deviation * np.sqrt(1 - rho**2)
    for at in range(1, len(noise)):
        noise[at] += rho * noise[at - 1]
    return noise[60:]


def training() -> None:
    """Run every rule on every cluster, and on recorded traces: half an hour on two cores."""
    store(RECORDED, [row for name in predictors.TRACES for row in predictors.measure_on_trace(name, RULES)], "%.5g")
    cases = [Case(kind, workers, seed) for workers in SIZES for kind in CHANGES for seed in SEEDS]
    cases += [Case(kind, 158, seed) for kind in OLD for seed in SEEDS]
    predictors.measure_cases(_measure_rules, cases, FILE)


def _measure_rules(case: Case) -> list[dict[str, Any]]:
    """Return each rule's result in a case, and its loss against the best rule and against waiting for all, in windows."""
    train, test, node_of = case.load() if case.kind in OLD else generate(case)
    results, seconds = {}, {}
    shipped = DMM().with_model(saved.load(saved.SHIPPED))
    for name, rule in [*((name, rule_named(name)) for name in RULES), ("dmm", shipped)]:
        start = time.perf_counter()
        rule = rule.trained(train, node_of)
        seconds[name] = time.perf_counter() - start
        results[name] = closed_loop.run(rule, test, node_of)
    windows = {name: _rates(rounds.cutoff, rounds.time) for name, rounds in results.items()}
    oracle = _rates(results["all"].best_cutoff, results["all"].best_time)
    best = np.max([windows[name] for name in RULES if name != "auto"], axis=0)
    rows = []
    for name, rounds in results.items():
        gaps, gaps_to_all = (best - windows[name]) / oracle, (windows["all"] - windows[name]) / oracle
        rows.append(
            {**vars(case), "rule": name, **rounds.summary(), "training": seconds[name]}
            | {"mean": gaps.mean(), "worst": gaps.max(), "above .02": (gaps > _SMALL).mean()}
            | {
                "above .04": (gaps > _LARGE).mean(),
                "all: worst": gaps_to_all.max(),
                "all: above .01": (gaps_to_all > 0.01).mean(),
            }
            | {"longest": _longest(rounds)}
        )
    return rows


def _rates(cutoff: NDArray[np.int64], ends: NDArray[np.int64]) -> Matrix:
    """Return the gradients per time in every window."""
    starts = np.arange(0, len(cutoff) - WINDOW + 1, STEP)
    gradients, spent = (np.concatenate(([0.0], np.cumsum(values.astype(float)))) for values in (cutoff, ends))
    return (gradients[starts + WINDOW] - gradients[starts]) / (spent[starts + WINDOW] - spent[starts])


def _longest(rounds: Rounds) -> float:
    """Return the longest round, in medians of the nine before it."""
    ends = rounds.time
    return max(float(ends[at] / np.median(ends[max(0, at - 9) : at])) for at in range(1, len(ends)))


def report() -> str:
    """Write changes.md from the measurements."""
    rows = pd.read_csv(FILE)
    new, old = rows[~rows["kind"].isin(OLD)], rows[rows["kind"].isin(OLD)]
    text = fill(
        Path(__file__).with_suffix(".md"),
        kinds="\n".join(f"- `{name}`: {words}" for name, (words, _) in CHANGES.items()),
        seeds=f"{SEEDS[0]} to {SEEDS[-1]}",
        train=TRAIN,
        test=TEST - closed_loop.WARM_UP,
        window=WINDOW,
        whole="\n\n".join(f"{workers} workers:\n\n{_means_table(part)}" for workers, part in new.groupby("workers")),
        windows=_windows(new),
        verdict=_verdict(new),
        old=_means_table(old),
        old_windows=_windows(old),
        old_verdict=_verdict(old),
        recorded=predictors.trace_table(pd.read_csv(RECORDED), lambda row: f"{row['of_oracle']:.3f}"),
        behind=_gaps_on_traces(pd.read_csv(RECORDED)),
    )
    return write("changes", text)


def _means_table(rows: pd.DataFrame) -> str:
    """Return a table with a row for each rule, a column for each kind."""
    kinds = list(rows["kind"].drop_duplicates())
    means = rows.groupby(["rule", "kind"])["of_oracle"].mean()
    return table(["rule", *kinds], [[name, *(f"{means[name, kind]:.3f}" for kind in kinds)] for name in (*RULES, "dmm")])


def _windows(rows: pd.DataFrame) -> str:
    """Return a table with a row for each kind and size: the distance of `auto` from the best rule."""
    cells = []
    for (workers, kind), part in rows[rows["rule"] == "auto"].groupby(["workers", "kind"], sort=False):
        gaps = [f"{part['mean'].mean():+.3f}", f"{part['worst'].max():+.3f}"]
        shares = [f"{100 * part[f'above {limit}'].mean():.1f}" for limit in (".02", ".04")]
        gaps_to_all = [f"{part['all: worst'].max():+.3f}", f"{100 * part['all: above .01'].mean():.1f}"]
        cells.append([f"{kind}, {workers}", *gaps, *shares, *gaps_to_all, f"{part['longest'].max():.1f}"])
    header = ["kind, workers", "mean", "worst", "% above .02", "% above .04", "all: worst", "all: % above .01", "longest round"]
    return table(header, cells)


def _gaps_on_traces(rows: pd.DataFrame) -> str:
    """Describe how far `auto` is behind the best rule on each trace."""
    gaps = []
    for name, part in rows.groupby("trace", sort=False):
        shares = part.set_index("rule")["of_oracle"]
        gaps.append(f"{shares.drop('auto').max() - shares['auto']:.3f} ({name})")
    return ", ".join(gaps)


def _verdict(rows: pd.DataFrame) -> str:
    """Describe whether the limits hold over all windows."""
    auto = rows[rows["rule"] == "auto"]
    small, large, to_all = (100 * auto[name].mean() for name in ("above .02", "above .04", "all: above .01"))
    return (
        f"Over all of these windows `auto` is behind the best rule by more than .02 in {small:.1f} % (asked: at most 5 %), by "
        f"more than .04 in {large:.1f} % (asked: none; the worst is {auto['worst'].max():.3f}), behind waiting for all by more "
        f"than .01 in {to_all:.1f} % (asked: at most 5 %; the worst is {auto['all: worst'].max():+.3f}, asked: .02)."
    )
