"""Units on disk: the outcome of one run with one seed, complete, identified by a hash, read in parts on demand.

The folder of a unit is complete when it has `unit.json`, which is written last and lists the digests of the other files. Only
`read_record` reads it.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
import pandas as pd
from pydantic import BaseModel, Field, ValidationError

from fred.base import disk
from fred.base.disk import METRICS, METRICS_TABLE, PARAMS, RUN_TIMES, SCHEDULE, UNIT
from fred.base.errors import FredError
from fred.components import own_code
from fred.outcomes.outcome import ModelOfRun, Named, Outcome
from fred.running.units import Unit
from fred.schedule.schedule import Schedule, intervals_path
from fred.specification.shape import Run
from fred.specification.summary import Summary

FileName = Annotated[str, Field(pattern=r"^[\w-][\w.-]*$")]  # in the unit's own folder
RESTORE = "restore it, or run the scenario again into this folder with `--fresh`"
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, RuntimeError)
_INTERVALS = intervals_path(Path(SCHEDULE)).name
_Content = TypeVar("_Content")


class UnitRecord(BaseModel):
    """The content of unit.json."""

    identity: str
    name: str
    seed: int
    data: str | None  # digest
    summary: Summary
    files: dict[FileName, str]  # SHA-256 of each of the unit's other files
    finished: str  # date and time
    seconds: float  # computing time
    late: str = ""  # a sentence: what the user's code did during the run, so that the identity does not cover it
    digest: str = ""  # of all of this

    def facts(self) -> dict[str, Any]:
        """Return the part that a run writes again; dates, durations and identities may differ."""
        return self.model_dump(include={"name", "seed", "data", "summary", "files"}, exclude_unset=True)

    def signed(self) -> "UnitRecord":
        """Return a copy with the correct digest."""
        covered = json.dumps(self.model_dump(exclude={"digest"}, exclude_unset=True), sort_keys=True)
        return self.model_copy(update={"digest": hashlib.sha256(covered.encode()).hexdigest()})


@dataclass(frozen=True, repr=False)
class Stored(ModelOfRun):
    """The outcome of one run with one seed on disk, an `Outcome`; each part is read on demand."""

    folder: Path
    run: Run
    record: UnitRecord
    _tables: dict[str, pd.DataFrame] = field(default_factory=dict, compare=False)  # the evaluations, once they are read

    @property
    def name(self) -> str:
        """Return the run's name."""
        return self.record.name

    @property
    def seed(self) -> int:
        """Return the run's seed."""
        return self.record.seed

    @property
    def has_clock(self) -> bool:
        """Return True if virtual time passes in the run."""
        return RUN_TIMES in self.record.files

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Return the row of summary.json."""
        return self.record.summary.model_dump(exclude_unset=True)

    @property
    def data_digest(self) -> str | None:
        """Return the SHA-256 of the data."""
        return self.record.data

    @property
    def schedule_digest(self) -> str:
        """Return the SHA-256 of the schedule, as written."""
        return self.record.summary.digests.schedule

    @property
    def params_digest(self) -> str | None:
        """Return the SHA-256 of the final parameters, as written."""
        return self.record.summary.digests.params

    @property
    def schedule(self) -> Schedule:
        """Return the schedule. Raises FredError for a changed file, as do the others."""
        return self._read(Schedule.load, SCHEDULE, _INTERVALS)

    @property
    def metrics(self) -> pd.DataFrame:
        """Return one row per evaluation point."""
        return self._read(self._table, METRICS).copy()

    @property
    def run_times(self) -> pd.DataFrame:
        """Return the compute time of each gradient."""
        return self._read(pd.read_parquet, RUN_TIMES)

    @property
    def initial(self) -> Named:
        """Return the initial parameters; with the number of the replica if replicas start apart."""
        return self._params("initial/")

    @property
    def final(self) -> Named:
        """Return the parameters after the last update."""
        return self._params("final/")

    def renamed(self, name: str) -> "Stored":
        """Return the same outcome under another name."""
        summary = self.record.summary.model_copy(update={"name": name})
        return replace(self, record=self.record.model_copy(update={"name": name, "summary": summary}))

    def _params(self, when: str) -> Named:
        if PARAMS not in self.record.files:
            return {}
        named = self._read(partial(disk.arrays, kinds=disk.ANY_NUMBER), PARAMS)
        return {name.removeprefix(when): array for name, array in named.items() if name.startswith(when)}

    def _table(self, file: Path) -> pd.DataFrame:
        """Return a table, from memory if it was read before: a result's figures and page read evaluations eight times."""
        if file.name not in self._tables:
            self._tables[file.name] = pd.read_parquet(file)
        return self._tables[file.name]

    def _read(self, read: Callable[[Path], _Content], *names: str) -> _Content:
        """Return the content of the first of these files. Raises FredError if one of them has changed, or is unreadable."""
        files = [self.folder / name for name in names]
        try:
            for file in files:
                if not file.exists():
                    raise FredError(f"{file} is missing: {RESTORE}")
                if disk.digest(file) != self.record.files[file.name]:
                    reload = "load the result again if a later run wrote it"
                    raise FredError(f"{file} has changed (its digest differs): {reload}, otherwise {RESTORE}")
            return read(files[0])
        except _UNREADABLE as error:
            raise FredError(f"cannot read {' and '.join(map(str, files))}: {error}; {RESTORE}") from error


