"""Does a fitted cluster behave like its trace? Generated clusters of eight kinds, and recorded traces."""

import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import fred
from fred.cluster.cluster import Cluster
from fred.fitting import behaviour
from fred.fitting.fitted import Fitted, fit
from fred.traces.trace import Trace
from reproductions.common import RESULTS, fill, say, store, table, write
from reproductions.predictors import TRACES, recorded_trace

FILE = RESULTS / "fitted.csv"
DEVELOPED, REPORTED = range(5), range(100, 105)  # seeds: constants were chosen on the first
_RUNS = [11, 12, 13]  # seeds of the runs by which a fitted cluster is measured
_ROUNDS = 2  # times as many rounds as the trace, in each
_NODES = 4
_GOAL = 0.9  # of the clusters
Matrix = NDArray[np.float64]
Rng = np.random.Generator


def _slow_worker(x: Matrix, nodes: NDArray[np.int64], rng: Rng, seed: int) -> Matrix:
    x[:, rng.integers(x.shape[1])] *= rng.uniform(1.5, 8)
    return x


def _node_in_spells(x: Matrix, nodes: NDArray[np.int64], rng: Rng, seed: int) -> Matrix:
    for node in rng.choice(_NODES, int(rng.integers(1, 3)), replace=False):
        slow = _spells(rng, len(x), 1 / rng.uniform(30, 120), 1 / rng.uniform(15, 60))
        x[:, nodes == node] *= np.where(slow, rng.uniform(1.5, 4), 1)[:, None]
    return x


def _workers_in_spells(x: Matrix, nodes: NDArray[np.int64], rng: Rng, seed: int) -> Matrix:
    slowdown, fast, slow = rng.uniform(1.5, 5), rng.uniform(40, 150), rng.uniform(4, 25)
    for worker in range(x.shape[1]):
        x[:, worker] *= np.where(_spells(rng, len(x), 1 / fast, 1 / slow), slowdown, 1)
    return x


def _drift(x: Matrix, nodes: NDArray[np.int64], rng: Rng, seed: int) -> Matrix:
    for worker in rng.choice(x.shape[1], int(rng.integers(1, 4)), replace=False):
        x[:, worker] *= np.linspace(1, rng.uniform(2, 4), len(x))
    return x


def _heavy_tail(x: Matrix, nodes: NDArray[np.int64], rng: Rng, seed: int) -> Matrix:
    if seed % 2:
        return 1 + rng.pareto(rng.uniform(1.8, 3.5), x.shape)
    return x + (rng.random(x.shape) < rng.uniform(0.005, 0.03)) * rng.lognormal(0.7, 0.5, x.shape)


def _unequal(x: Matrix, nodes: NDArray[np.int64], rng: Rng, seed: int) -> Matrix:
    return np.exp(np.log(x) * rng.uniform(0.5, 2, x.shape[1]) + rng.normal(0, 0.3, x.shape[1]))


def _daily_cycle(x: Matrix, nodes: NDArray[np.int64], rng: Rng, seed: int) -> Matrix:
    period, most, phase, now = len(x) / rng.uniform(1.5, 5), rng.uniform(0.4, 2), rng.random(), 0.0
    for row in x:
        row *= 1 + most * (1 + np.cos(2 * np.pi * (now / period + phase))) / 2
        now += row.max()
    return x


def _equal(x: Matrix, nodes: NDArray[np.int64], rng: Rng, seed: int) -> Matrix:
    return rng.gamma(rng.uniform(3, 20), 1, x.shape) if seed % 2 else x


KINDS: dict[str, Callable[[Matrix, NDArray[np.int64], Rng, int], Matrix]] = {
    "one slow worker": _slow_worker,
    "nodes in spells": _node_in_spells,
    "workers in spells": _workers_in_spells,
    "workers that drift": _drift,
    "heavy tails": _heavy_tail,
    "unequal workers": _unequal,
    "a daily cycle": _daily_cycle,
    "all alike": _equal,
}


