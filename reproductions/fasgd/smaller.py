"""Odena 2016, what the text says beside its figures: other penalties, unsent gradients, periods, B-staleness, mixed workers."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

import fred
from fred.schedule.schedule import Schedule, Verb
from reproductions.common import RESULTS, ROOT, Seeds, run, say

SCENARIOS = ROOT / "scenarios" / "fasgd"
SMALLER = RESULTS / "fasgd-smaller.csv"
STEP = 0.1  # s that a gradient takes in periods.yaml: the window in which fetches are counted
_EVERY = 5  # gradients, of which one's B-staleness is computed
Facts = Iterable[tuple[Any, ...]]  # run, seed, rate, quantity, value


def measure(add: bool = False) -> None:
    """Write a row for each number: experiment, run, seed, rate, quantity, value: a quarter of an hour on a core.

    Args:
        add: whether to measure only the seeds that the file lacks.
    """
    parts = {"serial": _serial, "penalties": _penalties, "unsent": _push_shares, "heterogeneous": _errors, "periods": _periods}
    measured = Seeds(SMALLER, ("experiment", "run"), add)
    for name, facts in {**parts, "b-staleness": _b_staleness}.items():
        if scenario := measured.load(SCENARIOS / f"{name}.yaml", experiment=name):
            result = run(scenario, f"fasgd/{name}")
            frame = pd.DataFrame(facts(result), columns=["run", "seed", "rate", "quantity", "value"])
            measured.add(frame.assign(experiment=name), "%.6g")
            say(f"fasgd: {name}")


def _errors(result: fred.Result) -> Facts:
    row: Any
    for row in result.summary.itertuples():
        yield row.name, row.seed, None, "error", row.error


def _serial(result: fred.Result) -> Facts:
    """Yield whether all runs ended with the same parameters."""
    yield "both", 1, None, "same", float(result.summary["digests_params"].nunique() == 1)


def _penalties(result: fred.Result) -> Facts:
    for _, row in result.sweep.iterrows():
        yield row["run"], 1, row["algorithm.learning_rate"], "error", row["mean"]


def _push_shares(result: fred.Result) -> Facts:
    yield from _errors(result)
    row: Any
    for row in result.summary.itertuples():
        yield row.name, row.seed, None, "pushed", row.copies_pushes / row.copies_potential


def _periods(result: fred.Result) -> Facts:
    yield from _errors(result)
    row: Any
    for row in result.summary.itertuples():
        schedule = result.outcome(row.name, row.seed).schedule
        yield row.name, row.seed, None, "fetched", row.copies_fetches / row.copies_potential
        yield row.name, row.seed, None, "bursts", bursts(schedule)


def bursts(schedule: Schedule) -> float:
    """Return variance over mean of the fetches in a step's time, mean over tenths of a run, in which v changes little.

    1: as if fetches were independent of each other.
    """
    sent = schedule.rows(Verb.PULL)
    sent = sent[schedule["messages"][sent] > 0]
    counts, _ = np.histogram(schedule["time_ns"][sent] / 1e9, np.arange(0, schedule.end_ns / 1e9, STEP))
    return float(np.mean([tenth.var() / tenth.mean() for tenth in np.array_split(counts, 10)]))


def _b_staleness(result: fred.Result) -> Facts:
    """Yield rank correlations over the gradients that are late at all."""
    for name in result.scenario.runs:
        frame = result.b_staleness(name, every=_EVERY)
        late = frame[frame["staleness"] > 0]
        measures = {"staleness": late["staleness"], "v": late["statistic"], "both": late["staleness"] * late["statistic"]}
        for quantity, measure in measures.items():
            yield name, 1, None, quantity, late["b_staleness"].rank().corr(measure.rank())