def write_timing(schedule: Schedule, run_times: pd.DataFrame | None, folder: Path) -> None:
    """Write the files that depend on timing only, and are the same for all units with this timing.

    Args:
        schedule: the timing.
        run_times: compute time of each gradient; None without a clock.
        folder: the folder to write to.
    """
    schedule.save(folder / SCHEDULE)
    if run_times is not None:
        run_times.to_parquet(folder / RUN_TIMES, index=False)


def write(outcome: Outcome, unit: Unit, folder: Path, began: float, timing: dict[str, Path] | None = None) -> None:
    """Write the unit's files; unit.json, which completes the unit, is the last.

    Args:
        outcome: outcome of the run.
        unit: the unit; its identity is recorded.
        folder: an empty folder.
        began: start of the computation on the monotonic clock, s.
        timing: files of its schedule from `write_timing`, by name: they are linked; None: there are none.
    """
    if timing is None:
        write_timing(outcome.schedule, outcome.run_times if outcome.has_clock else None, folder)
    else:
        for name, file in timing.items():
            link(file, folder / name)
    outcome.metrics.to_parquet(folder / METRICS, index=False)
    outcome.metrics.to_csv(folder / METRICS_TABLE, index=False)
    if outcome.final:
        arrays = {f"{when}/{path}": array for when in ("initial", "final") for path, array in getattr(outcome, when).items()}
        np.savez(folder / PARAMS, allow_pickle=False, **arrays)
    record = UnitRecord(
        identity=unit.identity,
        name=unit.name,
        seed=unit.seed,
        data=outcome.data_digest,
        summary=outcome.summary,
        files={file.name: disk.digest(file) for file in sorted(folder.iterdir())},
        finished=date(),
        seconds=round(time.monotonic() - began, 3),
        late=own_code.late_change() if unit.has_own_classes else "",
    )
    write_json(folder / UNIT, record.signed().model_dump(exclude_unset=True))


def load(folder: Path, run: Run) -> Stored:
    """Return the outcome that `write` wrote. Raises FredError if there is none.

    Args:
        folder: folder of a unit.
        run: specification of the run, which the folder does not contain. Tables and arrays are read on demand.
    """
    try:
        record = read_record(folder)
    except ValidationError as error:  # its own text quotes the file
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise FredError(f"{folder} is not the folder of a whole run: {UNIT}: {where}: {first['msg']}") from None
    except FredError as error:
        raise FredError(f"{folder} is not the folder of a whole run: {error}") from None
    if record != record.signed():
        raise FredError(f"{folder / UNIT} is not what was written (its digest differs): {RESTORE}")
    return Stored(folder, run, record)


def read_record(folder: Path) -> UnitRecord:
    """Return the content of a unit's unit.json. Raises FredError, or pydantic's ValidationError."""
    return UnitRecord.model_validate_json(disk.text(folder / UNIT))


def find_unchecked(unit: Unit, folder: Path) -> Stored | None:
    """Return this unit's outcome, if it has been written there; only unit.json is read, so other files may have changed."""
    try:
        outcome = load(folder, unit.run)
    except FredError:
        return None
    return outcome if outcome.record.identity == unit.identity else None


def find_reusable(unit: Unit, folder: Path) -> tuple[Stored | None, str]:
    """Return this unit's outcome, if it is there, unchanged, and would be the same again; else the reason against it.

    All its files are read. The reason is empty if nothing is there, or the outcome of a unit with another identity.
    """
    try:
        outcome = load(folder, unit.run)
    except FredError:
        return None, "the stored result is damaged" if (folder / UNIT).exists() else ""
    record = outcome.record
    if unit.unknown or record.identity != unit.identity:
        return None, unit.unknown
    if record.late:
        return None, record.late
    files = {folder / name: digest for name, digest in record.files.items()}
    unchanged = all(file.is_file() and disk.digest(file) == digest for file, digest in files.items())
    return (outcome, "") if unchanged else (None, "the stored result is damaged")


def link_unit(outcome: Stored, folder: Path) -> Stored:
    """Return the outcome in another folder, which gets links to its files.

    Args:
        outcome: a unit on disk.
        folder: the other folder; an existing one is replaced.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in (*outcome.record.files, UNIT):
        link(outcome.folder / name, folder / name)
    return replace(outcome, folder=folder)


def share(units: Sequence[Stored]) -> None:
    """Replace equal files of several units by hard links, if the file system supports them.

    Args:
        units: units whose files are as written.
    """
    originals = dict[str, Path]()
    for file, digest in ((unit.folder / name, digest) for unit in units for name, digest in unit.record.files.items()):
        original = originals.setdefault(digest, file)
        if not file.samefile(original):
            spare = file.with_name(f".{file.name}")
            spare.unlink(missing_ok=True)
            with suppress(OSError):
                os.link(original, spare)
                spare.replace(file)


def link(file: Path, name: Path) -> None:
    """Make a hard link to a file, if the file system supports them; else a copy.

    Args:
        file: a file that never changes.
        name: path of the link, where nothing exists yet.
    """
    try:
        os.link(file, name)
    except OSError:
        shutil.copy2(file, name)


def write_json(path: Path, content: Any) -> None:
    """Write JSON that people can read; NaN raises ValueError."""
    path.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def date() -> str:
    """Return date and time, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
