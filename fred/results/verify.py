"""Verification of results: run them again and compare every bit."""

import itertools
import json
import time
from collections.abc import Iterable, Mapping
from enum import IntEnum
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from fred.base import cached, environment
from fred.base.disk import MANIFEST, REPORT, UNIT
from fred.base.errors import FredError
from fred.base.progress import OfRuns
from fred.components import registry
from fred.components.component import inputs_of, own_classes
from fred.outcomes.outcome import Named, Outcome, digest
from fred.results import folder
from fred.results.folder import Manifest
from fred.running import stored
from fred.running.checkpoints import Following
from fred.running.execution import execute
from fred.running.recording import Timings, in_order
from fred.running.stored import Stored
from fred.running.units import Unit
from fred.schedule.schedule import Schedule
from fred.specification.loading import Scenario, revalidated


class Verdict(IntEnum):
    """The exit codes of `fred verify`."""

    SAME = 0
    DIFFERENT = 1
    CANNOT = 2


def verify(path: Path, imports: Iterable[str] = (), progress: OfRuns = lambda *_: None) -> tuple[Verdict, str]:
    """Run a result folder's manifest again, write everything again, and compare; return the verdict and its explanation.

    DIFFERENT: the explanation names the first run that differs, in timing or arithmetic, and the first differing row; or
    the first file that the runs do not reproduce. CANNOT: a file has changed, or the data are not the recorded ones. In
    another numeric environment the runs are compared all the same, and the explanation lists what differs in it. Raises
    FredError if there is no readable result.

    Args:
        path: the result folder, which stays unchanged.
        imports: names of the user's modules that its scenario may import.
        progress: called with run, seed and the fraction done.
    """
    manifest, rows = folder.read_manifest(path)
    registry.allow_import(imports)
    altered = folder.changed(path, manifest)
    if altered:
        return Verdict.CANNOT, f"{path / altered} is not the file that was written (its digest differs): {stored.RESTORE}"
    elsewhere = other_environment(manifest.environment, environment.describe())
    with TemporaryDirectory() as scratch:
        verdict, difference = _repeat(path, manifest, Path(scratch), progress)
    if difference:
        return verdict, difference + (f"\nThis may be due to another numeric environment:\n{elsewhere}" if elsewhere else "")
    writers = folder.writers()
    packages = [f"{name} {version}" for name, version in manifest.written_by.items() if writers.get(name) != version]
    remark = f"; tables and figures, written by {', '.join(packages)}, not compared" if packages else ""
    message = f"{path}: {len(rows)} runs, all digests the same{remark}"
    return verdict, message + (f"; in another numeric environment:\n{elsewhere}" if elsewhere else "")


def other_environment(recorded: Mapping[str, str], current: Mapping[str, str]) -> str:
    """Return the differences between two numeric environments, a line each; empty if there are none.

    Args:
        recorded: facts by name, as in a manifest.
        current: those of this process, or of the runs that are compared.

    >>> print(other_environment({"jax": "0.10.1", "numpy": "2.4.6"}, {"jax": "0.11.0", "numpy": "2.4.6"}))
      jax: recorded '0.10.1', here '0.11.0'
    """
    differing = [name for name in sorted(current.keys() | recorded.keys()) if current.get(name) != recorded.get(name)]
    return "\n".join(f"  {name}: recorded {recorded.get(name)!r}, here {current.get(name)!r}" for name in differing)


def _repeat(path: Path, manifest: Manifest, scratch: Path, progress: OfRuns) -> tuple[Verdict, str]:
    """Run everything, and write it to `scratch`; return the verdict, and the first difference."""
    result, repeated, timings = folder.load_result(path), dict[Unit, Stored](), Timings()
    runs = _with_inputs(result.scenario).runs
    # Compute again, not from caches. A user's class may have changed under the same name, and then so have compiled programs.
    cached.forget(compiled=any(own_classes(outcome.run) for outcome in result.outcomes))
    recorded = {Unit(old.name, runs[old.name], old.seed, manifest.inline): old for old in result.outcomes}
    for unit in in_order(list(recorded)):
        old, began, following = recorded[unit], time.monotonic(), Following(partial(progress, unit.name, unit.seed))
        outcome = execute(unit.name, unit.run, unit.seed, unit.inline, following, timings)
        progress(unit.name, unit.seed, 1.0)
        if outcome.data_digest != manifest.data[unit.folder] or outcome.data_digest != old.data_digest:
            return Verdict.CANNOT, f"{unit.folder}: the data are not the recorded ones (their digest differs)"
        difference = difference_of(old, outcome)
        if difference:
            return Verdict.DIFFERENT, f"{unit.folder}: {difference}"
        (scratch / unit.folder).mkdir(parents=True)
        stored.write(outcome, unit, scratch / unit.folder, began)
        repeated[unit] = stored.load(scratch / unit.folder, unit.run)
    about = folder.AboutResult(path.resolve().parent, manifest.file, manifest.inline, REPORT in manifest.files)
    folder.complete(scratch, result.scenario, [repeated[unit] for unit in recorded], about)
    # Other versions of these packages may write other bytes, so files are compared only if all are the same; verify says so.
    if manifest.written_by != folder.writers():
        return Verdict.SAME, ""
    difference = _differing_file(path, manifest, scratch)
    return (Verdict.DIFFERENT, difference) if difference else (Verdict.SAME, "")


def _with_inputs(scenario: Scenario) -> Scenario:
    """Return a result's scenario with its inputs, which loading has not read. Raises FredError if one is missing or changed."""
    errors = []
    for path in inputs_of(scenario):  # reports all faults together; validating again stops at the first
        try:
            path.readable_copy().located()
        except FredError as error:
            errors.append(str(error))
    if errors:
        raise FredError(*errors)
    checked: Scenario = revalidated(scenario)
    return checked


