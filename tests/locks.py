"""`make lock`: write the lock files again; needs uv. Each of them has the packages that those before it lack.

Versions stay as they are if setup.cfg allows them; `python -m tests.locks --upgrade` takes the newest.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
_COMPILE = [
    *("uv", "pip", "compile", "setup.cfg", "--quiet", "--universal", "--python-version", "3.11"),
    *("--generate-hashes", "--no-annotate", "--no-header"),
]
_EXTRAS = {
    "requirements.lock": "",
    "requirements-test.lock": "test",
    "requirements-docs.lock": "docs",
}  # each builds on the last


def packages(text: str) -> list[str]:
    """Return the entries of a lock file: a package's version with its hashes, in several lines."""
    return re.findall(r"^\w.*\n(?: .*\n)*", text, re.MULTILINE)


def main(options: list[str]) -> None:
    """Write all lock files."""
    earlier = list[str]()  # files
    handled = list[str]()  # packages
    for name, extra in _EXTRAS.items():
        file = ROOT / name
        locked = packages(file.read_text(encoding="utf-8"))
        file.write_text("".join([*handled, *locked]), encoding="utf-8")  # uv keeps the versions of the file that it writes
        constraints = [f"--constraint={other}" for other in earlier]
        extras = [f"--extra={extra}"] if extra else []
        subprocess.run([*_COMPILE, *extras, *constraints, f"--output-file={name}", *options], cwd=ROOT, check=True)
        fresh = [package for package in packages(file.read_text(encoding="utf-8")) if package not in handled]
        file.write_text("".join([*(f"-r {other}\n" for other in earlier[-1:]), *fresh]), encoding="utf-8")
        earlier.append(name)
        handled += fresh


if __name__ == "__main__":
    main(sys.argv[1:])
