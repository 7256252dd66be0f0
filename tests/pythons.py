"""The tests under every Python that FRED supports, as far as it is here: `make pythons`, or python -m tests.pythons [VERSION ...] [-- PYTEST'S].

Each has an environment of its own, .venv/python3.12 and so on, from requirements-test.lock. A version that is not on the PATH, nor
uv's, nor pyenv's, is left out with a word; none is downloaded.

`make newest`, or python -m tests.pythons newest ..., tests what pip installs today: the newest packages that setup.cfg allows, with the
oldest and the newest of these Pythons. It also runs README's ten commands in an empty folder.
"""

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent
_LOCKS = ("requirements.lock", "requirements-test.lock")  # the second one names the first


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
    return next((candidate for candidate in candidates if candidate and _output(candidate, "-c", program) == version), "")


def _environment(place: Path, program: str, *installs: list[str]) -> Path:
    """Make an environment with these installations by pip, one after the other; return its Python."""
    subprocess.run([program, "-m", "venv", "--clear", place], check=True)
    python = place / "bin" / "python"
    for options in (["--upgrade", "pip"], *installs):
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *options], cwd=ROOT, check=True)
    return python


def _newest(version: str, program: str) -> Path:
    """The Python of a fresh environment, installed as a user would."""
    python = _environment(ROOT / ".venv" / f"newest{version}", program, [".[test]"])
    listed = _output(str(python), "-m", "pip", "list", "--format", "freeze").splitlines()
    print(*(line for line in listed if line.partition("==")[0] in ("jax", "numpy", "numpyro", "optax", "pandas", "pydantic")))
    return python


def _commands() -> list[str]:
    """README's ten commands."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = text.split("## Ten commands")[1].split("```sh\n")[1].split("```")[0]
    return [line.partition("#")[0].strip() for line in block.splitlines()]


def _run_commands(python: Path) -> int:
    """Run README's commands in an empty folder, after its quickstart; return the number of failures."""
    failed = 0
    with TemporaryDirectory() as folder:
        for command in ["fred quickstart", *_commands()]:
            program, *rest = command.split()
            done = subprocess.run([python.parent / program, *rest], cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode:
                failed += 1
                print(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return failed


def _install(version: str, program: str) -> Path:
    """The Python of an environment with all that the tests need; made again when that has changed."""
    place = ROOT / ".venv" / f"python{version}"
    done, python = place / "tests.lock", place / "bin" / "python"
    locked = b"".join((ROOT / name).read_bytes() for name in _LOCKS)
    if not (done.exists() and done.read_bytes() == locked):
        _environment(place, program, ["--require-hashes", "-r", _LOCKS[-1]], ["--no-deps", "--editable", "."])
        done.write_bytes(locked)
    return python


def main(arguments: list[str]) -> int:
    """Test under each; return the number of failures."""
    newest = arguments[:1] == ["newest"]
    arguments = arguments[newest:]
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    failed = 0
    for version in arguments[:cut] or ((versions()[0], versions()[-1]) if newest else versions()):
        if program := interpreter(version):
            print(f"Python {version}: {program}", flush=True)
            python = (_newest if newest else _install)(version, program)
            failed += _run_commands(python) if newest else 0
            command = [str(python), "-m", "pytest", *arguments[cut + 1 :]]
            failed += subprocess.run(command, cwd=ROOT, check=False).returncode != 0
        else:
            print(f"Python {version}: not here, so nothing is known of it")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
