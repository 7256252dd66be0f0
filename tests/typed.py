"""Users' code checked by mypy and pyright, without pydantic's plugin: the examples of README and the pages, and `users_code.py`.

`python -m tests.typed` is part of `make lint`. Each name that `MISSPELT` gets wrong must be an error of both.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
_CELL = re.compile(r"^```(?:\{code-cell\}|python)\n(?::[^\n]*\n)*(.*?)^```", re.M | re.S)
_FILE = re.compile(r"%%writefile (\w+)\.py\n(.*)", re.S)
_EXPECTED = re.compile(r'Argument 2 to "savez"|Import "torch')  # of NumPy's stubs, and of a package that is not installed
MISSPELT = """\
import fred
from fred import Sever
from fred.latency import LogNorma
fred.rum
fred.latancy
fred.systems.ASDG(learning_rate=0.1)
fred.protocols.Gosip()
fred.latency.LogNormal(median=0.1, sigme=0.5)
fred.Stop(updates=4).upates
fred.topology.Ring().neighbors
"""


def examples() -> dict[str, str]:
    """Return the Python examples of README and the pages as modules of the package `examples`, by file name."""
    files = {"__init__.py": ""}
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        if "_build" in path.parts:
            continue
        page, cells = re.sub(r"\W", "_", path.stem), _CELL.findall(path.read_text(encoding="utf-8"))
        modules = {match[1]: match[2] for cell in cells if (match := _FILE.match(cell))}
        body = "\n".join(cell for cell in cells if not cell.startswith("%%"))
        for name, text in {"": body, **modules}.items():
            for other in modules:  # several pages write a file `my_servers.py`
                text = re.sub(rf"\b(from|import) {other}\b", rf"\1 examples.{page}_{other}", text)
            if text:
                files[f"{page}_{name}.py" if name else f"{page}.py"] = text
    return files


def commands() -> dict[str, list[str]]:
    """Return the type checkers that are installed: names, and commands without files."""
    cache = str(ROOT / ".mypy_cache" / "users")
    mypy = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "tests" / "users.ini"), "--cache-dir", cache]
    program = shutil.which(Path(sys.executable).with_name("pyright")) or shutil.which("pyright")
    pyright = [program, "--pythonpath", sys.executable, "--level", "error"] if program else []
    return {"mypy": mypy, "pyright": pyright} if pyright else {"mypy": mypy}


def errors(command: list[str], folder: Path) -> list[str]:
    """Return the lines with errors, other than the expected ones, in the files of a folder.

    Args:
        command: a type checker's command.
        folder: the folder, from which the checker starts.
    """
    files = [*command, "examples", "users_code.py", "misspelt.py"]
    lines = subprocess.run(files, cwd=folder, capture_output=True, text=True, check=False).stdout.splitlines()
    return [line.strip() for line in lines if re.match(r"\s*\S+:\d+.* error\b", line) and not _EXPECTED.search(line)]


def main() -> int:
    """Print the errors in users' code, and the misspelt names that are none. Return 1 if there are any."""
    problems = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "examples").mkdir()
        for file, text in examples().items():
            (folder / "examples" / file).write_text(text, encoding="utf-8")
        shutil.copy(ROOT / "tests" / "users_code.py", folder)
        (folder / "misspelt.py").write_text(MISSPELT, encoding="utf-8")
        (folder / "fred").symlink_to(ROOT / "fred")  # next to users' code, so that pyright finds this checkout
        for checker, command in commands().items():
            lines = errors(command, folder)
            problems += [line for line in lines if "misspelt.py" not in line]
            noticed = {int(number) for line in lines for number in re.findall(r"misspelt\.py:(\d+)", line)}
            wrong = enumerate(MISSPELT.splitlines()[1:], 2)
            problems += [f"{checker} accepts: {text}" for number, text in wrong if number not in noticed]
    print("".join(f"{problem}\n" for problem in problems), end="")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
