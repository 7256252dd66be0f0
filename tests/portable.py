"""The golden runs on other CPUs, emulated: `make portable`, or python -m tests.portable [CPU ...] [--jobs N].

Needs qemu's user-mode emulator for x86-64 (Debian: qemu-user-static). Slow: about a quarter of an hour for each CPU, because
everything is compiled there anew. The emulated runs compute inline (larger compiled programs crash the emulator), the native
ones replay; every run's digests must be the same. A CPU that is promised nothing must say so.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fred
from fred import folder
from tests.golden import SCENARIOS, all_digests

EMULATOR = "qemu-x86_64-static"
CPUS = {  # qemu's names
    "Haswell": "the first with fused multiply-add",
    "Skylake-Client": "a laptop's",
    "EPYC-Rome": "another maker's, with other cache sizes",
    "Icelake-Server": "a server's; qemu emulates it without AVX-512",
    "max": "all that qemu can emulate; nobody's cache sizes",
}
OLD = "SandyBridge"  # without fused multiply-add
_DIGESTS = "import json, sys; from tests.golden import digests; print(json.dumps(digests(sys.argv[1], inline=True)))"
_TRIES = 3  # the emulator itself crashes now and then


def differing(cpu: str, name: str, native: dict[str, str]) -> str:
    """What comes out differently on a CPU; nothing if nothing does."""
    start = time.monotonic()
    for _ in range(_TRIES):
        finished = _emulated(cpu, ["-c", _DIGESTS, name])
        if finished.returncode == 0:
            found = json.loads(finished.stdout.splitlines()[-1])
            problem = ", ".join(what for what in native if found[what] != native[what])
            break
    else:
        problem = f"not run (exit code {finished.returncode})"
    print(f"{cpu:<16}{name:<32}{problem or 'same':<16}{time.monotonic() - start:6.0f} s", flush=True)
    return problem


def old_cpu_is_told_apart() -> str:
    """Where there is no fused multiply-add, `verify` must answer that it cannot compare, and why."""
    with tempfile.TemporaryDirectory() as scratch:
        settings = ["seeds=[1]", "stop.seconds=1"]
        folder.save(fred.run(fred.load(SCENARIOS / "quickstart.yaml", settings), only="asgd"), Path(scratch) / "result")
        facts = Path(scratch) / "root" / "proc" / "cpuinfo"  # qemu shows the host's unless it finds one here
        facts.parent.mkdir(parents=True)
        facts.write_text(f"model name\t: {OLD}\nflags\t\t: avx\n\n", encoding="utf-8")
        finished = _emulated(OLD, ["-m", "fred", "verify", f"{scratch}/result"], "-L", f"{scratch}/root")
    output = "\n".join(line for line in finished.stderr.splitlines() if not line.startswith(EMULATOR))
    print(f"{OLD}: verify answers {finished.returncode}\n{output}", flush=True)
    return "" if finished.returncode == 2 and f"here 'only {OLD}'" in output else "not told apart"


def _emulated(cpu: str, command: list[str], *options: str) -> subprocess.CompletedProcess[str]:
    env = dict(os.environ)
    for name in ("XLA_FLAGS", "PJRT_NPROC", "JAX_PLATFORMS"):
        env.pop(name, None)
    env["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))  # an emulated Python does not know its virtual environment
    program = [EMULATOR, "-cpu", cpu, *options, os.path.realpath(sys.executable), *command]
    return subprocess.run(program, env=env, text=True, capture_output=True, check=False)


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.portable", description=__doc__)
    parser.add_argument("cpus", nargs="*", metavar="CPU", help=f"which, of {', '.join([*CPUS, OLD])} (default: all)")
    parser.add_argument(
        "--jobs", type=int, default=len(os.sched_getaffinity(0)), help="how many at a time (default: one per core)"
    )
    options = parser.parse_args()
    if not shutil.which(EMULATOR):
        print(f"{EMULATOR} is missing; Debian has it in the package qemu-user-static", file=sys.stderr)
        return 2
    wanted = options.cpus or [*CPUS, OLD]
    problems = [old_cpu_is_told_apart()] if OLD in wanted else []
    native = all_digests()
    runs = [(cpu, name) for cpu in wanted if cpu != OLD for name in native]
    with ThreadPoolExecutor(options.jobs) as pool:
        problems += pool.map(lambda run: differing(*run, native[run[1]]), runs)
    print(f"{len(problems)} runs on other CPUs, {sum(map(bool, problems))} differ")
    return int(any(problems))


if __name__ == "__main__":
    sys.exit(_main())
