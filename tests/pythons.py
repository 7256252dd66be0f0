"""The tests under every Python that FRED is for, as far as it is here: `make pythons`, or python -m tests.pythons [VERSION ...] [-- PYTEST'S].

Each has an environment of its own, .venv/python3.12 and so on, from requirements-test.lock. One that is neither on the PATH, nor uv's,
nor pyenv's, is left out with a word; so none of them is downloaded.
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


def interpreter(version: str) -> str:
    """A Python of this version that starts, or nothing."""
    candidates = [
        shutil.which(f"python{version}") or "",
        *map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python")),
    ]
    if uv := shutil.which("uv"):
        found = subprocess.run(
            [uv, "python", "find", "--no-python-downloads", version], capture_output=True, text=True, check=False
        )
        candidates.append(found.stdout.strip())
    return next((each for each in candidates if each and _is(each, version)), "")


def _is(program: str, version: str) -> bool:
    asked = "import sys; print('%d.%d' % sys.version_info[:2])"
    return subprocess.run([program, "-c", asked], capture_output=True, text=True, check=False).stdout.strip() == version


def _installed(version: str, program: str) -> Path:
    """The Python of an environment with all that the tests need; made anew when that has changed."""
    place = ROOT / ".venv" / f"python{version}"
    done, python = place / "tests.lock", place / "bin" / "python"
    if not (done.exists() and done.read_bytes() == _LOCK.read_bytes()):
        subprocess.run([program, "-m", "venv", "--clear", place], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "--upgrade", "pip"], check=True)
        subprocess.run([*pip, "--require-hashes", "-r", str(_LOCK)], check=True)
        subprocess.run([*pip, "--no-deps", "--editable", "."], cwd=ROOT, check=True)
        shutil.copyfile(_LOCK, done)
    return python


def main(arguments: list[str]) -> int:
    """Test under each; how many failed."""
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    wanted, options = arguments[:cut] or versions(), arguments[cut + 1 :]
    failed = 0
    for version in wanted:
        if program := interpreter(version):
            print(f"Python {version}: {program}", flush=True)
            python = _installed(version, program)
            failed += subprocess.run([python, "-m", "pytest", *options], cwd=ROOT, check=False).returncode != 0
        else:
            print(f"Python {version}: not here, so nothing is known of it")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
