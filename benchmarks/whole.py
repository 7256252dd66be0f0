"""Whole programs, each in a process of its own: time and memory as a user meets them."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.common import Row

ROOT = Path(__file__).parent.parent
LARGE_RUN = """
title: large
task: {data: {name: synthetic-classification, features: 784}, model: {name: mlp, hidden: [200]}, batch_size: 8}
cluster: {workers: WORKERS, compute: {name: lognormal, median: 0.1, sigma: 0.3}}
stop: {updates: UPDATES}
evaluate: {points: 10}
algorithm: {name: fasgd, learning_rate: 0.01}
"""


def timed(*arguments: str) -> tuple[float, float]:
    """Seconds and GiB of `python -m fred ...`."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "fred", *arguments]
        command += ["--out", str(Path(folder) / "out")] if arguments[0] == "run" else []
        start = time.perf_counter()
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT, env=env)
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            raise subprocess.CalledProcessError(os.waitstatus_to_exitcode(status), command)
        return time.perf_counter() - start, usage.ru_maxrss / 2**20


def large(workers: int, updates: int) -> tuple[float, float]:
    """Time and memory of an asynchronous run of the 784-200-10 network."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.yaml"
        path.write_text(LARGE_RUN.replace("WORKERS", str(workers)).replace("UPDATES", str(updates)))
        return timed("run", str(path))


def rows() -> Iterator[Row]:
    """Seconds and GiB."""
    yield Row("python -m fred --help (best of 5)", min(timed("--help")[0] for _ in range(5)), "s", 0.5)
    yield Row("python -m fred list (best of 5)", min(timed("list")[0] for _ in range(5)), "s", 0.5)
    yield Row("quickstart, compilation and figures included", timed("run", "scenarios/quickstart.yaml")[0], "s", 60)
    yield Row("784-200-10, batch 8, 16 workers, 100,000 FASGD updates", large(16, 100_000)[0], "s", 600)
    seconds, memory = large(10_000, 20_000)
    yield Row("784-200-10, batch 8, 10,000 workers, 20,000 updates", seconds, "s")
    yield Row("  its memory", memory, "GiB", 1.5)
