"""Timings shared by units: a timing is recorded once, lowered once, and stored once.

Units that differ only in their learning rate have the same schedule. Each process has its last timing and its program in
memory, one of each, so that memory does not grow. Therefore units are computed timing by timing (`in_order`). In the unfinished
result folder, every timing has a folder of its own, from which other processes read it; its lock makes them wait while one
records it. Units' files are hard links to the files there. A timing with the user's own classes is recorded for every unit,
because their code may depend on other facts.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fred.base import disk
from fred.base.disk import SCHEDULE
from fred.base.errors import FredError
from fred.base.staging import locked
from fred.components.component import own_classes
from fred.outcomes.outcome import run_times
from fred.replay.lower import lower
from fred.replay.phases import Program
from fred.running import stored
from fred.running.recording import Recording, Timing
from fred.running.units import Unit, circumstances
from fred.schedule.schedule import Ints, Schedule

if TYPE_CHECKING:  # it imports jax
    from fred.replay.arithmetic import Arithmetic

_LIST = "files.json"  # written last: the digests of a timing's files


def in_order(units: Sequence[Unit]) -> list[Unit]:
    """Return the units grouped by timing, in the order in which the first of each group comes."""
    first: dict[Timing, int] = {}
    places = [first.setdefault(Timing.of(unit.run, unit.seed), place) for place, unit in enumerate(units)]
    return [units[place] for place in sorted(range(len(units)), key=lambda place: places[place])]


class Timings:
    """The last timing of this process, with its program; and all timings on disk, if there is a folder.

    Args:
        folder: folder of timings, for other processes and for units' files; None: timings are not stored.
    """

    def __init__(self, folder: Path | None = None):
        self._folder = folder
        self._timing: Timing | None = None
        self._schedule: Schedule | None = None
        self._place: Path | None = None
        self._program: tuple[object, Program] | None = None

    def schedule(self, recording: Recording) -> Schedule:
        """Return the schedule of the whole run; record it unless it is cached.

        Args:
            recording: recording of the run, with its seed.
        """
        timing = recording.timing
        if self._schedule is None or timing != self._timing:
            self._timing = self._schedule = self._place = self._program = None  # freed before the next one exists
            if own_classes(timing.cluster) or own_classes(timing.protocol):
                return timing.schedule()
            self._schedule = self._stored_schedule(timing)
            self._timing = timing
        return self._schedule

    def program(self, schedule: Schedule, marks: Ints, arithmetic: "Arithmetic") -> Program:
        """Return the program that the replay executes.

        Args:
            schedule: the schedule.
            marks: rows before which the state is read.
            arithmetic: arithmetic of the run; its blocks and hooks, and whether gradients are small, are used.
        """
        groups, hooks, is_small = arithmetic.blocks.group_of_each, arithmetic.hooks, arithmetic.stores_gradients
        key = marks.tobytes(), groups, hooks, is_small
        if schedule is not self._schedule:
            return lower(schedule, marks, groups, hooks, turns=is_small)
        if self._program is None or self._program[0] != key:
            self._program = None
            self._program = key, lower(schedule, marks, groups, hooks, turns=is_small)
        return self._program[1]

    def files(self, schedule: Schedule) -> dict[str, Path] | None:
        """Return the timing's files by name, if `schedule` belongs to it and they are stored."""
        if self._place is None or schedule is not self._schedule:
            return None
        return {name: self._place / name for name in _intact_files(self._place)} or None

    def _stored_schedule(self, timing: Timing) -> Schedule:
        """Return the schedule of a timing, from its folder if another process has recorded it."""
        if self._folder is None:
            return timing.schedule()
        facts = json.dumps([timing.described(), circumstances(has_own_classes=False)], sort_keys=True)
        self._place = self._folder / hashlib.sha256(facts.encode()).hexdigest()
        with locked(self._place):
            if _intact_files(self._place):
                return Schedule.load(self._place / SCHEDULE)
            schedule = timing.schedule()
            _write(schedule, timing, self._place)
        return schedule


def _intact_files(place: Path) -> list[str]:
    """Return the names of the files there if they are as written; else none."""
    try:
        digests = json.loads(disk.text(place / _LIST))
        return list(digests) if all(disk.digest(place / name) == digest for name, digest in digests.items()) else []
    except (FredError, OSError, ValueError):
        return []


def _write(schedule: Schedule, timing: Timing, place: Path) -> None:
    for file in place.iterdir():
        file.unlink()
    stored.write_timing(schedule, run_times(schedule, timing.cluster) if timing.protocol.has_clock else None, place)
    stored.write_json(place / _LIST, {file.name: disk.digest(file) for file in place.iterdir()})
