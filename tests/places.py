"""A result's place as tests fill it, and what lies there; imported by programs that have to start quickly."""

import hashlib
import json
from pathlib import Path
from typing import Any

from fred.base import disk, staging
from fred.base.disk import MANIFEST

OLD = {"summary.json": "old", "asgd/seed-0/metrics.csv": "old", "ssgd/seed-0/metrics.csv": "old"}
NEW = {"summary.json": "new", "asgd/seed-0/metrics.csv": "new", "sweep.csv": "new", "b/seed-0/metrics.csv": "new"}


def names(folder: Path) -> list[str]:
    """Return the names of everything in a folder."""
    return sorted(path.name for path in folder.iterdir())


def fill(folder: Path, files: dict[str, str]) -> None:
    """Write files with these contents."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)


def complete(folder: Path, files: dict[str, str]) -> None:
    """Write a complete folder as FRED does: files, and a manifest that lists them."""
    fill(folder, files)
    facts: dict[str, Any] = dict.fromkeys(("format", "fred", "inline", "environment", "data", "scenario"))
    listed = {name: hashlib.sha256(content.encode()).hexdigest() for name, content in files.items()}
    (folder / MANIFEST).write_text(json.dumps(facts | {"files": listed}))


def put(path: Path, files: dict[str, str]) -> None:
    """Publish a result of these files at its place."""
    with staging.opened(path) as stage:
        disk.keep_only(stage, [])
        complete(stage, files)
        staging.publish(stage, path)


def tree(folder: Path) -> dict[str, str]:
    """Return everything in a folder: files with their contents, links with their targets, empty folders."""
    entries = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            entries[name] = f"-> {path.readlink()}"
        elif path.is_fifo():
            entries[name] = "fifo"
        elif path.is_file():
            entries[name] = path.read_text() if name != MANIFEST else "manifest"
        elif not any(path.iterdir()):
            entries[name] = "empty"
    return entries
