"""The tests under every Python that FRED supports, as far as it is here: `make pythons`, or python -m tests.pythons [VERSION ...] [-- PYTEST'S].

Each has an environment of its own, .venv/python3.12 and so on, from requirements-test.lock. A version that is not on the PATH, nor
uv's, nor pyenv's, is left out with a word; none is downloaded.
"""

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
_LOCK = ROOT / "requirements-test.lock"


def versions() -> list[str]:
    """Those that setup.cfg names."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    return re.findall(r"Python :: (3\.\d+)", settings["metadata"]["classifiers"])


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def interpreter(version: str) -> str:
    """A Python of this version that starts, or nothing."""
    candidates = [shutil.which(f"python{version}"), *map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))]
    if uv := shutil.which("uv"):
        candidates.append(_output(uv, "python", "find", "--no-python-downloads", version))
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    return next((each for each in candidates if each and _output(each, "-c", program) == version), "")


def _installed(version: str, program: str) -> Path:
    """The Python of an environment with all that the tests need; made again when that has changed."""
    place = ROOT / ".venv" / f"python{version}"
    done, python = place / "tests.lock", place / "bin" / "python"
    if not (done.exists() and done.read_bytes() == _LOCK.read_bytes()):
        subprocess.run([program, "-m", "venv", "--clear", place], check=True)
        for options in (["--upgrade", "pip"], ["--require-hashes", "-r", str(_LOCK)], ["--no-deps", "--editable", "."]):
            subprocess.run([str(python), "-m", "pip", "install", "--quiet", *options], cwd=ROOT, check=True)
        shutil.copyfile(_LOCK, done)
    return python


def main(arguments: list[str]) -> int:
    """Test under each; return the number of failures."""
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    failed = 0
    for version in arguments[:cut] or versions():
        if program := interpreter(version):
            print(f"Python {version}: {program}", flush=True)
            command = [str(_installed(version, program)), "-m", "pytest", *arguments[cut + 1 :]]
            failed += subprocess.run(command, cwd=ROOT, check=False).returncode != 0
        else:
            print(f"Python {version}: not here, so nothing is known of it")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
