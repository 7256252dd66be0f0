"""A result's place as it is filled, and what lies there."""

import hashlib
import json
from pathlib import Path
from typing import Any

from fred.base import ownership, staging
from fred.base.contents import MANIFEST

OLD = {"summary.json": "old", "asgd/seed-0/metrics.csv": "old", "ssgd/seed-0/metrics.csv": "old"}
NEW = {"summary.json": "new", "asgd/seed-0/metrics.csv": "new", "sweep.csv": "new", "b/seed-0/metrics.csv": "new"}


def fill(folder: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)


def complete(folder: Path, files: dict[str, str]) -> None:
    """Write a complete folder as FRED does: files, and a manifest that lists them."""
    fill(folder, files)
    facts: dict[str, Any] = dict.fromkeys(("format", "fred", "inline", "environment", "data", "scenario"))
    (folder / MANIFEST).write_text(
        json.dumps(facts | {"files": {name: hashlib.sha256(content.encode()).hexdigest() for name, content in files.items()}})
    )


def put(path: Path, files: dict[str, str]) -> None:
    """A run's way to its place."""
    with staging.opened(path) as stage:
        ownership.keep_only(stage, [])
        complete(stage, files)
        staging.publish(stage, path)


def tree(path: Path) -> dict[str, str]:
    """All there is: files with what is in them, links with where they lead, empty folders."""
    found = {}
    for each in sorted(path.rglob("*")):
        name = each.relative_to(path).as_posix()
        if each.is_symlink():
            found[name] = f"-> {each.readlink()}"
        elif each.is_fifo():
            found[name] = "fifo"
        elif each.is_file():
            found[name] = each.read_text() if name != MANIFEST else "manifest"
        elif not any(each.iterdir()):
            found[name] = "empty"
    return found
