"""Where a result comes to be: in a folder beside its place, which takes the place in the end and outlives an interruption."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fred.errors import FredError
from fred.files import ownership
from fred.files.contents import MANIFEST
from fred.files.exchange import exchanged
from fred.files.lock import held, is_still
from fred.files.ownership import REPLACED, UNFINISHED, is_marked, manifest_of
from fred.process import interruption

_OLD = ".fred-old"  # in the new folder: the old one, where two folders cannot exchange their names


@contextmanager
def opened(path: Path) -> Iterator[Path]:
    """The folder in which the result at `path` comes to be, with whatever an interrupted run has left there.

    Nobody else gets it meanwhile. If nothing is in it at the end, it vanishes. Raises FredError for a place that cannot be
    written, where anything but a result of FRED's lies, or at which somebody else is at work.

    Args:
        path: where the result will be. The folder lies beside it, as `.NAME.unfinished`.
    """
    interruption.begun()
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
    """The complete folder takes its place, with the files that somebody else has put into the old one.

    Args:
        stage: the folder that `opened` gave, with a manifest in it.
        path: its place; a result that is there is replaced in one step, where the system has such a step.
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
    """Whoever stands in the place is in the new folder of the same name afterwards, not in the old one that is gone."""
    try:
        here = Path.cwd()
    except FileNotFoundError:  # a folder that is gone already
        here = Path()
    yield
    if not here.samefile(os.curdir):
        os.chdir(here)


def check_free(path: Path) -> None:
    """Refuse a place where the folder cannot be written, or where anything but a result of FRED's lies. Raises FredError."""
    with said(path):
        path = Path(os.path.realpath(path))
        if path.exists() and not is_result(path) and (not path.is_dir() or any(path.iterdir())):
            raise FredError(f"{path} exists and is not a result folder; choose another with --out, or remove it")
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        there = next(folder for folder in path.parents if folder.exists())
        with suppress(FileNotFoundError):
            (there / _stage(path).name).lstat()  # which is how a name that is too long is found out
        with tempfile.TemporaryFile(dir=there):
            pass


def is_result(path: Path) -> bool:
    """Whether a folder has a manifest of FRED's."""
    return bool(manifest_of(path))


def is_free(path: Path) -> bool:
    """Whether neither a result nor an interrupted run has left anything at a place.

    Args:
        path: the place.
    """
    path = Path(os.path.realpath(path))
    return not any(os.path.lexists(each) for each in (path, _stage(path)))


def title_of(path: Path) -> tuple[str, str]:
    """Which scenario's result lies there: its file, as far as that is recorded, and its title; empty where none does."""
    manifest = manifest_of(path)
    scenario = manifest.get("scenario")
    return str(manifest.get("file", "")), str(scenario.get("title", "")) if isinstance(scenario, dict) else ""


def left(path: Path) -> str:
    """What an interrupted run has left of the result that was to be at `path`, in words."""
    stage = _stage(Path(os.path.realpath(path)))
    units = len(list(stage.glob("*/seed-*/unit.json"))) if is_marked(stage, UNFINISHED) else 0
    kept = "1 unit is" if units == 1 else f"{units} units are"
    return f"nothing new was written; {kept} kept in {stage} from an earlier run" if units else "nothing was written"


@contextmanager
def said(path: Path) -> Iterator[None]:
    """The system's objections to a place as FredErrors."""
    try:
        yield
    except OSError as error:
        raise FredError(f"cannot write {path}: {error.strerror or error}; choose another folder with --out") from error


def _stage(path: Path) -> Path:
    return path.parent / f".{path.name}.unfinished"


def _locked(path: Path) -> tuple[Path, int]:
    """The folder beside the place, and what holds it as long as this process lives."""
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
                stage.rmdir()  # if it is as empty as it was made
            os.close(lock)
            raise
        os.close(lock)


def _holding(folder: Path, path: Path) -> int:
    lock = held(folder)
    if lock is None:
        raise FredError(f"another run is at work on {path}; wait for it, or choose another folder with --out")
    return lock


def _replace(path: Path, stage: Path) -> None:
    """The new result takes the old one's place: in one step, so that there always is one, where the system has such a step."""
    lock = _holding(path, path)  # so that it is held under its other name, too
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
    """What others have put into a replaced result goes into the new one; the rest vanishes."""
    ownership.hand_over(old, path)
    for names in ([MANIFEST], []):  # the list of what is FRED's to the last
        ownership.keep_only(old, names)
    ownership.prune(old)


def _recover(path: Path, stage: Path) -> None:
    """Finish a replacement in whose middle somebody was killed; the folder beside the place may be gone afterwards."""
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