def _differing_file(path: Path, manifest: Manifest, scratch: Path) -> str:
    """Return the first file that the runs do not reproduce; dates, durations and identities in unit.json may differ."""
    names, ignored = folder.result_files(scratch), {MANIFEST}
    if other_environment(manifest.environment, environment.describe()):
        ignored.add(REPORT)  # which names the environment
    for name in sorted({*names, *manifest.files} - ignored):
        old, new = path / name, scratch / name
        if not new.is_file() or name not in manifest.files:
            return f"{name}: {'is missing' if new.is_file() else 'these runs write no such file'}"
        if old.name == UNIT:
            if stored.read_record(old.parent).facts() != stored.read_record(new.parent).facts():
                return f"{name}: differs from the file that the run writes"
        elif old.read_bytes() != new.read_bytes():
            return f"{name}: differs from the file that the runs write{_first_line(old, new)}"
    return ""


def _first_line(old: Path, new: Path) -> str:
    """Return the first difference between two tables."""
    if old.suffix != ".csv":
        return ""
    lines = [file.read_text(encoding="utf-8", errors="replace").splitlines() for file in (old, new)]
    for number, (recorded, current) in enumerate(itertools.zip_longest(*lines, fillvalue="")):
        if recorded != current:
            return f"; first in line {number + 1}\n  recorded {recorded}\n  now      {current}"
    return ""


def difference_of(old: Outcome, new: Outcome) -> str:
    """Return the first difference between two outcomes of a run; empty if there is none.

    Args:
        old: the recorded outcome, with its recorded digests.
        new: the outcome of the new run.
    """
    if not (old.schedule.digest() == old.schedule_digest == new.schedule_digest):
        return f"timing differs: {first_difference(old.schedule, new.schedule)}"
    if not (digest(old.final) == old.params_digest == new.params_digest) or not _equal(old.initial, new.initial):
        return f"arithmetic differs, timing is the same: {_first_value(old, new)}"
    if not old.metrics.equals(new.metrics):
        return f"metrics differ, digests are the same: {_first_value(old, new)}"
    summary = json.loads(json.dumps(new.summary))
    unlike = next((name for name in summary if summary[name] != old.summary.get(name)), "")
    if unlike:
        return f"the summary's `{unlike}` differs: recorded {old.summary.get(unlike)}, now {summary[unlike]}"
    return ""


def _equal(old: Named, new: Named) -> bool:
    return old.keys() == new.keys() and all(np.array_equal(old[name], new[name], equal_nan=True) for name in old)


def _first_value(recorded: Outcome, outcome: Outcome) -> str:
    """Return the first evaluation in which two runs differ, else the first parameter."""
    old, new = recorded.metrics, outcome.metrics
    for i in range(min(len(old), len(new))):
        if not old.iloc[i].equals(new.iloc[i]):
            return f"first at evaluation {i}\n  recorded {old.iloc[i].to_dict()}\n  now      {new.iloc[i].to_dict()}"
    for when in ("initial", "final"):
        old_params, new_params = getattr(recorded, when), getattr(outcome, when)
        for path in new_params:
            if not np.array_equal(old_params.get(path, np.nan), new_params[path], equal_nan=True):
                return f"first in parameters {when}/{path}"
    return f"recorded {len(old)} evaluations, now {len(new)}"


def first_difference(old: Schedule, new: Schedule) -> str:
    """Return the first row in which two schedules differ, or else the first other fact or interval.

    Args:
        old: the recorded schedule.
        new: the new one; the text calls them "recorded" and "now".

    >>> import fred
    >>> scenario = fred.scenario(
    ...     cluster={"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
    ...     algorithm={"name": "asgd", "learning_rate": 0.1},
    ...     stop={"updates": 4},
    ... )
    >>> shorter = scenario.replace({"stop.updates": 2})
    >>> print(first_difference(*(fred.run(one).outcome("asgd").schedule for one in (scenario, shorter))))
    recorded 9 rows, now 5; the first 5 are the same
    """
    if unlike := _first_unlike("row", old.frame(), new.frame()):
        return unlike
    now = new.facts
    for name, recorded in old.facts.items():
        if now[name] != recorded:
            return f"rows are the same, `{name}` differs: recorded {recorded!r}, now {now[name]!r}"
    if unlike := _first_unlike("interval", old.interval_frame(), new.interval_frame()):
        return f"rows are the same, intervals differ: {unlike}"
    return "rows and intervals are the same, but the recorded digest differs"


def _first_unlike(line: str, old: pd.DataFrame, new: pd.DataFrame) -> str:
    """Return the first line in which two tables of the same columns differ; empty if there is none."""
    lines = min(len(old), len(new))
    unlike = np.zeros(lines, bool)
    for name in new:
        unlike |= old[name].to_numpy()[:lines] != new[name].to_numpy()[:lines]
    if unlike.any():
        first = int(np.argmax(unlike))
        recorded, now = (", ".join(f"{name} {value}" for name, value in table.iloc[first].items()) for table in (old, new))
        return f"first at {line} {first}\n  recorded {recorded}\n  now      {now}"
    return "" if len(old) == len(new) else lengths(line, len(old), len(new), lines)


def lengths(line: str, old: int, new: int, equal: int) -> str:
    """Return the words for two tables of different lengths, whose first lines are the same.

    Args:
        line: name of a line.
        old: number of recorded lines.
        new: number of lines now.
        equal: number of lines at the beginning that are known to be the same.

    >>> lengths("row", 9, 5, 5)
    'recorded 9 rows, now 5; the first 5 are the same'
    """
    return f"recorded {old} {line}s, now {new}; the first {equal} are the same"
