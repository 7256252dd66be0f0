"""The work folder in which a result is written.

It lies next to the result's place, survives interruptions, and becomes the result when it is complete.
"""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fred.base import ownership, signals
from fred.base.contents import MANIFEST
from fred.base.errors import FredError
from fred.base.exchange import exchanged
from fred.base.lock import held, is_still
from fred.base.ownership import REPLACED, UNFINISHED, is_marked, manifest_of

_OLD = ".fred-old"  # the old result inside the new one, on systems without an atomic exchange


@contextmanager
def opened(path: Path) -> Iterator[Path]:
    """Open and lock the work folder of a result, with everything that an interrupted run has left in it.

    If the folder is empty at the end, it is removed. Raises FredError if the place cannot be written, holds anything but a
    result of FRED, or is used by another run.

    Args:
        path: the place of the result. The work folder lies next to it, as `.NAME.unfinished`.
    """
    signals.begun()
    check_free(path)
    path = Path(os.path.realpath(path))
    made = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
    with said(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        stage, lock = _locked(path)
        try:
            yield stage
        finally:
            if is_still(lock, stage):
                ownership.prune(stage)
            for folder in made:
                with suppress(OSError):
                    folder.rmdir()
            os.close(lock)


def publish(stage: Path, path: Path) -> None:
    """Move a complete work folder to its place, together with the user's files from the old result.

    Args:
        stage: the folder that `opened` yielded, with a manifest in it.
        path: its place. An existing result is replaced, atomically if the system supports it.
    """
    check_free(path)
    path = Path(os.path.realpath(path))
    with said(path), _standing():
        try:
            if is_result(path):
                _replace(path, stage)
            else:
                stage.rename(path)
        finally:
            ownership.unmark(path)


@contextmanager
def _standing() -> Iterator[None]:
    """Keep the current folder valid: if it is replaced, change to the new folder of the same name."""
    try:
        here = Path.cwd()
    except FileNotFoundError:  # the current folder was removed before
        here = Path()
    yield
    if not here.samefile(os.curdir):
        os.chdir(here)


def check_free(path: Path) -> None:
    """Raise FredError if the place cannot be written, or holds anything but a result of FRED."""
    with said(path):
        path = Path(os.path.realpath(path))
        if path.exists() and not is_result(path) and (not path.is_dir() or any(path.iterdir())):
            raise FredError(f"{path} exists and is not a result folder; choose another with --out, or remove it")
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        there = next(folder for folder in path.parents if folder.exists())
        with suppress(FileNotFoundError):
            (there / _stage(path).name).lstat()  # raises OSError if the name is too long
        with tempfile.TemporaryFile(dir=there):
            pass


def is_result(path: Path) -> bool:
    """Return True if a folder has a manifest of FRED."""
    return bool(manifest_of(path))


def is_free(path: Path) -> bool:
    """Return True if there is neither a result nor the work folder of an interrupted run.

    Args:
        path: the place of the result.
    """
    path = Path(os.path.realpath(path))
    return not any(os.path.lexists(each) for each in (path, _stage(path)))


def title_of(path: Path) -> tuple[str, str]:
    """Return the file and the title of the scenario whose result is at this place; empty if unknown or if there is none."""
    manifest = manifest_of(path)
    scenario = manifest.get("scenario")
    return str(manifest.get("file", "")), str(scenario.get("title", "")) if isinstance(scenario, dict) else ""


def left(path: Path) -> str:
    """Return a sentence that says what an interrupted run has left of the result.

    Args:
        path: the place of the result.
    """
    stage = _stage(Path(os.path.realpath(path)))
    units = len(list(stage.glob("*/seed-*/unit.json"))) if is_marked(stage, UNFINISHED) else 0
    kept = "1 unit is" if units == 1 else f"{units} units are"
    return f"nothing new was written; {kept} kept in {stage} from an earlier run" if units else "nothing was written"


@contextmanager
def said(path: Path) -> Iterator[None]:
    """Turn the OSErrors of a `with` block into FredErrors that name the place."""
    try:
        yield
    except OSError as error:
        raise FredError(f"cannot write {path}: {error.strerror or error}; choose another folder with --out") from error


def _stage(path: Path) -> Path:
    return path.parent / f".{path.name}.unfinished"


def _locked(path: Path) -> tuple[Path, int]:
    """Return the work folder and its lock, which holds as long as this process lives. Raises FredError."""
    stage = _stage(path)
    if stage.is_symlink() or (stage.exists() and not stage.is_dir()):
        raise ownership.not_ours(stage)
    while True:
        lock = _holding(stage, path)
        try:
            ownership.check(stage)
            _recover(path, stage)
            if is_still(lock, stage):
                ownership.cut_links(lock)
                ownership.mark(stage, UNFINISHED)
                return stage, lock
        except BaseException:
            with suppress(OSError):
                stage.rmdir()  # succeeds only if it is still empty
            os.close(lock)
            raise
        os.close(lock)


def _holding(folder: Path, path: Path) -> int:
    lock = held(folder)
    if lock is None:
        raise FredError(f"another run is at work on {path}; wait for it, or choose another folder with --out")
    return lock


def _replace(path: Path, stage: Path) -> None:
    """Replace the old result by the new one, atomically if the system supports it, so that there always is a result."""
    lock = _holding(path, path)  # the lock stays on the old folder when it is renamed
    try:
        ownership.mark(path, REPLACED)
        ownership.share(path, stage)
        old = stage
        if not exchanged(path, stage):
            old = path / _OLD
            path.rename(stage / _OLD)
            try:
                stage.rename(path)
            except BaseException:
                with suppress(OSError):
                    (stage / _OLD).rename(path)
                raise
        _remove(old, path)
    finally:
        os.close(lock)


def _remove(old: Path, path: Path) -> None:
    """Move the user's files from a replaced result into the new one, and remove the rest."""
    ownership.hand_over(old, path)
    for names in ([MANIFEST], []):  # the manifest goes last: it lists FRED's files
        ownership.keep_only(old, names)
    ownership.prune(old)


def _recover(path: Path, stage: Path) -> None:
    """Finish a replacement that was killed halfway. The work folder may be gone afterwards."""
    within = stage / _OLD
    if is_marked(within, REPLACED) and not is_result(path):
        (stage if is_result(stage) else within).rename(path)
    elif is_marked(stage, REPLACED) and not is_result(path):
        stage.rename(path)
    elif is_marked(stage, REPLACED) or is_marked(within, REPLACED):
        _remove(within if is_marked(within, REPLACED) else stage, path)
    elif is_marked(path / _OLD, REPLACED):
        lock = _holding(path, path)
        _remove(path / _OLD, path)
        os.close(lock)
    ownership.unmark(path)
