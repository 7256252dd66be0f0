"""One unit's work, in a folder of its own: it says how far it has got, saves checkpoints, and goes on from the last one."""

import gc
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fred.components import own_code
from fred.errors import FredError
from fred.files.lock import held
from fred.process import environment
from fred.running import checkpoints, stored
from fred.running.execution import Checkpoint, Following, execute
from fred.running.timings import Timings
from fred.running.unit import Unit

AT_WORK = ".at-work"  # folder beside the finished units
_TOLD = "progress"  # file with the fraction done
_EVERY = 0.2  # seconds between two words on progress
_LONG = 100_000  # rows of a schedule from which on what simulated processes leave behind, in cycles, is collected at once
_PATIENCE = 10.0  # seconds, for somebody's process that is about to end


def folder_of(unit: Unit) -> str:
    """Where a unit is worked on."""
    return f"{AT_WORK}/{unit.folder.replace('/', '.')}"


class TakenError(FredError):
    """Another process is at work on this unit."""


def do(
    unit: Unit,
    stage: Path,
    tell: Callable[[float], None] = lambda share: None,
    patience: float = _PATIENCE,
    timings: Timings | None = None,
) -> None:
    """Compute a unit and put what it came to in its place in `stage`, unless it is there; `tell` hears how far it is.

    Raises FredError; TakenError if another process is at it for longer than `patience`, s.

    Args:
        unit: what is to be computed.
        stage: the folder in which a result comes to be; the unit's own is `unit.folder` in it.
        tell: told the fraction done.
        patience: for a process that is about to end, s.
        timings: where its timing is found if another unit had the same; None: it is recorded.

    A checkpoint that an earlier process has left of it is where it goes on from.
    """
    own, place = stage / folder_of(unit), stage / unit.folder
    if stored.holds(unit, place):
        return
    with _alone(own, patience):
        if not stored.holds(unit, place):
            with _leaving_checkpoints_only(own):
                _compute(unit, own, place, tell, timings or Timings())
        shutil.rmtree(own, ignore_errors=True)


def _compute(unit: Unit, own: Path, place: Path, tell: Callable[[float], None], timings: Timings) -> None:
    done = own / "done"
    shutil.rmtree(done, ignore_errors=True)
    done.mkdir()
    (own / _TOLD).write_text("0")
    compute(unit, done, _Diary(unit, own, tell).following(), timings)
    put(done, place)


def compute(unit: Unit, folder: Path, following: Following, timings: Timings) -> None:
    """Compute a unit and write what it came to into an empty folder. Raises FredError.

    Args:
        unit: whose data must still be those that it was made with.
        folder: which is there.
        following: told how far it is.
        timings: where its timing is found if another unit had the same.
    """
    began = time.monotonic()
    outcome = execute(unit.name, unit.run, unit.seed, unit.inline, following, timings)
    if unit.data not in (None, outcome.data_digest):
        raise FredError(f"{unit.folder}: the data are not those with which the run was begun (their digest differs)")
    if changed := {name for name, _ in environment.describe().items() ^ unit.environment.items()}:
        names = ", ".join(sorted(changed))
        raise FredError(
            f"{unit.folder}: {names} changed while it ran; set options of jax's where a module is imported, or before"
        )
    stored.write(outcome, unit, folder, began, timings.files(outcome.schedule))
    if len(outcome.schedule) > _LONG:
        gc.collect()


def put(done: Path, place: Path) -> None:
    """A unit's files take their place.

    Args:
        done: the folder in which they are, on the same file system.
        place: where they will be; what is there is removed.
    """
    place.parent.mkdir(exist_ok=True)
    shutil.rmtree(place, ignore_errors=True)  # of a process whose run was killed, and which lived on for a moment
    done.rename(place)


def progress(stage: Path, unit: Unit) -> float | None:
    """The fraction of a unit that is done; None if nobody is at it.

    Args:
        stage: the folder in which a result comes to be.
        unit: at which another process may be.
    """
    try:
        return float((stage / folder_of(unit) / _TOLD).read_text() or 0)
    except (OSError, ValueError):
        return None


def begun(unit: Unit, stage: Path) -> bool:
    """Whether there is something to go on from."""
    return (stage / folder_of(unit) / checkpoints.FILE).exists()


class _Diary:
    """What a unit writes down while it is worked on."""

    def __init__(self, unit: Unit, folder: Path, tell: Callable[[float], None]):
        self._unit, self._folder, self._listener = unit, folder, tell
        self._told = self._saved = time.monotonic()

    def following(self) -> Following:
        """What `execute` tells, and goes on from."""
        return Following(self._tell, self._save, checkpoints.load(self._folder, self._unit.identity), self._due)

    def _tell(self, fraction: float) -> None:
        self._listener(fraction)
        if time.monotonic() - self._told > _EVERY:
            self._told = time.monotonic()
            (self._folder / _TOLD).write_text(f"{fraction:.4f}")

    def _due(self) -> bool:
        if time.monotonic() - self._saved <= checkpoints.EVERY:
            return False
        return not self._unit.unknown and not (self._unit.own and own_code.late())  # else nobody could go on from it

    def _save(self, checkpoint: Checkpoint) -> None:
        checkpoints.save(self._folder, self._unit.identity, checkpoint)
        self._saved = time.monotonic()


@contextmanager
def _leaving_checkpoints_only(folder: Path) -> Iterator[None]:
    """If it ends early, what is left is what the work can go on from, or nothing."""
    try:
        yield
    except BaseException:
        for found in folder.iterdir():
            if found.is_dir():
                shutil.rmtree(found)
            elif found.name != checkpoints.FILE:
                found.unlink()
        raise


@contextmanager
def _alone(folder: Path, patience: float) -> Iterator[None]:
    """Nobody else works here, as long as this process lives: one whose parent was killed may take a moment to notice."""
    given_up = time.monotonic() + patience
    while (lock := held(folder)) is None:
        if time.monotonic() > given_up:
            raise TakenError(f"another process is still at work in {folder}; wait for it")
        time.sleep(0.1)
    try:
        yield
    finally:
        os.close(lock)
