"""Python and the locked wheels for arm64 Linux, to run under emulation: part of `make portable`.

Debian's packages, from the sources that this system is set up for, and PyPI's wheels are only unpacked, into the user's cache, once
for each state of requirements-test.lock; nothing of this needs root. `UnavailableError` says in one line what is missing here.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

EMULATORS = ("qemu-aarch64-static", "qemu-aarch64")  # Debian: qemu-user-static, qemu-user
_LOCK = Path(__file__).parent.parent / "requirements-test.lock"
_VERSION = "3.11"  # of bookworm's Python
_PACKAGES = (f"python{_VERSION}", "libstdc++6", "libgomp1")
_APT = """
Dir::State "{0}"; Dir::State::status "{0}/status"; Dir::Cache "{0}";
APT::Architecture "arm64"; APT::Architectures {{ "arm64"; }}; APT::Install-Recommends "false"; Acquire::Languages "none";
APT::Sandbox::User "";
"""


class UnavailableError(Exception):
    """What is missing here."""


def python() -> tuple[list[str], Path]:
    """The command that runs the emulated Python, and the folder of its wheels. Raises UnavailableError."""
    emulator = next(filter(None, map(shutil.which, EMULATORS)), None)
    if not emulator:
        raise UnavailableError("no qemu-aarch64 (Debian: qemu-user-static)")
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise UnavailableError("not a Debian: no apt-get and dpkg-deb")
    if f"{sys.version_info.major}.{sys.version_info.minor}" != _VERSION:
        raise UnavailableError(f"not Python {_VERSION}, which is what the emulated one is")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fred"
    place = cache / f"arm64-{hashlib.sha256(_LOCK.read_bytes()).hexdigest()[:12]}"
    if not place.exists():
        _make(place.with_suffix(".unfinished"))
        place.with_suffix(".unfinished").rename(place)
    root = place / "root"
    return [emulator, "-L", str(root), str(root / "usr" / "bin" / f"python{_VERSION}")], place / "wheels"


def _make(place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    apt = place / "apt"
    for folder in ("lists/partial", "archives/partial"):
        (apt / folder).mkdir(parents=True)
    (apt / "status").touch()
    (apt / "apt.conf").write_text(_APT.format(apt), encoding="utf-8")
    _run("apt-get", "--quiet=2", "update", APT_CONFIG=str(apt / "apt.conf"))
    _run("apt-get", "--quiet=2", "--yes", "--download-only", "install", *_PACKAGES, APT_CONFIG=str(apt / "apt.conf"))
    for package in (apt / "archives").glob("*.deb"):
        _run("dpkg-deb", "--extract", str(package), str(place / "root"))
    shutil.rmtree(apt)
    glibc = [f"--platform=manylinux_2_{minor}_aarch64" for minor in (17, 27, 28)]
    wheels = ["--only-binary=:all:", *glibc, f"--python-version={_VERSION}", f"--target={place / 'wheels'}"]
    _run(sys.executable, "-m", "pip", "install", "--quiet", "--require-hashes", *wheels, "-r", str(_LOCK))


def _run(*command: str, **variables: str) -> None:
    finished = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)
    if finished.returncode:
        last = (finished.stderr.strip() or finished.stdout.strip() or "no word").splitlines()[-1]
        raise UnavailableError(f"{' '.join(command[:4])} ...: {last}")
