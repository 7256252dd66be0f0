"""A run that several processes share, killed at random moments: its helpers, or the run itself, which is then continued.

    python -m tests.kills_of_helpers [KILLS]

Needs Linux's /proc.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.kills import check_same, start
from tests.places import names
from tests.processes import children

SCENARIO: dict[str, Any] = {
    "cluster": {"workers": 6, "compute": {"name": "exponential", "scale": 0.1}},
    "task": {
        "data": {"name": "synthetic-regression", "examples": 600, "evaluation": 120},
        "model": {"name": "mlp", "hidden": [64]},
    },
    "algorithm": {"name": "asgd", "learning_rate": 0.01},
    "stop": {"gradients": 1_500},
    "evaluate": {"points": 20},
}
_SHARED_MEMORY = Path("/dev/shm")
_SHARED = "from fred.replay import helpers; helpers.FORCE_HELPERS = True; from fred.__main__ import program; program()"


def main(kills: int) -> int:
    """Kill this many times; compare each finished run with one that one process computed."""
    draw, counts, completed = random.Random(0), Counter[str](), 0
    helpers, shared = _helpers(), names(_SHARED_MEMORY)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "scenario.yaml").write_text(json.dumps(SCENARIO))
        assert start(folder, "alone").wait() == 0
        began = time.monotonic()
        assert _start_shared(folder).wait() == 0
        duration = time.monotonic() - began
        _check(folder)
        while counts.total() < kills:
            process = _start_shared(folder)
            victim, pids = draw.choice(("helper", "run")), set[int]()
            end = time.monotonic() + draw.uniform(0.3, 1.0) * duration
            while process.poll() is None and time.monotonic() < end:
                time.sleep(0.001)
                pids |= children(process.pid) & _helpers()
            victims = [process.pid] if victim == "run" else sorted(children(process.pid) & _helpers())
            if victims and process.poll() is None:
                counts[victim] += 1
                os.kill(draw.choice(victims), signal.SIGKILL)
            code = process.wait(timeout=300)
            _wait_for_end(pids)
            if code == 0:
                completed += 1
                _check(folder)
                print(f"{counts.total()} of {kills} kills, {completed} runs finished", flush=True)
            else:
                assert victim == "run" and code == -signal.SIGKILL, code
        assert _start_shared(folder).wait() == 0
        _check(folder)
    assert not {*_helpers()} - {*helpers} and not {*names(_SHARED_MEMORY)} - {*shared}  # others may end meanwhile
    print(f"{counts['helper']} helpers and {counts['run']} runs killed: the digests of one process, and nothing left over")
    return 0


def _start_shared(folder: Path) -> subprocess.Popen[bytes]:
    return start(folder, "out", "--jobs", "3", program=("-c", _SHARED))


def _check(folder: Path) -> None:
    """Check a finished run, and remove it."""
    check_same(folder, "alone", "out")
    assert names(folder) == ["alone", "out", "scenario.yaml"]
    shutil.rmtree(folder / "out")


def _helpers() -> set[int]:
    """Return all helper processes of this machine."""
    helpers = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(FileNotFoundError, ProcessLookupError):
            if b"help_out(" in path.read_bytes():
                helpers.add(int(path.parent.name))
    return helpers


def _wait_for_end(processes: set[int]) -> None:
    """Wait until these processes have ended; a second is enough."""
    deadline = time.monotonic() + 5
    while processes & _helpers():
        assert time.monotonic() < deadline, "a helper outlives its run"
        time.sleep(0.01)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100))
