"""Does a result still come out the same, bit for bit?"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import pandas as pd

from fred import environment, registry
from fred.errors import FredError
from fred.results import folder
from fred.results.result import Progress
from fred.running.execution import Following, Named, Outcome, digest, execute
from fred.scenario.loading import validated
from fred.schedule import Schedule


class Verdict(IntEnum):
    """The exit codes of `fred verify`."""

    SAME = 0
    DIFFERENT = 1
    CANNOT = 2


def verify(path: Path, imports: Iterable[str] = (), progress: Progress = lambda *_: None) -> tuple[Verdict, str]:
    """Run a result folder's manifest again and compare digests; the verdict, and what to say about it.

    DIFFERENT names the first run that differs, whether in timing or in arithmetic, and the first differing row; or a stored
    file that is not what was recorded. CANNOT: the numeric environment or the data are not the recorded ones. Raises
    FredError if there is no readable result.
    """
    manifest, rows = folder.read_manifest(path)
    registry.allow_import(imports)
    here, recorded = environment.describe(), manifest.environment
    differing = [name for name in sorted(here.keys() | recorded.keys()) if here.get(name) != recorded.get(name)]
    if differing:
        lines = [f"  {name}: recorded {recorded.get(name)!r}, here {here.get(name)!r}" for name in differing]
        return Verdict.CANNOT, "the numeric environment differs from the recorded one:\n" + "\n".join(lines)
    scenario = validated(manifest.scenario, lambda keys: f"{path / 'manifest.json'}: {'.'.join(map(str, keys))}")
    stored = [_Stored.read(path, row) for row in rows]
    altered = [file for each in stored for file in each.altered()]
    if altered:
        return Verdict.DIFFERENT, f"{altered[0]}: the stored file does not match its recorded digest; was it changed?"
    for each in stored:
        name, seed = each.row.name, each.row.seed
        outcome = execute(name, scenario.runs[name], seed, manifest.inline, Following(partial(progress, name, seed)))
        progress(name, seed, 1.0)
        if outcome.data_digest != manifest.data[each.row.folder]:
            return Verdict.CANNOT, f"{each.row.folder}: the data are not the recorded ones (their digest differs)"
        difference = each.difference(outcome)
        if difference:
            return Verdict.DIFFERENT, f"{each.row.folder}: {difference}"
    return Verdict.SAME, f"{path}: {len(rows)} runs, all digests the same"


@dataclass(frozen=True)
class _Stored:
    """The files of one run with one seed."""

    row: folder.Row
    schedule: Schedule
    metrics: pd.DataFrame
    params: Named  # initial/... and final/...

    @classmethod
    def read(cls, path: Path, row: folder.Row) -> "_Stored":
        """Raises FredError for a file that is missing or damaged."""
        file = path / row.folder / "schedule.parquet"
        try:
            schedule = Schedule.load(file)
            file = file.with_name("metrics.parquet")
            metrics = pd.read_parquet(file)
            file = file.with_name("params.npz")
            params = _arrays(file) if row.digests.params else {}
        except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile) as error:
            raise FredError(f"cannot read {file}: {error}") from error
        return cls(row, schedule, metrics, params)

    def altered(self) -> list[str]:
        """The files that are not what was recorded."""
        final = {path.removeprefix("final/"): array for path, array in self.params.items() if path.startswith("final/")}
        right = {
            "schedule.parquet": self.schedule.digest() == self.row.digests.schedule,
            "params.npz": digest(final) == self.row.digests.params,
        }
        return [f"{self.row.folder}/{name}" for name, same in right.items() if not same]

    def difference(self, outcome: Outcome) -> str:
        """What differs from a new outcome, and where first; nothing if nothing does."""
        if outcome.schedule.digest() != self.row.digests.schedule:
            return f"timing differs: {_first_row(self.schedule, outcome.schedule)}"
        if outcome.params_digest != self.row.digests.params:
            return f"arithmetic differs, timing is the same: {self._first_value(outcome)}"
        if not self.metrics.equals(outcome.metrics):
            return f"metrics.parquet differs, digests are the same; was it changed? {self._first_value(outcome)}"
        return ""

    def _first_value(self, outcome: Outcome) -> str:
        """The first evaluation point in which two runs differ, else the first parameter."""
        old, new = self.metrics, outcome.metrics
        for i in range(min(len(old), len(new))):
            if not old.iloc[i].equals(new.iloc[i]):
                return f"first at evaluation {i}\n  recorded {old.iloc[i].to_dict()}\n  now      {new.iloc[i].to_dict()}"
        for path, array in outcome.final.items():
            if not np.array_equal(self.params.get(f"final/{path}", np.nan), array):
                return f"first in parameters {path}"
        return f"recorded {len(old)} evaluations, now {len(new)}"


def _arrays(file: Path) -> Named:
    with np.load(file, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def _first_row(old: Schedule, new: Schedule) -> str:
    """The first row in which two schedules differ."""
    rows = min(len(old), len(new))
    unlike = np.zeros(rows, bool)
    for name in new.columns:
        unlike |= old[name][:rows] != new[name][:rows]
    if not unlike.any():
        return f"recorded {len(old)} rows, now {len(new)}; the first {rows} are the same"
    first = int(np.argmax(unlike))
    return f"first at row {first}\n  recorded {_row(old, first)}\n  now      {_row(new, first)}"


def _row(schedule: Schedule, row: int) -> str:
    return ", ".join(f"{name} {value}" for name, value in schedule.frame().iloc[row].items())
