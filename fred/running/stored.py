"""Outcomes on disk: one run with one seed, complete, identified by a hash, and read in parts on demand."""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from zipfile import BadZipFile

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fred.base import inputs
from fred.base.errors import FredError
from fred.components import own_code
from fred.outcomes.outcome import ModelOfRun, Named, Outcome
from fred.running import unit_checks
from fred.running.unit import Unit
from fred.schedule.schedule import Schedule
from fred.specification.shape import Run

FileName = Annotated[str, Field(pattern=r"^[\w-][\w.-]*$")]  # in the unit's own folder
RESTORE = "restore it, or run the scenario again into this folder with `--fresh`"
ABOUT = "unit.json"  # written last, so that a folder with this file is complete
SCHEDULE, RUN_TIMES = "schedule.parquet", "run-times.parquet"
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, EOFError, RuntimeError, NotImplementedError, BadZipFile)


class AboutUnit(BaseModel):
    """The content of unit.json."""

    model_config = ConfigDict(allow_inf_nan=False)

    identity: str
    name: str
    seed: int
    data: str | None  # digest
    summary: unit_checks.Row  # the row of summary.json
    files: dict[FileName, str]  # SHA-256 of each of the unit's other files
    finished: str  # date and time
    seconds: float  # computing time
    late: str = ""  # actions of the user's code during the run that the identity does not cover
    digest: str = ""  # of all of this

    def signed(self) -> "AboutUnit":
        """Return a copy with the correct digest."""
        covered = json.dumps(self.model_dump(exclude={"digest"}), sort_keys=True)
        return self.model_copy(update={"digest": hashlib.sha256(covered.encode()).hexdigest()})


@dataclass(frozen=True, repr=False)
class Stored(ModelOfRun):
    """The outcome of one run with one seed on disk, an `Outcome`; each part is read on demand."""

    folder: Path
    run: Run
    about: AboutUnit

    @property
    def name(self) -> str:
        """Return the run's name."""
        return self.about.name

    @property
    def seed(self) -> int:
        """Return the run's seed."""
        return self.about.seed

    @property
    def has_clock(self) -> bool:
        """Return True if virtual time passes in the run."""
        return RUN_TIMES in self.about.files

    @property
    def summary(self) -> dict[str, Any]:
        """Return the row of summary.json."""
        return self.about.summary

    @property
    def data_digest(self) -> str | None:
        """Return the SHA-256 of the data."""
        return self.about.data

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
        return self._read(SCHEDULE, unit_checks.schedule)

    @property
    def metrics(self) -> pd.DataFrame:
        """Return one row per evaluation point."""
        return self._read("metrics.parquet", unit_checks.metrics)

    @property
    def run_times(self) -> pd.DataFrame:
        """Return the compute time of each gradient."""
        return self._read(RUN_TIMES, unit_checks.run_times)

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
        return replace(self, about=self.about.model_copy(update=changed))

    def _params(self, when: str) -> Named:
        if "params.npz" not in self.about.files:
            return {}
        named = self._read("params.npz", unit_checks.params)
        return {name.removeprefix(when): array for name, array in named.items() if name.startswith(when)}

    def _read(self, name: str, read: Any) -> Any:
        """Return the content of one file. Raises FredError if it is unreadable, or another run has replaced this one."""
        try:
            there = AboutUnit.model_validate_json(inputs.text(self.folder / ABOUT))
            if there.files.get(name) != self.about.files.get(name):
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
    outcome.metrics.to_parquet(folder / "metrics.parquet", index=False)
    outcome.metrics.to_csv(folder / "metrics.csv", index=False)
    if outcome.final:
        arrays = {f"{when}/{path}": array for when in ("initial", "final") for path, array in getattr(outcome, when).items()}
        np.savez(folder / "params.npz", allow_pickle=False, **arrays)
    about = AboutUnit(
        identity=unit.identity,
        name=unit.name,
        seed=unit.seed,
        data=outcome.data_digest,
        summary=outcome.summary,
        files={file.name: inputs.digest(file) for file in sorted(folder.iterdir())},
        finished=now(),
        seconds=round(time.monotonic() - began, 3),
        late=own_code.late() if unit.own else "",
    )
    write_json(folder / ABOUT, about.signed().model_dump())


def read(folder: Path, run: Run) -> Stored:
    """Return the outcome that `write` wrote. Raises FredError if there is none.

    Args:
        folder: folder of a unit.
        run: specification of the run, which the folder does not contain. Tables and arrays are read on demand.
    """
    try:
        about = AboutUnit.model_validate_json(inputs.text(folder / ABOUT))
    except ValidationError as error:  # its own text quotes the file
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise FredError(f"{folder} is not the folder of a whole run: {ABOUT}: {where}: {first['msg']}") from None
    except FredError as error:
        raise FredError(f"{folder} is not the folder of a whole run: {error}") from None
    if (about.summary["name"], about.summary["seed"]) != (about.name, about.seed):
        raise FredError(f"{folder} is not the folder of a whole run: {ABOUT}: `summary` is that of another run")
    if about != about.signed():
        raise FredError(f"{folder / ABOUT} is not what was written (its digest differs): {RESTORE}")
    return Stored(folder, run, about)


def holds(unit: Unit, folder: Path) -> bool:
    """Return True if this unit's outcome has been written there."""
    return _found(unit, folder) is not None


def lasting(unit: Unit, folder: Path) -> bool:
    """Return True if this unit's outcome is there, and another process will recognize it."""
    found = _found(unit, folder)
    return found is not None and not (found.about.late or unit.unknown)


def whole(unit: Unit, folder: Path) -> Stored | None:
    """Return this unit's outcome, if it is there, unchanged, and would be the same again; else None."""
    found = _found(unit, folder)
    return found if found and not found.about.late and _unchanged(found) else None


def objection(unit: Unit, folder: Path) -> str:
    """Return why a folder that seems to hold this unit's outcome cannot be reused; empty if it can, or holds none."""
    try:
        found = read(folder, unit.run)
    except FredError:
        return "the stored result is damaged" if (folder / ABOUT).exists() else ""
    if unit.unknown or found.about.identity != unit.identity:
        return unit.unknown
    return found.about.late or ("" if _unchanged(found) else "the stored result is damaged")


def _unchanged(found: Stored) -> bool:
    """Return True if its files are as written."""
    files = {found.folder / name: digest for name, digest in found.about.files.items()}
    return all(file.is_file() and inputs.digest(file) == digest for file, digest in files.items())


def _found(unit: Unit, folder: Path) -> Stored | None:
    """Return this unit's outcome, if it is there."""
    try:
        found = read(folder, unit.run)
    except FredError:
        return None
    return found if found.about.identity == unit.identity else None


def share(units: Sequence[Stored]) -> None:
    """Replace equal files of several units by hard links, if the file system supports them.

    Args:
        units: units whose files are as written.
    """
    known = dict[str, Path]()
    for file, digest in ((unit.folder / name, digest) for unit in units for name, digest in unit.about.files.items()):
        one = known.setdefault(digest, file)
        if not file.samefile(one):
            spare = file.with_name(f".{file.name}")
            spare.unlink(missing_ok=True)
            with suppress(OSError):
                os.link(one, spare)
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


def now() -> str:
    """Return date and time, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
