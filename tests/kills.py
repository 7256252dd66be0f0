"""`make kills`: a scenario of eight units, killed at random moments and continued; an hour for the 200 of which reports speak."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
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
        began = time.monotonic()
        _start(folder, "whole", 1).wait()
        whole, expected = time.monotonic() - began, _digests(folder / "whole")
        while sum(counts.values()) < kills:
            process = _start(folder, "out", draw.choice((1, 2)))
            try:
                code = process.wait(timeout=draw.uniform(0.2, 1.1) * whole)
            except subprocess.TimeoutExpired:
                number = draw.choice(SIGNALS)
                counts[number] += 1
                process.send_signal(number)
                code = process.wait(timeout=60)
                assert code in (0, -number, 128 + number), f"exit code {code} after {number!r}: {_said()}"
            if code == 0:
                done += 1
                _check(folder, expected)
                print(f"{sum(counts.values())} of {kills} kills, {done} scenarios finished", flush=True)
        while _start(folder, "out", 2).wait():
            pass
        _check(folder, expected)
    said = ", ".join(f"{count} {number.name}" for number, count in counts.items())
    print(
        f"{said}: {done + 1} scenarios finished, all with the digests of an undisturbed one, nothing corrupt, nothing left over"
    )
    return 0


def _check(folder: Path, expected: dict[str, Any]) -> None:
    assert _digests(folder / "out") == expected
    assert not changed(folder / "out", read_manifest(folder / "out")[0])
    assert sorted(path.name for path in folder.iterdir()) == ["eight.yaml", "out", "whole"]
    shutil.rmtree(folder / "out")


def _digests(path: Path) -> dict[str, Any]:
    return {row.folder: row.digests.model_dump() for row in read_manifest(path)[1]}


def _start(folder: Path, out: str, jobs: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "fred", "run", "eight.yaml", "--out", out, "--jobs", str(jobs)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    _SAID.seek(0)
    _SAID.truncate()
    return subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=_SAID)


def _said() -> str:
    """What the last one said at the end."""
    _SAID.seek(0)
    return _SAID.read().decode()[-2000:]


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200))
