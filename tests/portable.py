"""The golden runs on other CPUs, emulated: `make portable`, or python -m tests.portable [CPU ...] [--jobs N].

Needs qemu's user-mode emulators for x86-64 and arm64 (Debian: qemu-user-static). Slow: about three quarters of an hour for
each CPU, because everything is compiled there anew. For arm64 Python and wheels are fetched first, a gigabyte when unpacked (arm64.py); where
they cannot be had, it is left out with a word. The emulated runs compute inline (larger compiled programs crash the
emulator), the native ones replay; every run's digests must be the same. A CPU that is promised nothing must say so.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fred
from fred.results import folder
from tests import arm64
from tests.golden import SCENARIOS, all_digests

EMULATOR = "qemu-x86_64-static"
CPUS = {  # qemu's names
    "Haswell": "the first with fused multiply-add",
    "Skylake-Client": "a laptop's",
    "EPYC-Rome": "another maker's, with other cache sizes",
    "Icelake-Server": "a server's; qemu emulates it without AVX-512",
    "max": "all that qemu can emulate; nobody's cache sizes",
}
ARM64 = "arm64"
OLD = "SandyBridge"  # without fused multiply-add
_DIGESTS = """
import json, sys
from tests.golden import digests
for name in sys.argv[1:]:
    print(json.dumps([name, digests(name, inline=True)]), flush=True)
"""
_TRIES = 5  # the emulator itself crashes now and then; it then goes on with what is left


def differing(cpu: str, native: dict[str, dict[str, str]]) -> dict[str, str]:
    """Return the differences on a CPU for each run; empty if there are none."""
    problems: dict[str, str] = {}
    for _ in range(_TRIES):
        left = [name for name in native if name not in problems]
        if not left:
            break
        with _arm64(left) if cpu == ARM64 else _emulated(cpu, ["-c", _DIGESTS, *left]) as process:
            assert process.stdout is not None
            for line in process.stdout:
                name, found = json.loads(line)
                problems[name] = ", ".join(what for what in found if found[what] != native[name][what])
                print(f"{cpu:<16}{name:<32}{problems[name] or 'same'}", flush=True)
    return {name: problems.get(name, "not run: the emulator crashed") for name in native}


def old_cpu_is_told_apart() -> str:
    """Return the fault if `verify` does not answer that it cannot compare without fused multiply-add, and why."""
    with tempfile.TemporaryDirectory() as scratch:
        settings = ["seeds=[1]", "stop.seconds=1"]
        folder.save(fred.run(fred.load(SCENARIOS / "quickstart.yaml", settings), only="asgd"), Path(scratch) / "result")
        facts = Path(scratch) / "root" / "proc" / "cpuinfo"  # qemu shows the host's unless it finds one here
        facts.parent.mkdir(parents=True)
        facts.write_text(f"model name\t: {OLD}\nflags\t\t: avx\n\n", encoding="utf-8")
        with _emulated(OLD, ["-m", "fred", "verify", f"{scratch}/result"], "-L", f"{scratch}/root") as process:
            errors = process.communicate()[1]
    output = "\n".join(line for line in errors.splitlines() if not line.startswith(EMULATOR))
    print(f"{OLD}: verify answers {process.returncode}\n{output}", flush=True)
    return "" if process.returncode == 2 and f"here 'only {OLD}'" in output else "not told apart"


def _emulated(cpu: str, command: list[str], *options: str) -> subprocess.Popen[str]:
    program = [EMULATOR, "-cpu", cpu, *options, os.path.realpath(sys.executable), *command]
    return _started(program, sys.path, subprocess.PIPE if options else subprocess.DEVNULL)


def _arm64(names: list[str]) -> subprocess.Popen[str]:
    python, wheels = arm64.python()
    return _started([*python, "-c", _DIGESTS, *names], [str(SCENARIOS.parent), str(wheels)], subprocess.DEVNULL)


def _started(program: list[str], path: list[str], errors: int) -> subprocess.Popen[str]:
    env = {name: value for name, value in os.environ.items() if name not in ("XLA_FLAGS", "PJRT_NPROC", "JAX_PLATFORMS")}
    env |= {
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "FRED_CACHE": "off",  # what this CPU compiled would prove nothing
    }  # it knows no virtual environment
    return subprocess.Popen(program, env=env, text=True, stdout=subprocess.PIPE, stderr=errors)


def _possible(cpus: list[str]) -> list[str]:
    """Without arm64 where it cannot be had."""
    try:
        if ARM64 in cpus:
            arm64.python()
    except arm64.UnavailableError as missing:
        print(f"{ARM64}: skipped: {missing}", flush=True)
        return [cpu for cpu in cpus if cpu != ARM64]
    return cpus


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.portable", description=__doc__)
    parser.add_argument("cpus", nargs="*", metavar="CPU", help=f"which, of {', '.join([*CPUS, ARM64, OLD])} (default: all)")
    parser.add_argument(
        "--jobs", type=int, default=len(os.sched_getaffinity(0)), help="how many at a time (default: one per core)"
    )
    options = parser.parse_args()
    if options.cpus != [ARM64] and not shutil.which(EMULATOR):
        print(f"{EMULATOR} is missing; Debian has it in the package qemu-user-static", file=sys.stderr)
        return 2
    wanted = _possible(options.cpus or [*CPUS, ARM64, OLD])
    problems = [old_cpu_is_told_apart()] if OLD in wanted else []
    native = all_digests()
    with ThreadPoolExecutor(options.jobs) as pool:
        for found in pool.map(lambda cpu: differing(cpu, native), [cpu for cpu in wanted if cpu != OLD]):
            problems += found.values()
    print(f"{len(problems)} runs on other CPUs, {sum(map(bool, problems))} differ")
    return int(any(problems))


if __name__ == "__main__":
    sys.exit(_main())
