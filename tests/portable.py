"""The golden runs on other CPUs, emulated: `make portable`, or python -m tests.portable [CPU ...] [--jobs N] [--runs PART ...].

Needs qemu's user-mode emulators for x86-64 and arm64 (Debian: qemu-user-static). Slow: about three quarters of an hour for
each CPU, because everything is compiled there again. For arm64 Python and wheels are fetched first, a gigabyte when unpacked:
Debian's packages, from the sources that this system is set up for, and PyPI's wheels are only unpacked, into the user's cache, once for
each state of the lock files; nothing of this needs root. Where they cannot be had, arm64 is left out with a word. The
emulated runs compute inline (larger compiled programs crash the emulator), the native ones replay; every run's digests must be
the same. A CPU that is promised nothing must say so.
"""

import argparse
import hashlib
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
from tests.golden import SCENARIOS, digests, names

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
_LOCKS = [SCENARIOS.parent / name for name in ("requirements.lock", "requirements-test.lock")]  # the second one names the first
_VERSION = "3.11"  # of bookworm's Python
_PACKAGES = (f"python{_VERSION}", "libstdc++6", "libgomp1")
_APT = """
Dir::State "{0}"; Dir::State::status "{0}/status"; Dir::Cache "{0}";
APT::Architecture "arm64"; APT::Architectures {{ "arm64"; }}; APT::Install-Recommends "false"; Acquire::Languages "none";
APT::Sandbox::User "";
"""
_TRIES = 5  # the emulator itself crashes now and then; it then goes on with what is left


def find_differences(cpu: str, native: dict[str, dict[str, str]]) -> dict[str, str]:
    """Return the differences on a CPU for each run; empty if there are none."""
    problems: dict[str, str] = {}
    for _ in range(_TRIES):
        left = [name for name in native if name not in problems]
        if not left:
            break
        with _arm64(left) if cpu == ARM64 else _emulate(cpu, ["-c", _DIGESTS, *left]) as process:
            assert process.stdout is not None
            for line in process.stdout:
                name, reported = json.loads(line)
                problems[name] = ", ".join(key for key in reported if reported[key] != native[name][key])
                print(f"{cpu:<16}{name:<32}{problems[name] or 'same'}", flush=True)
    return {name: problems.get(name, "not run: the emulator crashed") for name in native}


def check_old_cpu() -> str:
    """Return the fault if `verify` does not answer that it cannot compare without fused multiply-add, and why."""
    with tempfile.TemporaryDirectory() as scratch:
        settings = ["seeds=[1]", "stop.seconds=1"]
        folder.save(fred.run(fred.load(SCENARIOS / "quickstart.yaml", settings), only="asgd"), Path(scratch) / "result")
        facts = Path(scratch) / "root" / "proc" / "cpuinfo"  # qemu shows the host's unless it finds one here
        facts.parent.mkdir(parents=True)
        facts.write_text(f"model name\t: {OLD}\nflags\t\t: avx\n\n", encoding="utf-8")
        with _emulate(OLD, ["-m", "fred", "verify", f"{scratch}/result"], "-L", f"{scratch}/root") as process:
            errors = process.communicate()[1]
    output = "\n".join(line for line in errors.splitlines() if not line.startswith(EMULATOR))
    print(f"{OLD}: verify answers {process.returncode}\n{output}", flush=True)
    return "" if process.returncode == 2 and f"here 'only {OLD}'" in output else "not told apart"


def _emulate(cpu: str, command: list[str], *options: str) -> subprocess.Popen[str]:
    program = [EMULATOR, "-cpu", cpu, *options, os.path.realpath(sys.executable), *command]
    return _start(program, sys.path, subprocess.PIPE if options else subprocess.DEVNULL)


def _arm64(names: list[str]) -> subprocess.Popen[str]:
    python, wheels = arm64_python()
    return _start([*python, "-c", _DIGESTS, *names], [str(SCENARIOS.parent), str(wheels)], subprocess.DEVNULL)