def generate(kind: str, seed: int) -> Trace:
    """Return a trace of 150, 250 or 400 rounds of 12 to 32 workers; only one kind is told its four nodes.

    Args:
        kind: one of `KINDS`.
        seed: of the numbers and of the times.
    """
    rng = np.random.default_rng([list(KINDS).index(kind), seed])
    rounds, workers = int(rng.choice([150, 250, 400])), int(rng.choice([12, 16, 24, 32]))
    nodes = np.arange(workers) * _NODES // workers
    seconds = KINDS[kind](rng.lognormal(0, rng.uniform(0.04, 0.2), (rounds, workers)), nodes, rng, seed)
    return Trace(seconds, tuple(f"w{worker}" for worker in range(workers)), nodes if kind == "nodes in spells" else None)


def _spells(rng: Rng, rounds: int, to_slow: float, to_fast: float) -> NDArray[np.bool_]:
    slow, now = np.zeros(rounds, bool), rng.random() < to_slow / (to_slow + to_fast)
    for step in range(rounds):
        slow[step] = now
        now = rng.random() >= to_fast if now else rng.random() < to_slow
    return slow


def timing() -> None:
    """Fit all of them, and run each cluster with and without backup workers: a quarter of an hour. Raises FredError."""
    rows: list[dict[str, Any]] = []
    for name in TRACES:
        rows += _measure_fit(recorded_trace(name), name, 0)
    for seed in REPORTED:
        for kind in KINDS:
            rows += _measure_fit(generate(kind, seed), kind, seed)
            store(FILE, rows, "%.5g")


