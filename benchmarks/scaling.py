"""Hundreds of runs: two processes against one, and memory against the number of units."""

import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from tempfile import TemporaryDirectory

from benchmarks.common import Row
from benchmarks.whole import timed

SWEEP = ("run", "scenarios/learning-rates.yaml", "--seed", "1")  # 24 units
HALF, EIGHT = (("--set", f"stop.seconds={seconds}") for seconds in (700, 11_500))  # units of so many, about
TIMING_ONLY = ("--set", "task=null", "--set", "evaluate={}", "--set", "stop={gradients: 300000}", "--only", "asgd")


def long_rows() -> Iterator[Row]:
    """Yield ratios and seconds."""
    with TemporaryDirectory() as cache:
        for name, units, rounds, limit in (
            ("learning-rates.yaml, 72 units of a moment", SWEEP[:2], 5, 1.5),
            ("24 units of about half a second", (*SWEEP, *HALF), 3, 1.2),
            ("24 units of about 8 s", (*SWEEP, *EIGHT), 1, 1.85),
        ):
            pairs = [[timed(*units, "--jobs", jobs, cache=cache) for jobs in ("1", "2")] for _ in range(rounds)]
            single, double = (statistics.median(program.seconds for program in column) for column in zip(*pairs, strict=True))
            halved = single - statistics.median(program.units for program, _ in pairs) / 2
            yield Row(f"{name}: one job's time / two jobs'", single / double, "x", limit, at_least=True)
            yield Row("  were the units' time halved, and the rest as it is", single / halved, "x")
            yield Row("  one job", single, "s")
        yield Row(
            "two commands at once, 8 units of about 8 s each: twice one's time / both's", measure_two_commands(cache), "x"
        )
    few, many = (memory(number) for number in (2, 12))
    yield Row("timing only, 300,000 gradients each: memory of 12 units / of 2", many / few, "x", 1.25)


def measure_two_commands(cache: str) -> float:
    """Return the speed-up of two independent processes on this machine: median of three rounds."""
    command, ratios = ("run", "scenarios/learning-rates.yaml", *EIGHT, "--only", "asgd", "--jobs", "1"), []
    for _ in range(3):
        single = timed(*command, "--seed", "1", cache=cache).seconds
        start = time.perf_counter()
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda seed: timed(*command, "--seed", seed, cache=cache), ("1", "2")))
        ratios.append(2 * single / (time.perf_counter() - start))
    return statistics.median(ratios)


def memory(units: int) -> float:
    """Return the largest memory of a process that runs this number of units, GiB."""
    seeds = [word for seed in range(units) for word in ("--seed", str(seed))]
    return timed("run", "scenarios/quickstart.yaml", *TIMING_ONLY, *seeds).memory