def _start(program: list[str], path: list[str], errors: int) -> subprocess.Popen[str]:
    env = {name: value for name, value in os.environ.items() if name not in ("XLA_FLAGS", "PJRT_NPROC", "JAX_PLATFORMS")}
    env |= {"PYTHONPATH": os.pathsep.join(filter(None, path))}  # it knows no virtual environment
    env |= {"PYTHONDONTWRITEBYTECODE": "1", "FRED_CACHE": "off"}  # programs that this CPU compiled would prove nothing
    return subprocess.Popen(program, env=env, text=True, stdout=subprocess.PIPE, stderr=errors)


class UnavailableError(Exception):
    """A requirement that this machine lacks."""


def arm64_python() -> tuple[list[str], Path]:
    """The command that runs the emulated Python, and the folder of its wheels. Raises UnavailableError."""
    emulator = next(filter(None, map(shutil.which, ("qemu-aarch64-static", "qemu-aarch64"))), None)
    if not emulator:
        raise UnavailableError("no qemu-aarch64 (Debian: qemu-user-static)")
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise UnavailableError("not a Debian: no apt-get and dpkg-deb")
    if f"{sys.version_info.major}.{sys.version_info.minor}" != _VERSION:
        raise UnavailableError(f"not Python {_VERSION}, which is what the emulated one is")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fred"
    place = cache / f"arm64-{hashlib.sha256(b''.join(file.read_bytes() for file in _LOCKS)).hexdigest()[:12]}"
    if not place.exists():
        _make(place.with_suffix(".unfinished"))
        place.with_suffix(".unfinished").rename(place)
    root = place / "root"
    return [emulator, "-L", str(root), str(root / "usr" / "bin" / f"python{_VERSION}")], place / "wheels"


def _make(place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    apt, configuration = place / "apt", place / "apt" / "apt.conf"
    for part in ("lists", "archives"):
        (apt / part / "partial").mkdir(parents=True)
    (apt / "status").touch()
    configuration.write_text(_APT.format(apt), encoding="utf-8")
    for command in (["update"], ["--yes", "--download-only", "install", *_PACKAGES]):
        _fetch("apt-get", "--quiet=2", *command, APT_CONFIG=str(configuration))
    for package in (apt / "archives").glob("*.deb"):
        _fetch("dpkg-deb", "--extract", str(package), str(place / "root"))
    shutil.rmtree(apt)
    glibc = [f"--platform=manylinux_2_{minor}_aarch64" for minor in (17, 27, 28)]
    wheels = ["--only-binary=:all:", *glibc, f"--python-version={_VERSION}", f"--target={place / 'wheels'}"]
    _fetch(sys.executable, "-m", "pip", "install", "--quiet", "--require-hashes", *wheels, "-r", str(_LOCKS[-1]))


def _fetch(*command: str, **variables: str) -> None:
    process = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)
    if process.returncode:
        last = (process.stderr.strip() or process.stdout.strip() or "no word").splitlines()[-1]
        raise UnavailableError(f"{' '.join(command[:4])} ...: {last}")


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.portable", description=__doc__)
    parser.add_argument("cpus", nargs="*", metavar="CPU", help=f"which, of {', '.join([*CPUS, ARM64, OLD])} (default: all)")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--jobs", type=int, default=cores, help="how many at a time (default: one per core)")
    parser.add_argument("--runs", nargs="+", default=[""], metavar="PART", help="only runs whose names contain one of these")
    options = parser.parse_args()
    if options.cpus != [ARM64] and not shutil.which(EMULATOR):
        print(f"{EMULATOR} is missing; Debian has it in the package qemu-user-static", file=sys.stderr)
        return 2
    cpus = options.cpus or [*CPUS, ARM64, OLD]
    try:
        if ARM64 in cpus:
            arm64_python()
    except UnavailableError as missing:
        print(f"{ARM64}: skipped: {missing}", flush=True)
        cpus = [cpu for cpu in cpus if cpu != ARM64]
    problems = [check_old_cpu()] if OLD in cpus else []
    native = {name: digests(name) for name in names() if any(part in name for part in options.runs)}
    with ThreadPoolExecutor(options.jobs) as pool:
        for differences in pool.map(lambda cpu: find_differences(cpu, native), [cpu for cpu in cpus if cpu != OLD]):
            problems += differences.values()
    print(f"{len(problems)} runs on other CPUs, {sum(map(bool, problems))} differ")
    return int(any(problems))


if __name__ == "__main__":
    sys.exit(_main())
