"""The computation of one unit in its own folder: it reports progress, saves checkpoints, and resumes from the last one."""

import gc
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fred.base import environment
from fred.base.errors import FredError
from fred.base.lock import held
from fred.components import own_code
from fred.running import checkpoints, stored
from fred.running.checkpoints import Checkpoint, Following
from fred.running.execution import execute
from fred.running.timings import Timings
from fred.running.unit import Unit

AT_WORK = ".at-work"  # folder next to the finished units
_TOLD = "progress"  # file with the fraction done
_EVERY = 0.2  # seconds between two progress reports
_LONG = 100_000  # rows of a schedule from which on the garbage of simulated processes (in cycles) is collected at once
_PATIENCE = 10.0  # seconds to wait for another process that is about to end


def folder_of(unit: Unit) -> str:
    """Return the working folder of a unit."""
    return f"{AT_WORK}/{unit.folder.replace('/', '.')}"


class TakenError(FredError):
    """An error: another process is computing this unit."""


def do(
    unit: Unit,
    stage: Path,
    tell: Callable[[float], None] = lambda share: None,
    patience: float = _PATIENCE,
    timings: Timings | None = None,
    cores: int = 1,
) -> None:
    """Compute a unit, from its last checkpoint on, and move its outcome to its place in `stage`, unless it is there.

    Raises FredError; TakenError if another process computes it for longer than `patience`, s.

    Args:
        unit: unit to compute.
        stage: the unfinished result folder; the unit's own folder in it is `unit.folder`.
        tell: called with the fraction done.
        patience: time to wait for another process that is about to end, s.
        timings: cache of schedules, for units with the same timing; None: the schedule is recorded.
        cores: largest number of processes for this unit.
    """
    own, place = stage / folder_of(unit), stage / unit.folder
    if stored.holds(unit, place):
        return
    with _alone(own, patience):
        if not stored.holds(unit, place):
            with _leaving_checkpoints_only(own):
                _compute(unit, own, place, tell, timings or Timings(), cores)
        shutil.rmtree(own, ignore_errors=True)


def _compute(unit: Unit, own: Path, place: Path, tell: Callable[[float], None], timings: Timings, cores: int) -> None:
    done = own / "done"
    shutil.rmtree(done, ignore_errors=True)
    done.mkdir()
    (own / _TOLD).write_text("0")
    compute(unit, done, _Diary(unit, own, tell).following(), timings, cores)
    put(done, place)


def compute(unit: Unit, folder: Path, following: Following, timings: Timings, cores: int = 1) -> None:
    """Compute a unit and write its outcome to an empty folder. Raises FredError.

    Args:
        unit: unit to compute; its data must not have changed since it was made.
        folder: an existing empty folder.
        following: callbacks for progress and checkpoints.
        timings: cache of schedules, for units with the same timing.
        cores: largest number of processes for this unit; one if others may know other versions of the user's code.
    """
    began = time.monotonic()
    outcome = execute(unit.name, unit.run, unit.seed, unit.inline, following, timings, 1 if unit.unknown else cores)
    if unit.data not in (None, outcome.data_digest):
        raise FredError(f"{unit.folder}: the data have changed since the run began (their digest differs); run it again")
    if changed := {name for name, _ in environment.describe().items() ^ unit.environment.items()}:
        names = ", ".join(sorted(changed))
        raise FredError(
            f"{unit.folder}: {names} changed while it ran; set options of JAX when a module is imported, or earlier"
        )
    stored.write(outcome, unit, folder, began, timings.files(outcome.schedule))
    if len(outcome.schedule) > _LONG:
        gc.collect()


def put(done: Path, place: Path) -> None:
    """Move a unit's files to their place.

    Args:
        done: the folder that holds them, on the same file system.
        place: the new folder; an existing one is removed.
    """
    place.parent.mkdir(exist_ok=True)
    shutil.rmtree(place, ignore_errors=True)  # of a process that outlived its killed run for a moment
    done.rename(place)


def progress(stage: Path, unit: Unit) -> float | None:
    """Return the fraction of a unit that is done; None if no process is computing it.

    Args:
        stage: the unfinished result folder.
        unit: a unit that another process may be computing.
    """
    try:
        return float((stage / folder_of(unit) / _TOLD).read_text() or 0)
    except (OSError, ValueError):
        return None


def begun(unit: Unit, stage: Path) -> bool:
    """Return True if there is a checkpoint to resume from."""
    return (stage / folder_of(unit) / checkpoints.FILE).exists()


class _Diary:
    """The reports of a unit during its computation."""

    def __init__(self, unit: Unit, folder: Path, tell: Callable[[float], None]):
        self._unit, self._folder, self._listener = unit, folder, tell
        self._told = self._saved = time.monotonic()

    def following(self) -> Following:
        """Return the callbacks for `execute`, and the checkpoint from which it resumes."""
        return Following(self._tell, self._save, checkpoints.load(self._folder, self._unit.identity), self._due)

    def _tell(self, fraction: float) -> None:
        self._listener(fraction)
        if time.monotonic() - self._told > _EVERY:
            self._told = time.monotonic()
            (self._folder / _TOLD).write_text(f"{fraction:.4f}")

    def _due(self) -> bool:
        if time.monotonic() - self._saved <= checkpoints.EVERY:
            return False
        return not self._unit.unknown and not (self._unit.own and own_code.late())  # otherwise no process could resume from it

    def _save(self, checkpoint: Checkpoint) -> None:
        checkpoints.save(self._folder, self._unit.identity, checkpoint)
        self._saved = time.monotonic()


@contextmanager
def _leaving_checkpoints_only(folder: Path) -> Iterator[None]:
    """Delete everything except a checkpoint if the work fails."""
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
    """Keep other processes out of this folder. One whose parent was killed may take a moment to end: wait for it."""
    deadline = time.monotonic() + patience
    while (lock := held(folder)) is None:
        if time.monotonic() > deadline:
            raise TakenError(f"another process is still at work in {folder}; wait for it")
        time.sleep(0.1)
    try:
        yield
    finally:
        os.close(lock)
