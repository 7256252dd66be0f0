"""Whole programs, each in a process of its own: time and memory as a user meets them."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.common import Row

ROOT = Path(__file__).parent.parent
LARGE_RUN = """
title: large
task: {data: {name: synthetic-classification, features: 784}, model: {name: mlp, hidden: [200]}, batch_size: 8}
cluster: {workers: WORKERS, compute: {name: lognormal, median: 0.1, sigma: 0.3}}
stop: {updates: UPDATES}
evaluate: {points: 10}
algorithm: {name: ALGORITHM, learning_rate: 0.01}
"""


REPEATED_RUNS = """
import time, fred
start = time.perf_counter()
fred.run, fred.scenario
print(time.perf_counter() - start)
settings = dict(
    task=dict(data=dict(name="synthetic-classification", features=784), model=dict(name="mlp", hidden=[200]), batch_size=8),
    cluster=dict(workers=16, compute=dict(name="lognormal", median=0.1, sigma=0.3)),
    stop=dict(updates=20_000), evaluate=dict(points=10), algorithm=dict(name="asgd", learning_rate=0.01),
)
for _ in range(3):
    start = time.perf_counter()
    fred.run(fred.scenario(settings))
    print(time.perf_counter() - start)
"""

QUICKSTART = """
import tempfile, time, fred
scenario = fred.load("scenarios/quickstart.yaml")
for _ in range(3):
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        fred.run(scenario, out=folder + "/out")
        print(time.perf_counter() - start)
"""
IMPORTS = "import jax, pandas, pyarrow, pydantic, scipy.special, simpy, matplotlib.figure, matplotlib.axes"


class Timed(NamedTuple):
    """Time and memory of a program."""

    seconds: float
    memory: float  # GiB
    units: float  # seconds, of its units together


def timed(*arguments: str, cache: str = "off") -> Timed:
    """Return time and memory of `python -m fred ...`; `cache`: folder with compiled programs."""
    with tempfile.TemporaryDirectory() as folder:
        command, out = [sys.executable, "-m", "fred", *arguments], Path(folder) / "out"
        command += ["--out", str(out)] if arguments[0] in ("run", "quickstart") else []
        start = time.perf_counter()
        env = _environment(cache)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT, env=env)
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            raise subprocess.CalledProcessError(os.waitstatus_to_exitcode(status), command)
        seconds, manifest = time.perf_counter() - start, out / "manifest.json"
        units = json.loads(manifest.read_text())["seconds"] if manifest.exists() else 0.0
        return Timed(seconds, usage.ru_maxrss / 2**20, units)


def _environment(cache: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "FRED_CACHE": cache}


def large(workers: int, updates: int, algorithm: str = "fasgd") -> Timed:
    """Return time and memory of an asynchronous run of the 784-200-10 network."""
    settings = {"WORKERS": workers, "UPDATES": updates, "ALGORITHM": algorithm}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.yaml"
        text = LARGE_RUN
        for word, value in settings.items():
            text = text.replace(word, str(value))
        path.write_text(text)
        return timed("run", str(path))


def run_program(program: str, cache: str = "off") -> list[float]:
    """Return the numbers that a program in a process of its own prints, and last the seconds that it took in all."""
    env = _environment(cache)
    start = time.perf_counter()
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env, cwd=ROOT
    ).stdout
    return [*map(float, output.split()), time.perf_counter() - start]


def measure_first_rates(cache: str) -> tuple[float, float]:
    """Return the speed of the first 20,000 updates over that of later ones, without and with the time of imports."""
    imports, first, *repeats, _ = run_program(REPEATED_RUNS, cache)
    return min(repeats) / first, min(repeats) / (imports + first)


def first_minute() -> Iterator[Row]:
    """Yield the waiting times of a first run, and the share that cached programs save."""
    colds, filled, repeats, imports = list[float](), list[float](), list[float](), list[float]()
    ratios: list[tuple[float, ...]] = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as cache:
            for times in (colds, filled):
                times.append(timed("quickstart", cache=cache).seconds)
            ratios.append((*measure_first_rates(cache), *measure_first_rates(cache)))
            repeats.append(min(run_program(QUICKSTART, cache)[1:3]))
            imports.append(run_program(IMPORTS)[-1])
    floor = statistics.median(imports)
    yield Row("a process that imports what others made, and nothing else", floor, "s")
    yield Row("fred quickstart, nothing compiled yet / that (medians of 3)", statistics.median(colds) / floor, "x", 6)
    yield Row("fred quickstart, compiled before / that", statistics.median(filled) / floor, "x", 3)
    yield Row("  again in the same process: the work, files and figures alone", statistics.median(repeats), "s")
    cold, cold_in_all, warm, warm_in_all = (statistics.median(column) for column in zip(*ratios, strict=True))
    yield Row("784-200-10, 20,000 updates: rate the first time / again, empty cache", cold, "x", 0.4, at_least=True)
    yield Row("  imports included", cold_in_all, "x", 0.4, at_least=True)  # missed: most of it is imports of what others made
    yield Row("the same, compiled before", warm, "x", 0.7, at_least=True)
    yield Row("  imports included", warm_in_all, "x", 0.7, at_least=True)


def rows() -> Iterator[Row]:
    """Yield ratios to a process that only imports other packages."""
    yield from first_minute()
    floor = min(run_program(IMPORTS)[-1] for _ in range(5))
    for command in ("--help", "list"):
        seconds = min(timed(command).seconds for _ in range(5))
        yield Row(f"python -m fred {command} / a process that imports what others made (best of 5)", seconds / floor, "x", 0.35)


def long_rows() -> Iterator[Row]:
    """Yield seconds and GiB of large runs."""
    yield Row("784-200-10, batch 8, 16 workers, 100,000 FASGD updates", large(16, 100_000).seconds, "s")
    seconds, memory, _ = large(10_000, 20_000)
    yield Row("784-200-10, batch 8, 10,000 workers, 20,000 updates", seconds, "s")
    yield Row("  its memory", memory, "GiB", 1.5)
    for algorithm in ("ia2sgd", "ringleader"):
        seconds, memory, _ = large(1000, 5000, algorithm)
        yield Row(f"784-200-10, batch 8, 1,000 workers' gradients kept, 5,000 updates: {algorithm}", seconds, "s")
        yield Row("  its memory", memory, "GiB", 4)
