"""The golden runs on other CPUs, emulated: `make portable`, or python -m tests.portable [CPU ...] [--jobs N].

Needs qemu's user-mode emulator for x86-64 (Debian: qemu-user-static). Slow: about a quarter of an hour for each CPU, because
everything is compiled there anew. Every run's digests must be the native ones; a CPU that is promised nothing must say so.
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
from fred import folder
from tests.golden import SCENARIOS, digests

EMULATOR = "qemu-x86_64-static"
CPUS = {  # qemu's names
    "Haswell": "the first with fused multiply-add",
    "Skylake-Client": "a laptop's",
    "EPYC-Rome": "another maker's, with other cache sizes",
    "Icelake-Server": "a server's; qemu emulates it without AVX-512",
    "max": "all that qemu can emulate; nobody's cache sizes",
}
OLD = "SandyBridge"  # without fused multiply-add
_DIGESTS = "import json; from tests.golden import digests\nfor name, each in digests(): print(json.dumps([name, each]), flush=True)"


def differing(cpu: str, native: dict[str, dict[str, str]]) -> list[str]:
    """What came out differently on a CPU, run by run."""
    seen, problems = set(), []
    with _emulated(cpu, ["-c", _DIGESTS]) as process:
        assert process.stdout is not None
        for line in filter(lambda line: line.startswith("["), process.stdout):  # qemu has warnings of its own
            name, found = json.loads(line)
            seen.add(name)
            wrong = [what for what in found if found[what] != native[name][what]]
            problems += [f"{name}: {what}" for what in wrong]
            print(f"{cpu}: {name}: {', '.join(wrong) or 'same'}", flush=True)
    return problems + [f"{name}: not run (exit code {process.returncode})" for name in native.keys() - seen]


def old_cpu_is_told_apart() -> list[str]:
    """Where there is no fused multiply-add, `verify` must answer that it cannot compare, and why."""
    with tempfile.TemporaryDirectory() as scratch:
        settings = ["seeds=[1]", "stop.seconds=1"]
        folder.save(fred.run(fred.load(SCENARIOS / "quickstart.yaml", settings), only="asgd"), Path(scratch) / "result")
        facts = Path(scratch) / "root" / "proc" / "cpuinfo"  # qemu shows the host's unless it finds one here
        facts.parent.mkdir(parents=True)
        facts.write_text(f"model name\t: {OLD}\nflags\t\t: avx\n\n", encoding="utf-8")
        with _emulated(OLD, ["-m", "fred", "verify", f"{scratch}/result"], "-L", f"{scratch}/root") as process:
            lines = process.communicate()[0].splitlines()
    output = "\n".join(line for line in lines if not line.startswith(EMULATOR))
    print(f"{OLD}: verify answers {process.returncode}\n{output}", flush=True)
    return [] if process.returncode == 2 and f"here 'only {OLD}'" in output else [f"verify: {output}"]


def _emulated(cpu: str, command: list[str], *options: str) -> subprocess.Popen[str]:
    env = dict(os.environ)
    for name in ("XLA_FLAGS", "PJRT_NPROC", "JAX_PLATFORMS"):
        env.pop(name, None)
    env["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))  # qemu does not see that Python was started from an environment
    program = [EMULATOR, "-cpu", cpu, *options, os.path.realpath(sys.executable), *command]
    return subprocess.Popen(program, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.portable", description=__doc__)
    parser.add_argument("cpus", nargs="*", metavar="CPU", help=f"which, of {', '.join([*CPUS, OLD])} (default: all)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="how many at a time (default: one per core)")
    options = parser.parse_args()
    if not shutil.which(EMULATOR):
        print(f"{EMULATOR} is missing; Debian has it in the package qemu-user-static", file=sys.stderr)
        return 2
    wanted = options.cpus or [*CPUS, OLD]
    problems = {OLD: old_cpu_is_told_apart()} if OLD in wanted else {}
    native = dict(digests())
    with ThreadPoolExecutor(options.jobs) as pool:
        others = [cpu for cpu in wanted if cpu != OLD]
        problems |= dict(zip(others, pool.map(lambda cpu: differing(cpu, native), others), strict=True))
    for cpu, found in problems.items():
        print(f"{cpu:<16}{CPUS.get(cpu, 'told apart'):<50}{'same' if not found else '; '.join(found)}")
    return int(any(problems.values()))


if __name__ == "__main__":
    sys.exit(_main())
