"""Does a result still come out the same, bit for bit?"""

import json
from collections.abc import Iterable
from enum import IntEnum
from functools import partial
from pathlib import Path

import numpy as np

from fred import environment, registry
from fred.results import folder
from fred.results.measures import summarise
from fred.results.stored import Stored
from fred.running.execution import Following, Named, Outcome, digest, execute
from fred.running.side_by_side import Progress
from fred.schedule import Schedule


class Verdict(IntEnum):
    """The exit codes of `fred verify`."""

    SAME = 0
    DIFFERENT = 1
    CANNOT = 2


def verify(path: Path, imports: Iterable[str] = (), progress: Progress = lambda *_: None) -> tuple[Verdict, str]:
    """Run a result folder's manifest again and compare digests; the verdict, and what to say about it.

    DIFFERENT names the first run that differs, whether in timing or in arithmetic, and the first differing row. CANNOT: a file
    is not what was written, or the numeric environment or the data are not the recorded ones. Raises FredError if there is no
    readable result.
    """
    manifest, rows = folder.read_manifest(path)
    registry.allow_import(imports)
    altered = folder.changed(path, manifest)
    if altered:
        return Verdict.CANNOT, f"{path / altered} is not the file that was written (its digest differs); was it changed?"
    here, recorded = environment.describe(), manifest.environment
    differing = [name for name in sorted(here.keys() | recorded.keys()) if here.get(name) != recorded.get(name)]
    if differing:
        lines = [f"  {name}: recorded {recorded.get(name)!r}, here {here.get(name)!r}" for name in differing]
        return Verdict.CANNOT, "the numeric environment differs from the recorded one:\n" + "\n".join(lines)
    result = folder.load_result(path)
    for each in result.outcomes:
        assert isinstance(each, Stored)
        told = Following(partial(progress, each.name, each.seed))
        outcome = execute(each.name, each.run, each.seed, manifest.inline, told)
        progress(each.name, each.seed, 1.0)
        place = each.folder.relative_to(path).as_posix()
        if outcome.data_digest != manifest.data[place]:
            return Verdict.CANNOT, f"{place}: the data are not the recorded ones (their digest differs)"
        difference = difference_of(each, outcome)
        if difference:
            return Verdict.DIFFERENT, f"{place}: {difference}"
    return Verdict.SAME, f"{path}: {len(rows)} runs, all digests the same"


def difference_of(old: Stored, new: Outcome | Stored) -> str:
    """What differs between two outcomes of a run, and where first; nothing if nothing does."""
    digests = old.summary["digests"]
    if old.schedule.digest() != digests["schedule"] or new.schedule.digest() != digests["schedule"]:
        return f"timing differs: {first_row(old.schedule, new.schedule)}"
    if not (digest(old.final) == digests["params"] == new.params_digest) or not _same(old.initial, new.initial):
        return f"arithmetic differs, timing is the same: {_first_value(old, new)}"
    if not old.metrics.equals(new.metrics):
        return f"metrics differ, digests are the same: {_first_value(old, new)}"
    summary = new.summary if isinstance(new, Stored) else json.loads(json.dumps(summarise(new)))
    unlike = next((name for name in summary if summary[name] != old.summary.get(name)), "")
    if unlike:
        return f"the summary's `{unlike}` differs: recorded {old.summary.get(unlike)}, now {summary[unlike]}"
    return ""


def _same(old: Named, new: Named) -> bool:
    return old.keys() == new.keys() and all(np.array_equal(old[name], new[name], equal_nan=True) for name in old)


def _first_value(stored: Stored, outcome: Outcome | Stored) -> str:
    """The first evaluation point in which two runs differ, else the first parameter."""
    old, new = stored.metrics, outcome.metrics
    for i in range(min(len(old), len(new))):
        if not old.iloc[i].equals(new.iloc[i]):
            return f"first at evaluation {i}\n  recorded {old.iloc[i].to_dict()}\n  now      {new.iloc[i].to_dict()}"
    for when in ("initial", "final"):
        before, after = getattr(stored, when), getattr(outcome, when)
        for path in after:
            if not np.array_equal(before.get(path, np.nan), after[path], equal_nan=True):
                return f"first in parameters {when}/{path}"
    return f"recorded {len(old)} evaluations, now {len(new)}"


def first_row(old: Schedule, new: Schedule) -> str:
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
