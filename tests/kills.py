"""`make kills`: eight units over an older result, killed at random moments and continued, half of the times while the new
result replaces the older one; an hour for the 200 of which reports speak."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fred.results.folder import changed, read_manifest
from tests.folders import digests
from tests.places import names

ROOT = Path(__file__).parent.parent
SIGNALS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
SCENARIO: dict[str, Any] = {
    "seeds": [1, 2, 3, 4],
    "cluster": {"workers": 3, "compute": {"name": "exponential", "scale": 0.1}},
    "task": {"data": {"name": "synthetic-regression", "examples": 60, "evaluation": 12}, "model": "softmax"},
    "stop": {"updates": 6000},
    "evaluate": {"points": 20},
    "runs": {name: {"algorithm": {"name": name, "learning_rate": 0.05}} for name in ("asgd", "sasgd")},
}


def main(kills: int) -> int:
    """Kill a run this many times; compare each finished result with that of an undisturbed run."""
    draw, completed, counts = random.Random(0), 0, Counter[signal.Signals]()
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryFile() as messages:
        folder = Path(name)
        (folder / "scenario.yaml").write_text(json.dumps(SCENARIO))
        start(folder, "old", "--set", "stop.updates=60").wait()
        began = time.monotonic()
        start(folder, "whole").wait()
        seconds = time.monotonic() - began
        shutil.copytree(folder / "old", folder / "out")
        while counts.total() < kills:
            messages.seek(0)
            messages.truncate()
            process = start(folder, "out", "--jobs", draw.choice("12"), stderr=messages)
            with _always_there(folder / "out"):
                number = draw.choice(SIGNALS) if _wait(process, folder, draw, seconds) else None
                if number is not None:
                    counts[number] += 1
                    process.send_signal(number)
                code = process.wait(timeout=300)
            messages.seek(0)
            _check_end(number, code, messages.read().decode()[-2000:])
            if code == 0:
                completed += 1
                _check(folder)
                print(f"{counts.total()} of {kills} kills, {completed} scenarios finished", flush=True)
        while start(folder, "out", "--jobs", "2").wait():
            pass
        _check(folder)
    kinds = ", ".join(f"{counts[number]} {number.name}" for number in SIGNALS)
    print(
        f"{kinds}: {completed + 1} results with the digests of an undisturbed one, nothing left over, one there at every moment"
    )
    return 0


def start(
    folder: Path, out: str, *arguments: str, program: tuple[str, str] = ("-m", "fred"), **streams: Any
) -> subprocess.Popen[bytes]:
    """Start a run of `scenario.yaml` in another process."""
    command = [sys.executable, *program, "run", "scenario.yaml", "--out", out, *arguments]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.DEVNULL, **streams)


def _check_end(number: signal.Signals | None, code: int, text: str) -> None:
    """Check that a process that received a signal reported it in one line, with the usual exit code."""
    if number in (None, signal.SIGKILL) or code == 0:
        assert code in (0, -signal.SIGKILL if number else 0), f"exit code {code} after {number!r}: {text}"
        return
    lines = [line for line in text.splitlines() if line and not line.startswith("fred: ")]
    assert code == 128 + number and not lines, f"exit code {code} after {number!r}: {text}"
    assert text.count("fred: interrupted") == 1, f"after {number!r}: {text}"


def _wait(process: subprocess.Popen[bytes], folder: Path, draw: random.Random, seconds: float) -> bool:
    """Wait for any moment, or one shortly after the result is complete; return True if the process is still at work then."""
    end = time.monotonic() + draw.uniform(0.2, 1.1) * seconds
    if draw.random() < 0.5:
        before = _completion_time(folder)  # by a killed process
        while process.poll() is None and _completion_time(folder) in (0, before):
            time.sleep(0.0005)
        end = time.monotonic() + draw.uniform(0, 0.03)
    while process.poll() is None and time.monotonic() < end:
        time.sleep(0.0005)
    return process.poll() is None


def _completion_time(folder: Path) -> int:
    """Return the time at which the result was complete, ns; 0 if it is not."""
    manifest = folder / ".out.unfinished" / "manifest.json"
    try:
        return manifest.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


@contextmanager
def _always_there(path: Path) -> Iterator[None]:
    """Check that a result is there at every moment of a `with` block."""
    stop, missing = threading.Event(), list[str]()

    def watch() -> None:
        while not stop.wait(0.0005):
            missing.extend(name for name in ("manifest.json",) if not (path / name).exists())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    read_manifest(path)
    assert not missing, f"missing for a moment: {missing}"


def _check(folder: Path) -> None:
    check_same(folder, "whole", "out")
    assert names(folder) == ["old", "out", "scenario.yaml", "whole"]
    assert {*names(folder / "out")} == {*names(folder / "whole")}
    shutil.rmtree(folder / "out")
    shutil.copytree(folder / "old", folder / "out")


def check_same(folder: Path, undisturbed: str, out: str) -> None:
    """Check that a result is whole, and has the digests of another."""
    assert digests(folder / out) == digests(folder / undisturbed)
    assert not changed(folder / out, read_manifest(folder / out)[0])


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200))
