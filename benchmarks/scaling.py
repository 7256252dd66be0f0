"""Hundreds of runs: two processes against one, memory against the number of units, and a first start."""

from collections.abc import Iterator
from functools import partial

from benchmarks.common import Row, medians
from benchmarks.whole import timed

SWEEP = ("run", "scenarios/learning-rates.yaml", "--seed", "1")  # 24 units of about half a second
LONG = ("--set", "stop.seconds=1500")  # of about eight
TIMING_ONLY = ("--set", "task=null", "--set", "evaluate={}", "--set", "stop={gradients: 300000}", "--only", "asgd")


def rows() -> Iterator[Row]:
    """Ratios and seconds."""
    one, two = (timed(*SWEEP, *LONG, "--jobs", jobs)[0] for jobs in ("1", "2"))
    yield Row("24 units of a sweep, of about 8 s: one job's time / two jobs'", one / two, "x", 1.7, at_least=True)
    one, two = medians([partial(timed, *SWEEP, "--jobs", jobs) for jobs in ("1", "2")], rounds=2)
    yield Row("the same, of about half a second", one / two, "x")
    yield Row("learning-rates.yaml, 72 units, two jobs", timed(*SWEEP[:2], "--jobs", "2")[0], "s", 90)
    few, many = (memory(number) for number in (2, 12))
    yield Row("timing only, 300,000 gradients each: memory of 12 units / of 2", many / few, "x", 1.25)
    yield Row("quickstart, from a cold start", min(timed("run", "scenarios/quickstart.yaml")[0] for _ in range(3)), "s", 10)


def memory(units: int) -> float:
    """GiB at most of a process that runs so many."""
    seeds = [word for seed in range(units) for word in ("--seed", str(seed))]
    return timed("run", "scenarios/quickstart.yaml", *TIMING_ONLY, *seeds)[1]
