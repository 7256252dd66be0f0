"""Measure the answers of `fred diagnose` on simulated traces against the long-run gain of their clusters."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from fred.diagnosis.findings import diagnose
from fred.diagnosis.remedies import RULE
from fred.traces.trace import Trace
from studies.diagnosis.clusters import NODE_OF, WORKERS, Cluster

FOUND = Path(__file__).parents[2] / "results" / "studies" / "diagnosis.csv"
DEVELOPED, REPORTED = range(16), range(300, 308)  # seeds of clusters: chosen on, and reported on
STEADY = range(400, 402)  # of clusters without spells
TRACES = 25  # of each cluster


def rows(seeds: range, spells: bool, traces: int = TRACES) -> Iterator[dict[str, object]]:
    """Yield a row for each trace: the answer, and the truth.

    Args:
        seeds: of the clusters.
        spells: whether they have any.
        traces: of each cluster.
    """
    for seed in seeds:
        cluster = Cluster(seed, spells)
        gain = cluster.gain()
        for number in range(traces):
            seconds, _ = cluster.trace(number)
            found = diagnose(Trace(seconds, tuple(f"w{worker}" for worker in range(WORKERS)), NODE_OF))
            rule = next(each.ratio for each in found.gains if each.remedy.kind == "rule")
            yield {
                **{"cluster": seed, "spells": spells, "who": cluster.who, "times": cluster.times, "cycle": cluster.cycle},
                **{"trace": number, "true": gain, RULE: rule.value, "low": rule.low, "high": rule.high},
                **{"verdict": found.verdict, "more": found.more_iterations, "seen": found.spells},
            }


def measure() -> pd.DataFrame:
    """Return a row for each reported trace, as the file holds them."""
    return pd.DataFrame([*rows(REPORTED, spells=True), *rows(STEADY, spells=False)])