def _measure_fit(trace: Trace, kind: str, seed: int) -> list[dict[str, Any]]:
    """Fit a trace; return a row for each number of backup workers."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.csv"
        iteration, worker = np.indices(trace.seconds.shape)
        columns = {"iteration": iteration.ravel(), "worker": worker.ravel(), "seconds": trace.seconds.ravel()}
        pd.DataFrame(columns).to_csv(file, index=False)
        start = time.perf_counter()
        fitted = fit(trace, {"file": str(file)})
        seconds = time.perf_counter() - start
        say(f"fitted: {kind}, {seed}: {fitted.choice.name}")
        facts = {"kind": kind, "seed": seed, "rounds": trace.iterations, "workers": len(trace.workers), "seconds": seconds}
        choice = {"chosen": _describe_choice(fitted), "name": fitted.choice.name}
        return [{**facts, **choice, **gains} for gains in _gains(fitted)]


def _describe_choice(fitted: Fitted) -> str:
    if not fitted.behaviour.holds:
        return "warning"
    return "fitted" if fitted.choice.model is not None else "recorded"


def _gains(fitted: Fitted) -> list[dict[str, float]]:
    """Measure gains of backup workers: in the trace, with the interval; of the cluster in rounds of all, and in own runs."""
    cluster, rounds = Cluster.model_validate(fitted.block.options), _ROUNDS * fitted.trace.iterations
    ordered = np.sort(np.concatenate([behaviour.simulate_rounds(cluster, rounds, seed) for seed in _RUNS]), axis=1).mean(0)
    numbers = sorted({1, 2, max(1, cluster.size // 4)} & set(range(1, len(fitted.behaviour.gains) + 1)))
    rules = {"all": "all", "backup": {"name": "count", "workers": cluster.size - 1}}
    runs = {name: {"protocol": {"name": "cutoff", "rule": rule}} for name, rule in rules.items()}
    algorithm, stop = {"name": "cutoff-sgd", "learning_rate": 0.1}, {"updates": rounds}
    scenario = {"cluster": fitted.block.options, "algorithm": algorithm, "stop": stop, "seeds": _RUNS, "runs": runs}
    seconds = fred.run(fred.scenario(scenario)).summary.groupby("name")["virtual_seconds"].sum()
    run_gain = float(seconds["all"] / seconds["backup"])
    rows = []
    for backups in numbers:
        measure = fitted.behaviour.gains[backups - 1]
        share = 1 - backups / cluster.size  # share of gradients; the table is about rounds
        ends = {"trace": measure.trace / share, "low": measure.low / share, "high": measure.high / share}
        rows.append(
            {
                "backups": backups,
                **ends,
                "waited": float(ordered[-1] / ordered[-1 - backups]),
                "run": run_gain if backups == 1 else math.nan,
            }
        )
    return rows


def report() -> str:
    """Write the page; return its path."""
    return write("fitted", text())


def text() -> str:
    """Return the page."""
    rows = pd.read_csv(FILE)
    rows = rows.assign(
        inside=(rows["low"] <= rows["waited"]) & (rows["waited"] <= rows["high"]),
        in_runs=(rows["low"] <= rows["run"]) & (rows["run"] <= rows["high"]),
    )
    generated_rows, recorded = rows[~rows["kind"].isin(TRACES)], rows[rows["kind"].isin(TRACES)]
    fresh = generated_rows[generated_rows["seed"].isin(REPORTED)]
    judged = pd.concat([fresh, recorded])
    single = judged[judged["backups"] == 1]
    fits = fresh.drop_duplicates(["kind", "seed"])
    kinds = (fits["chosen"] == "fitted").groupby(fits["kind"]).sum()
    return fill(
        Path(__file__).with_suffix(".md"),
        rounds=_ROUNDS,
        chosen=f"{min(DEVELOPED)} to {max(DEVELOPED)}",
        reported=f"{min(REPORTED)} to {max(REPORTED)}",
        count=len(single),
        held=_share(single["inside"]),
        held_all=_share(judged["inside"]),
        enough=f"{_GOAL:.0%}",
        warned=_share(single[~single["inside"]]["chosen"] == "warning") if (~single["inside"]).any() else "none was outside",
        in_runs=_share(single["in_runs"]),
        fitted_kinds=int((kinds >= len(REPORTED) / 2).sum()),
        kinds=len(kinds),
        by_kind=_by_kind(fresh),
        recorded=_recorded(recorded),
        outside=_outside(judged),
    )


def _share(holds: "pd.Series[bool]") -> str:
    return f"{int(holds.sum())} of {len(holds)} ({holds.mean():.0%})"


def _by_kind(rows: pd.DataFrame) -> str:
    """Return a table with a row for each kind, in the order of `KINDS`."""
    lines = []
    for kind in KINDS:
        kind_rows = rows[rows["kind"] == kind]
        fits = kind_rows.drop_duplicates("seed")
        counts = [int((fits["chosen"] == choice).sum()) for choice in ("fitted", "recorded", "warning")]
        inside = [
            f"{int(part['inside'].sum())} of {len(part)}"
            for part in (kind_rows[kind_rows["backups"] == 1], kind_rows[kind_rows["backups"] > 1])
        ]
        lines.append((kind, *counts, *inside, f"{fits['seconds'].median():.1f}"))
    header = ("kind", "fitted", "recorded times", "warning", "gain of 1 inside", "gain of more inside", "seconds")
    return table(header, lines)


def _recorded(rows: pd.DataFrame) -> str:
    header = ("trace", "chosen", "backup workers", "trace's gain", "interval", "cluster's gain", "in own runs")
    lines = []
    for row in rows.to_dict("records"):
        runs = "" if math.isnan(row["run"]) else f"{row['run']:.2f}"
        gains = f"{row['trace']:.2f}", f"{row['low']:.2f} to {row['high']:.2f}", f"{row['waited']:.2f}", runs
        lines.append((row["kind"], row["name"], row["backups"], *gains))
    return table(header, lines)


def _outside(rows: pd.DataFrame) -> str:
    """Return a table of the gains that are outside."""
    outside = rows[~rows["inside"]]
    if not len(outside):
        return "None."
    header = ("kind", "seed", "backup workers", "chosen", "trace's gain", "interval", "cluster's gain")
    lines = []
    for row in outside.to_dict("records"):
        gains = f"{row['trace']:.3f}", f"{row['low']:.3f} to {row['high']:.3f}", f"{row['waited']:.3f}"
        lines.append((row["kind"], row["seed"], row["backups"], row["chosen"], *gains))
    return table(header, lines)
