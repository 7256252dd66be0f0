"""Where a result comes to be: in a folder beside its place, which takes the place in the end and outlives an interruption."""

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fred import inputs
from fred.errors import FredError
from fred.held import held

MANIFEST = "manifest.json"  # written last, so that a folder with one is complete
_FIELDS = {"format", "fred", "inline", "environment", "data", "scenario"}  # by which a manifest is known for FRED's


@contextmanager
def opened(path: Path) -> Iterator[Path]:
    """The folder in which the result at `path` comes to be, with whatever an interrupted run has left there.

    Nobody else gets it meanwhile. If nothing is in it at the end, it vanishes. Raises FredError for a place that cannot be
    written, where anything but a result of FRED's lies, or at which somebody else is at work.
    """
    check_free(path)
    path = Path(os.path.realpath(path))
    made = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
    with said(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        stage, lock = _locked(path)
        try:
            yield stage
        finally:
            prune(stage)
            for folder in made:
                with suppress(OSError):
                    folder.rmdir()
            os.close(lock)


def publish(stage: Path, path: Path) -> None:
    """The complete folder takes its place, with the files that somebody else has put into the old one."""
    path = Path(os.path.realpath(path))
    with said(path):
        for name in foreign(path):
            (stage / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path / name, stage / name, follow_symlinks=False)
        old = _beside(path, "old")
        if path.exists():
            path.rename(old)
        try:
            stage.rename(path)
        except OSError:
            old.rename(path)
            raise
        shutil.rmtree(old, ignore_errors=True)


def check_free(path: Path) -> None:
    """Refuse a place where the folder cannot be written, or where anything but a result of FRED's lies. Raises FredError."""
    with said(path):
        path = Path(os.path.realpath(path))
        if path.exists() and not is_result(path) and (not path.is_dir() or any(path.iterdir())):
            raise FredError(f"{path} exists and is not a result folder; choose another with --out, or remove it")
        trial = next(folder for folder in path.parents if folder.exists()) / f"{_beside(path, 'trial').name}.{os.getpid()}"
        trial.mkdir()
        trial.rmdir()


def is_result(path: Path) -> bool:
    """Whether a folder has a manifest of FRED's."""
    return bool(_manifest(path))


def title_of(path: Path) -> tuple[str, str]:
    """Which scenario's result lies there: its file, as far as that is recorded, and its title; empty where none does."""
    manifest = _manifest(path)
    scenario = manifest.get("scenario")
    return str(manifest.get("file", "")), str(scenario.get("title", "")) if isinstance(scenario, dict) else ""


def foreign(path: Path) -> list[str]:
    """Files and links in a result folder that are not on the list of what was written there."""
    written = _manifest(path).get("files", {})
    names = (file.relative_to(path).as_posix() for file in sorted(path.rglob("*")) if file.is_symlink() or not file.is_dir())
    return [name for name in names if name != MANIFEST and name not in written]


@contextmanager
def said(path: Path) -> Iterator[None]:
    """The system's objections to a place as FredErrors."""
    try:
        yield
    except OSError as error:
        raise FredError(f"cannot write {path}: {error.strerror or error}; choose another folder with --out") from error


def keep_only(stage: Path, names: Iterable[str]) -> None:
    """Remove whatever is neither one of these files and folders nor in one of them."""
    wanted = {Path(name) for name in names}
    above = {parent for name in wanted for parent in name.parents}
    for found in sorted(stage.rglob("*"), key=lambda each: len(each.parts)):
        name = found.relative_to(stage)
        if name in above or not wanted.isdisjoint((name, *name.parents)):
            continue
        if found.is_dir() and not found.is_symlink():
            shutil.rmtree(found)
        else:
            found.unlink(missing_ok=True)


def prune(folder: Path) -> None:
    """Remove empty folders, this one included."""
    for found in [*sorted(folder.rglob("*"), reverse=True), folder]:
        if found.is_dir() and not found.is_symlink():
            with suppress(OSError):
                found.rmdir()


def _manifest(path: Path) -> dict[str, Any]:
    """What manifest.json holds, if it is one of FRED's; else nothing."""
    try:
        manifest = json.loads(inputs.text(path / MANIFEST))
    except (FredError, ValueError, RecursionError):
        return {}
    return manifest if isinstance(manifest, dict) and manifest.keys() >= _FIELDS else {}


def _beside(path: Path, what: str) -> Path:
    return path.parent / f".{path.name}.{what}"


def _locked(path: Path) -> tuple[Path, int]:
    """The folder beside the place, and what holds it as long as this process lives."""
    stage = _beside(path, "unfinished")
    while (lock := held(stage)) is not None:
        if not _recovered(path, stage):
            return stage, lock
        os.close(lock)
    raise FredError(f"another run is at work on {path}; wait for it, or choose another folder with --out")


def _recovered(path: Path, stage: Path) -> bool:
    """Finish a replacement in whose middle somebody was killed; whether the folder beside the place has thereby taken it."""
    old = _beside(path, "old")
    missing = old.exists() and not path.exists()
    complete = missing and is_result(stage)
    if missing:
        (stage if complete else old).rename(path)
    shutil.rmtree(old, ignore_errors=True)
    return complete
