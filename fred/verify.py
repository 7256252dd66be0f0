"""Does a result still come out the same, bit for bit?"""

from collections.abc import Iterable
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fred import environment, folder, registry
from fred.execution import Outcome, execute
from fred.loading import validated
from fred.result import Progress
from fred.schedule import Schedule


class Verdict(IntEnum):
    """The exit codes of `fred verify`."""

    SAME = 0
    DIFFERENT = 1
    CANNOT = 2


def verify(path: Path, imports: Iterable[str] = (), progress: Progress = lambda *_: None) -> tuple[Verdict, str]:
    """Run a result folder's manifest again and compare digests; the verdict, and what to say about it.

    DIFFERENT names the first run that differs, whether in timing or in arithmetic, and the first differing row. CANNOT:
    the numeric environment or the data are not the recorded ones. Raises FredError if there is no readable result.
    """
    manifest, summary = folder.read_manifest(path)
    registry.allow_import(imports)
    here = environment.describe()
    recorded = manifest["environment"]
    differing = [name for name in sorted(here.keys() | recorded.keys()) if here.get(name) != recorded.get(name)]
    if differing:
        rows = [f"  {name}: recorded {recorded.get(name)!r}, here {here.get(name)!r}" for name in differing]
        return Verdict.CANNOT, "the numeric environment differs from the recorded one:\n" + "\n".join(rows)
    scenario = validated(manifest["scenario"], lambda keys: f"{path / 'manifest.json'}: {'.'.join(map(str, keys))}")
    for row in summary:
        name, seed = row["name"], row["seed"]
        outcome = execute(name, scenario.runs[name], seed, manifest["inline"], partial(progress, name, seed))
        progress(name, seed, 1.0)
        where = folder.run_folder(outcome)
        if outcome.data_digest != manifest["data"][where]:
            return Verdict.CANNOT, f"{where}: the data are not the recorded ones (their digest differs)"
        if outcome.schedule.digest() != row["digests"]["schedule"]:
            return Verdict.DIFFERENT, f"{where}: timing differs: {_schedule_difference(outcome, path / where)}"
        if outcome.params_digest != row["digests"]["params"]:
            return (
                Verdict.DIFFERENT,
                f"{where}: arithmetic differs, timing is the same: {_params_difference(outcome, path / where)}",
            )
    return Verdict.SAME, f"{path}: {len(summary)} runs, all digests the same"


def _schedule_difference(outcome: Outcome, recorded: Path) -> str:
    """The first row in which two schedules differ."""
    try:
        old = Schedule.load(recorded / "schedule.parquet")
    except (OSError, ValueError, KeyError) as error:
        return f"the recorded schedule cannot be read ({error})"
    new = outcome.schedule
    rows = min(len(old), len(new))
    unlike = np.zeros(rows, bool)
    for name in new.columns:
        unlike |= old[name][:rows] != new[name][:rows]
    if not unlike.any():
        if len(old) != len(new):
            return f"recorded {len(old)} rows, now {len(new)}; the first {rows} are the same"
        return "the stored table is the same as the new one, but not as its recorded digest: was a file changed?"
    first = int(np.argmax(unlike))
    return f"first at row {first}\n  recorded {_row(old, first)}\n  now      {_row(new, first)}"


def _row(schedule: Schedule, row: int) -> str:
    return ", ".join(f"{name} {value}" for name, value in schedule.frame().iloc[row].items())


def _params_difference(outcome: Outcome, recorded: Path) -> str:
    """The first evaluation point in which two runs differ, else the first parameter."""
    try:
        old = pd.read_parquet(recorded / "metrics.parquet")
        with np.load(recorded / "params.npz") as stored:
            params: dict[str, Any] = {name: stored[name] for name in stored.files}
    except (OSError, ValueError) as error:
        return f"the recorded files cannot be read ({error})"
    new = outcome.metrics
    for i in range(min(len(old), len(new))):
        if not old.iloc[i].equals(new.iloc[i]):
            return f"first at evaluation {i}\n  recorded {old.iloc[i].to_dict()}\n  now      {new.iloc[i].to_dict()}"
    for when in ("initial", "final"):
        for path, array in getattr(outcome, when).items():
            if not np.array_equal(params.get(f"{when}/{path}", np.nan), array):
                return f"first in parameters {when}/{path}"
    return "the stored parameters are the same as the new ones, but not as their recorded digest: was a file changed?"
