"""Measure how often the answers of `fred diagnose` hold: `python -m studies.diagnosis` prints the table of a page.

The page is "Diagnose a trace". Simulated clusters are slow in spells, each drawn by a seed; the truth is the gain of a rule in
the long run. Settings were chosen on other seeds than those of the table. It measures for ten minutes on one core, once
`diagnosis.csv` is removed; else it prints the table.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from fred.base.types import Bools, Floats
from fred.diagnosis.findings import CANNOT_TELL, LITTLE_GAIN, SAVES, SAVES_LITTLE, diagnose
from fred.diagnosis.remedies import RULE
from fred.prediction import closed_loop
from fred.prediction.comparison import rule_named
from fred.prediction.contract import AllWorkers
from fred.traces.trace import Trace
from reproductions.common import ROOT, table

MEASURED = ROOT / "results" / "studies" / "diagnosis.csv"
DEVELOPED, REPORTED = range(16), range(300, 308)  # seeds of clusters: chosen on, and reported on
STEADY = range(400, 402)  # of clusters without spells
TRACES = 25  # of each cluster
WORKERS, NODES = 24, 3
NODE_OF = np.arange(WORKERS) * NODES // WORKERS
ROUNDS = 400
_LONG = 8000  # rounds, of which the gain in quick and in slow rounds is taken
_BEFORE, _AFTER = 65534, 65535  # numbers of traces that nobody diagnoses: to train on, and to run on


@dataclass(frozen=True)
class Cluster:
    """Workers whose times vary by themselves, some of which are slow in spells.

    Args:
        seed: by which it is drawn.
        spells: True if it has any.
    """

    seed: int
    spells: bool = True

    @cached_property
    def share(self) -> float:
        """Return about the share of slow rounds in the long run."""
        return float(np.random.default_rng([self.seed, 1]).uniform(0.15, 0.4)) if self.spells else 0.0

    @cached_property
    def cycle(self) -> float:
        """Return the mean rounds from the beginning of one spell to the beginning of the next."""
        return float(np.random.default_rng([self.seed, 2]).uniform(70, 220))

    @cached_property
    def times(self) -> float:
        """Return the factor by which workers are slower in a spell."""
        return float(np.random.default_rng([self.seed, 3]).uniform(1.5, 3.0))

    @cached_property
    def slow_workers(self) -> str:
        """Return the kind of slow workers: always the same node, another node in each spell, or another worker."""
        return str(np.random.default_rng([self.seed, 4]).choice(["a node", "nodes in turn", "workers in turn"]))

    @cached_property
    def exponential(self) -> bool:
        """Return True if spells last for exponential times; else they vary by less than half around their mean."""
        return bool(np.random.default_rng([self.seed, 5]).random() < 0.5)

    def trace(self, number: int, rounds: int = ROUNDS) -> tuple[Floats, Bools]:
        """Return compute times, s [rounds, workers], and which rounds are slow [rounds].

        Args:
            number: of the trace.
            rounds: how many.
        """
        rng = np.random.default_rng([self.seed, 6, number])
        noise = np.random.default_rng([self.seed, 7]).uniform(0.05, 0.15)
        logs = noise * rng.standard_normal((rounds, WORKERS)) + 0.03 * rng.standard_normal(WORKERS)
        slow = np.zeros(rounds, bool)
        for begin, end in self._spells(rng, rounds) if self.spells else ():
            logs[begin:end, self._slow(rng)] += np.log(self.times)
            slow[begin:end] = True
        return np.exp(logs), slow

    def _spells(self, rng: np.random.Generator, rounds: int) -> list[tuple[int, int]]:
        """Return first and end of each spell; the record begins anywhere in a cycle."""
        spells, at = [], -int(rng.uniform(3, 4) * self.cycle)
        while at < rounds:
            begin = at + 5 + int(rng.exponential((1 - self.share) * self.cycle - 5))
            mean = self.share * self.cycle
            at = begin + max(5, round(rng.exponential(mean) if self.exponential else rng.uniform(0.6, 1.4) * mean))
            if at > 0:
                spells.append((max(begin, 0), max(at, 0)))
        return spells

    def _slow(self, rng: np.random.Generator) -> Bools:
        if self.slow_workers == "a node":
            return np.asarray(NODE_OF == 1)
        if self.slow_workers == "nodes in turn":
            return np.asarray(rng.integers(NODES) == NODE_OF)
        return np.asarray(np.arange(WORKERS) == rng.integers(WORKERS))

    def gain(self) -> float:
        """Return the throughput of `auto` relative to waiting for all, in the long run.

        It is trained on a trace of its own. The mean of quick and of slow rounds are weighted by how many there are in a
        million rounds, so that the share of slow rounds is exact.
        """
        before, _ = self.trace(_BEFORE, ROUNDS)
        seconds, slow = self.trace(_AFTER, _LONG)
        rule = rule_named(RULE).trained(before, NODE_OF)
        cutoff, sync = (closed_loop.run(candidate, seconds, NODE_OF) for candidate in (rule, AllWorkers()))
        columns = np.stack([cutoff.cutoff, cutoff.time, sync.cutoff, sync.time]).astype(float)
        measured = slow[closed_loop.WARM_UP :]
        share = self._share_in_the_long_run()
        parts = [part * columns[:, at].mean(axis=1) for at, part in ((measured, share), (~measured, 1 - share)) if at.any()]
        gradients, seconds_own, gradients_all, seconds_all = np.sum(parts, axis=0)
        return float(gradients / seconds_own * seconds_all / gradients_all)

    def _share_in_the_long_run(self) -> float:
        if not self.spells:
            return 0.0
        rounds = 1_000_000
        spells = self._spells(np.random.default_rng([self.seed, 8]), rounds)
        return sum(min(end, rounds) - begin for begin, end in spells) / rounds


def rows(seeds: range, spells: bool, traces: int = TRACES) -> Iterator[dict[str, object]]:
    """Yield a row for each trace: the answer, and the truth.

    Args:
        seeds: of the clusters.
        spells: True if they have any.
        traces: of each cluster.
    """
    for seed in seeds:
        cluster = Cluster(seed, spells)
        gain = cluster.gain()
        for number in range(traces):
            seconds, _ = cluster.trace(number)
            answer = diagnose(Trace(seconds, tuple(f"w{worker}" for worker in range(WORKERS)), NODE_OF))
            rule = next(gain.ratio for gain in answer.gains if gain.remedy.kind == "rule")
            yield {
                **{
                    "cluster": seed,
                    "spells": spells,
                    "who": cluster.slow_workers,
                    "times": cluster.times,
                    "cycle": cluster.cycle,
                },
                **{"trace": number, "true": gain, RULE: rule.value, "low": rule.low, "high": rule.high},
                **{"verdict": answer.verdict, "more": answer.more_iterations, "seen": answer.spells},
            }


def measure() -> None:
    """Write a row for each reported trace."""
    traces = pd.DataFrame([*rows(REPORTED, spells=True), *rows(STEADY, spells=False)])
    traces.to_csv(MEASURED, index=False, float_format="%.5f")


def text(traces: pd.DataFrame) -> str:
    """Return the table of the page.

    Args:
        traces: a row for each.
    """
    spells, steady = traces[traces["spells"]], traces[~traces["spells"]]
    parts = [(_name(part.iloc[0]), part) for _, part in spells.groupby("cluster")]
    parts += [("all with spells", spells), ("a spell in the record", spells[spells["seen"] > 0]), ("without spells", steady)]
    header = ("cluster", "traces", "true gain", "mean answer", "interval holds it", "truth above", "truth below")
    return table((*header, "cannot tell", "wrong verdict"), (_row(name, part) for name, part in parts))


def _name(first: "pd.Series") -> str:
    return f"{first['who']}, {first['times']:.1f} times slower, every {first['cycle']:.0f} rounds"


def _row(name: str, part: pd.DataFrame) -> list[str]:
    above, below = part["true"] > part["high"], part["true"] < part["low"]
    gains = [f"{100 * (part[column].mean() - 1):+.1f} %" for column in ("true", RULE)]
    shares = [~(above | below), above, below, part["verdict"] == CANNOT_TELL, wrong(part)]
    return [name, str(len(part)), *gains, *(f"{100 * share.mean():.1f} %" for share in shares)]


def wrong(traces: pd.DataFrame) -> "pd.Series[bool]":
    """Return True for verdicts that are wrong: time is said to be saved and is not, or little, and it is more than that.

    Args:
        traces: a row for each.
    """
    saves = (traces["verdict"] == SAVES) & (traces["true"] <= 1)
    return saves | ((traces["verdict"] == SAVES_LITTLE) & (traces["true"] >= LITTLE_GAIN))


if __name__ == "__main__":
    if not MEASURED.is_file():
        measure()
    print(text(pd.read_csv(MEASURED)))
