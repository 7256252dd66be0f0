"""Units on disk: the outcome of one run with one seed, complete, identified by a hash, read in parts on demand, and checked.

The folder of a unit is complete when it has `unit.json`, which is written last and lists the digests of the other files. Only
`read_record` reads it.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from zipfile import BadZipFile

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetPydanticSchema, ValidationError
from pydantic_core import CoreSchema, core_schema

from fred.base import disk
from fred.base.disk import METRICS, METRICS_TABLE, PARAMS, RUN_TIMES, SCHEDULE, UNIT
from fred.base.errors import FredError
from fred.cluster.costs import COLUMNS
from fred.components import own_code
from fred.components.input_path import UnreadError
from fred.outcomes.outcome import ModelOfRun, Named, Outcome
from fred.running.units import Unit
from fred.schedule.bounds import check_bounds
from fred.schedule.layout import Layout
from fred.schedule.schedule import Schedule
from fred.specification.shape import Run
from fred.specification.summary import Summary

_COUNTS = ("updates", "gradients")
_MEASURED = ("loss", "error")
_MOST = 1 << 62


def _as_it_was(source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
    """Return a schema that checks a mapping as a `Summary`, but leaves it a mapping."""
    back = core_schema.plain_serializer_function_ser_schema(lambda row: row)
    return core_schema.no_info_after_validator_function(
        lambda row: row.model_dump(exclude_unset=True), handler(Summary), serialization=back
    )


Row = Annotated[dict[str, Any], GetPydanticSchema(_as_it_was)]


def schedule(file: Path, run: Run) -> Schedule:
    """Return the schedule in a file. Raises ValueError or a similar error if no such run can have written it.

    Args:
        file: file of the rows; intervals have their own file.
        run: its cluster and protocol determine the valid content.
    """
    loaded = Schedule.load(file)
    try:
        layout = run.protocol.layout(run.cluster)
    except UnreadError:  # the protocol is the user's own, and was not imported
        layout = Layout(loaded.replicas, range(loaded.replicas), loaded.on_servers, loaded.blocks)
    check_bounds(loaded, run.cluster.size, run.cluster.servers, layout)
    return loaded


def metrics(file: Path, run: Run) -> pd.DataFrame:
    """Return the evaluations in a file. Raises ValueError or a similar error if no such run can have written them.

    Args:
        file: a table.
        run: its task and options determine the columns.
    """
    frame = pd.read_parquet(file)
    norm = ("gradient_norm",) if run.evaluate.measures_gradient_norm else ()
    prices = run.cluster.prices
    spent = () if prices is None else COLUMNS if prices.have_power else COLUMNS[:1]
    _check(frame, _COUNTS, ("virtual_seconds", *(_MEASURED if run.task else ()), *norm, *spent))
    if frame.empty:
        raise ValueError("it has no rows")
    seconds = frame["virtual_seconds"]
    if _has_clock(run, seconds) and not (np.isfinite(seconds).all() and (np.diff(seconds, prepend=0.0) >= 0).all()):
        raise ValueError("column `virtual_seconds` does not hold times in order")
    return frame


def _has_clock(run: Run, seconds: pd.Series) -> bool:
    try:
        return run.protocol.has_clock
    except UnreadError:
        return bool(seconds.notna().any())


def run_times(file: Path, run: Run) -> pd.DataFrame:
    """Return the gradients' compute times in a file. Raises ValueError or a similar error if no such run can have written them.

    Args:
        file: a table.
        run: its cluster determines the workers.
    """
    frame = pd.read_parquet(file)
    _check(frame, ("iteration", "worker", "node"), ("seconds",))
    if (frame["worker"] >= run.cluster.size).any() or not np.isfinite(frame["seconds"]).all():
        raise ValueError(f"it does not hold times of workers 0 to {run.cluster.size - 1}")
    return frame


def params(file: Path, run: Run) -> Named:
    """Return the parameters in a file. Raises FredError for anything except numbers."""
    return disk.arrays(file, disk.ANY_NUMBER)


def _check(frame: pd.DataFrame, counts: tuple[str, ...], numbers: tuple[str, ...]) -> None:
    """Raise ValueError unless a table has these columns, and only numeric ones."""
    for name in (*counts, *numbers, *frame):
        if name not in frame:
            raise ValueError(f"it has no column `{name}`")
        kind = frame[name].dtype
        if kind != np.int64 and (kind != np.float64 or name in counts):
            raise ValueError(f"column `{name}` holds {kind}; expected {'int64' if name in counts else 'numbers'}")
        if name in counts and not frame[name].between(0, _MOST).all():
            raise ValueError(f"column `{name}` does not hold counts")


FileName = Annotated[str, Field(pattern=r"^[\w-][\w.-]*$")]  # in the unit's own folder
RESTORE = "restore it, or run the scenario again into this folder with `--fresh`"
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, EOFError, RuntimeError, NotImplementedError, BadZipFile)


class UnitRecord(BaseModel):
    """The content of unit.json."""

    model_config = ConfigDict(allow_inf_nan=False)

    identity: str
    name: str
    seed: int
    data: str | None  # digest
    summary: Row  # the row of summary.json
    files: dict[FileName, str]  # SHA-256 of each of the unit's other files
    finished: str  # date and time
    seconds: float  # computing time
    late: str = ""  # a sentence: what the user's code did during the run, so that the identity does not cover it
    digest: str = ""  # of all of this

    def facts(self) -> dict[str, Any]:
        """Return the part that a run writes again; dates, durations and identities may differ."""
        return self.model_dump(include={"name", "seed", "data", "summary", "files"})

    def signed(self) -> "UnitRecord":
        """Return a copy with the correct digest."""
        covered = json.dumps(self.model_dump(exclude={"digest"}), sort_keys=True)
        return self.model_copy(update={"digest": hashlib.sha256(covered.encode()).hexdigest()})


@dataclass(frozen=True, repr=False)
class Stored(ModelOfRun):
    """The outcome of one run with one seed on disk, an `Outcome`; each part is read on demand."""

    folder: Path
    run: Run
    record: UnitRecord
    _tables: dict[int, pd.DataFrame] = field(default_factory=dict, compare=False)  # the evaluations, by the file's time

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

    @property
    def summary(self) -> dict[str, Any]:
        """Return the row of summary.json."""
        return self.record.summary

    @property
    def data_digest(self) -> str | None:
        """Return the SHA-256 of the data."""
        return self.record.data

    @property
    def schedule_digest(self) -> str:
        """Return the SHA-256 of the schedule, as written."""
        return str(self.summary["digests"]["schedule"])

    @property
    def params_digest(self) -> str | None:
        """Return the SHA-256 of the final parameters, as written."""
        digest: str | None = self.summary["digests"]["params"]
        return digest

    @property
    def schedule(self) -> Schedule:
        """Return the schedule. Raises FredError for a damaged file, as do the others."""
        return self._content(SCHEDULE, schedule)

    @property
    def metrics(self) -> pd.DataFrame:
        """Return one row per evaluation point."""
        return self._content(METRICS, self._metrics)

    @property
    def run_times(self) -> pd.DataFrame:
        """Return the compute time of each gradient."""
        return self._content(RUN_TIMES, run_times)

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
        changed = {"name": name, "summary": self.summary | {"name": name}}
        return replace(self, record=self.record.model_copy(update=changed))

    def _params(self, when: str) -> Named:
        if PARAMS not in self.record.files:
            return {}
        named = self._content(PARAMS, params)
        return {name.removeprefix(when): array for name, array in named.items() if name.startswith(when)}

    def _metrics(self, file: Path, run: Run) -> pd.DataFrame:
        """Return the evaluations in a file. A result's figures and page read them eight times, half a second for 18 units."""
        if (time_ns := file.stat().st_mtime_ns) not in self._tables:
            self._tables.clear()
            self._tables[time_ns] = metrics(file, run)
        return self._tables[time_ns].copy()

    def _content(self, name: str, read: Any) -> Any:
        """Return the content of one file. Raises FredError if it is unreadable, or another run has replaced this one."""
        try:
            if read_record(self.folder).files.get(name) != self.record.files.get(name):
                raise FredError(f"{self.folder} holds another result now; load it again")
            return read(self.folder / name, self.run)
        except _UNREADABLE as error:
            raise FredError(f"cannot read {self.folder / name}: {error}") from error


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
    write_json(folder / UNIT, record.signed().model_dump())


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
    if (record.summary["name"], record.summary["seed"]) != (record.name, record.seed):
        raise FredError(f"{folder} is not the folder of a whole run: {UNIT}: `summary` is that of another run")
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
