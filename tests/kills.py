"""`make kills`: a scenario of eight units over an older result, killed at random moments and continued, half of the times
where the new result takes the older one's place; an hour for the 200 of which reports speak."""

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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fred.results.folder import changed, read_manifest

ROOT = Path(__file__).parent.parent
SIGNALS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
SCENARIO: dict[str, Any] = {
    "seeds": [1, 2, 3, 4],
    "cluster": {"workers": 3, "compute": {"name": "exponential", "scale": 0.1}},
    "task": {"data": {"name": "synthetic-regression", "examples": 60}, "model": "softmax"},
    "stop": {"updates": 6000},
    "evaluate": {"points": 20},
    "runs": {name: {"algorithm": {"name": name, "learning_rate": 0.05}} for name in ("asgd", "sasgd")},
}
_SAID = tempfile.TemporaryFile()  # noqa: SIM115  for as long as the program runs


def main(kills: int) -> int:
    """Kill so many times; every time a scenario is done, compare it with one that nobody disturbed."""
    draw, done, counts = random.Random(0), 0, dict.fromkeys(SIGNALS, 0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "eight.yaml").write_text(json.dumps(SCENARIO))
        _start(folder, "old", 1, "--set", "stop.updates=60").wait()
        (folder / "old" / "notes.md").write_text("mine")
        began = time.monotonic()
        _start(folder, "whole", 1).wait()
        whole, expected = time.monotonic() - began, _digests(folder / "whole")
        shutil.copytree(folder / "old", folder / "out")
        while sum(counts.values()) < kills:
            process = _start(folder, "out", draw.choice((1, 2)))
            with _seen(folder / "out"):
                number = draw.choice(SIGNALS) if _waited(process, folder, draw, whole) else None
                if number is not None:
                    counts[number] += 1
                    process.send_signal(number)
                code = process.wait(timeout=300)
            _heard(number, code)
            if code == 0:
                done += 1
                _check(folder, expected)
                print(f"{sum(counts.values())} of {kills} kills, {done} scenarios finished", flush=True)
        while _start(folder, "out", 2).wait():
            pass
        _check(folder, expected)
    said = ", ".join(f"{count} {number.name}" for number, count in counts.items())
    print(
        f"{said}: {done + 1} scenarios finished, all with the digests of an undisturbed one, nothing corrupt, nothing left over, "
        "and a result to be seen at every moment"
    )
    return 0


def _heard(number: signal.Signals | None, code: int) -> None:
    """Check that a process that was told to stop said so in one line, with the usual exit code."""
    if number in (None, signal.SIGKILL) or code == 0:
        assert code in (0, -signal.SIGKILL if number else 0), f"exit code {code} after {number!r}: {_said()}"
        return
    lines = [line for line in _said().splitlines() if line and not line.startswith("fred: ")]
    assert code == 128 + number and not lines, f"exit code {code} after {number!r}: {_said()}"
    assert _said().count("fred: interrupted") == 1, f"after {number!r}: {_said()}"


def _waited(process: subprocess.Popen[bytes], folder: Path, draw: random.Random, whole: float) -> bool:
    """Until the moment to kill it: any, or shortly after its result is complete; whether it is still at work then."""
    end = time.monotonic() + draw.uniform(0.2, 1.1) * whole
    if draw.random() < 0.5:
        before = _written(folder)  # by one who was killed
        while process.poll() is None and _written(folder) in (0, before):
            time.sleep(0.0005)
        end = time.monotonic() + draw.uniform(0, 0.03)
    while process.poll() is None and time.monotonic() < end:
        time.sleep(0.0005)
    return process.poll() is None


def _written(folder: Path) -> int:
    """Return the time at which the result was complete, ns."""
    try:
        return (folder / ".out.unfinished" / "manifest.json").stat().st_mtime_ns
    except FileNotFoundError:
        return 0


@contextmanager
def _seen(path: Path) -> Iterator[None]:
    """Meanwhile there is a result at every moment, and what somebody has put there."""
    over = threading.Event()
    missing: list[str] = []

    def watch() -> None:
        while not over.wait(0.0005):
            missing.extend(name for name in ("manifest.json", "notes.md") if not (path / name).exists())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    read_manifest(path)
    assert not missing, f"could not be seen for a moment: {missing}"


def _check(folder: Path, expected: dict[str, Any]) -> None:
    assert _digests(folder / "out") == expected
    assert not changed(folder / "out", read_manifest(folder / "out")[0])
    assert sorted(path.name for path in folder.iterdir()) == ["eight.yaml", "old", "out", "whole"]
    names = {path.name for path in (folder / "whole").iterdir()}
    assert {path.name for path in (folder / "out").iterdir()} == {*names, "notes.md"}
    shutil.rmtree(folder / "out")
    shutil.copytree(folder / "old", folder / "out")


def _digests(path: Path) -> dict[str, Any]:
    return {row.folder: row.digests.model_dump() for row in read_manifest(path)[1]}


def _start(folder: Path, out: str, jobs: int, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "fred", "run", "eight.yaml", "--out", out, "--jobs", str(jobs), *more]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    _SAID.seek(0)
    _SAID.truncate()
    return subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=_SAID)


def _said() -> str:
    """Return the last process's last message."""
    _SAID.seek(0)
    return _SAID.read().decode()[-2000:]


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200))
