"""Execution of a run: record, train, and measure at the points; in the unit's work folder, resumed from the last checkpoint.

A unit is computed in a folder of its own, and one rename moves its files to their place, so that the place is empty or has the
whole unit. The folder's lock keeps other processes out; the system releases it when its process dies. A killed process leaves a
folder with its last checkpoint, and the next process that takes the lock resumes from it. An exception leaves the checkpoint
only, because nothing else would be used again.
"""

import gc
import shutil
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.base import cached, environment
from fred.base.disk import CHECKPOINT
from fred.base.errors import FredError
from fred.base.progress import COMPILED, Measured, report_measurements
from fred.base.staging import locked
from fred.cluster import costs
from fred.components import own_code
from fred.components.component import NANOSECONDS, own_classes
from fred.outcomes.outcome import Computed
from fred.running import checkpoints, stored
from fred.running.checkpoints import Checkpoint, Following
from fred.running.recording import Points, Recording, Timings
from fred.running.units import SelectedRuns, Unit
from fred.schedule.schedule import NONE, Schedule
from fred.specification.run_names import name_run_in_errors
from fred.specification.shape import Run
from fred.specification.task import Task


def check(name: str, run: Run, seed: int) -> Hashable:
    """Check that the data exist, and that model and algorithm fit them. Raises FredError otherwise.

    Args:
        name: name of the run, for messages.
        run: specification of the run; without a task there is nothing to check.
        seed: seed of generated data.

    Returns:
        The key of the compiled replay, equal for runs that share a program; None if nothing is compiled.
    """
    if run.task is None:
        return None
    environment.check()
    with name_run_in_errors(name, run):
        from fred.running.checks import check_task  # imports jax

        arithmetic = check_task(run.task, run, seed)
    return None if run.protocol.needs_values else (arithmetic, run.protocol)


def check_runs(selected: SelectedRuns, inline: bool = False) -> None:
    """Check runs as `check` does, before any of them begins, and announce the number of programs to compile.

    Args:
        selected: the runs and their seeds.
        inline: True to compute timing and arithmetic at once, which compiles no replay.
    """
    cached.forget(compiled=any(map(own_classes, selected.runs.values())))
    programs = {check(name, run, selected.first_seeds(name)[0]) for name, run in selected.runs.items()}
    COMPILED.expect(0 if inline else len(programs - {None}))


def execute(
    name: str,
    run: Run,
    seed: int,
    inline: bool = False,
    following: Following | None = None,
    timings: Timings | None = None,
    cores: int = 1,
) -> Computed:
    """Execute one run with one seed; the result is bitwise the same whatever else runs. Raises FredError.

    Timing is recorded first and the arithmetic replayed; `inline` does both at once, with the same result.

    Args:
        name: name of the run, for messages and for its outcome.
        run: specification of the run.
        seed: seed of every random draw of timing and arithmetic.
        inline: compute during the simulation of timing.
        following: callbacks for progress and checkpoints, and the checkpoint from which to resume; None: none.
        timings: cache of schedules, for runs with the same timing; None: the schedule is recorded.
        cores: largest number of processes for this run; a replay uses several if its gradients take long enough.

    >>> import fred
    >>> scenario = fred.scenario(
    ...     cluster={"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
    ...     algorithm={"name": "asgd", "learning_rate": 0.1},
    ...     stop={"updates": 4},
    ... )
    >>> one, other = (execute("mine", scenario.runs["asgd"], seed) for seed in (0, 1))
    >>> one.summary["virtual_seconds"], one.schedule_digest == other.schedule_digest  # constant times draw nothing
    (1.0, True)
    """
    following = replace(following or Following(), evaluated=partial(report_measurements, name, seed))
    with name_run_in_errors(name, run):
        return _execute(name, run, seed, inline, following, timings or Timings(), cores)


def _execute(name: str, run: Run, seed: int, inline: bool, following: Following, timings: Timings, cores: int) -> Computed:
    if run.task is None:
        recording = Recording(run, seed)
        schedule = timings.schedule(recording)
        return Computed(
            name, seed, run, schedule, _metrics(run, schedule, recording.cadence.points(schedule), []), {}, {}, None
        )
    from fred.running.model_training import train  # imports jax

    trained = train(run, run.task, seed, inline, following, timings, cores)
    metrics = _metrics(run, trained.schedule, trained.points, trained.measured)
    return Computed(name, seed, run, trained.schedule, metrics, trained.initial, trained.final, trained.data)


def _metrics(run: Run, schedule: Schedule, points: Points, measured: Measured) -> pd.DataFrame:
    """Return one row per evaluation point; without a task only the counts."""
    seconds = points.seconds if run.protocol.has_clock else np.full(len(points.rows), np.nan)
    frame = pd.DataFrame({"virtual_seconds": seconds, "updates": points.updates, "gradients": points.gradients})
    if run.task is not None and run.task.context:
        frame["tokens"] = run.task.context * _examples(schedule, run.task)[points.gradients]
    if run.cluster.prices is not None:
        times = np.rint(points.seconds * NANOSECONDS).astype(np.int64)
        spent = costs.spent(schedule, run.cluster, times, points.rows)
        columns, has_clock = zip(costs.COLUMNS, (spent.total, spent.kwh), strict=True), run.protocol.has_clock
        frame = frame.assign(**{name: column if has_clock else np.nan for name, column in columns if column is not None})
    if measured:
        frame = pd.concat([frame, pd.DataFrame(measured)], axis=1)
    return frame


def _examples(schedule: Schedule, task: Task) -> NDArray[np.int64]:
    """Return the number of examples in the first n gradients that took part in an update, for each n: [gradients + 1]."""
    ledger, sizes = schedule.ledger, np.array(task.batch_sizes(schedule.workers))
    used = ledger.applied != NONE
    workers = ledger.workers[used][np.argsort(ledger.applied[used], kind="stable")]  # in the order of the updates
    return np.concatenate(([0], np.cumsum(sizes[workers])))


_PROGRESS = "progress"  # file with the fraction done
_INTERVAL = 0.2  # seconds between two progress reports
_LONG_SCHEDULE = 100_000  # rows from which on the garbage of simulated processes (in cycles) is collected at once
_PATIENCE = 10.0  # seconds to wait for another process that is about to end


def complete(
    unit: Unit,
    stage: Path,
    report: Callable[[float], None] = lambda share: None,
    patience: float = _PATIENCE,
    timings: Timings | None = None,
    cores: int = 1,
) -> None:
    """Compute a unit, from its last checkpoint on, and move its outcome to its place in `stage`, unless it is there.

    Raises FredError; TakenError if another process computes it for longer than `patience`, s.

    Args:
        unit: unit to compute.
        stage: the unfinished result folder; the unit's own folder in it is `unit.folder`.
        report: called with the fraction done.
        patience: time to wait for another process that is about to end, s.
        timings: cache of schedules, for units with the same timing; None: the schedule is recorded.
        cores: largest number of processes for this unit.
    """
    folder, place = stage / unit.work_folder, stage / unit.folder
    if stored.find_unchecked(unit, place):
        return
    with locked(folder, patience):
        if not stored.find_unchecked(unit, place):  # nor has another process finished it before this one had the lock
            with _leaving_checkpoints_only(folder):
                files = folder / "done"
                shutil.rmtree(files, ignore_errors=True)
                files.mkdir()
                (folder / _PROGRESS).write_text("0")
                compute(unit, files, _Diary(unit, folder, report).following(), timings or Timings(), cores)
                put(files, place)
        shutil.rmtree(folder, ignore_errors=True)


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
    if len(outcome.schedule) > _LONG_SCHEDULE:
        gc.collect()


def put(files: Path, place: Path) -> None:
    """Move a unit's files to their place.

    Args:
        files: the folder that holds them, on the same file system.
        place: the new folder; an existing one is removed.
    """
    place.parent.mkdir(exist_ok=True)
    shutil.rmtree(place, ignore_errors=True)  # of a process that outlived its killed run for a moment
    files.rename(place)


def progress(stage: Path, unit: Unit) -> float | None:
    """Return the fraction of a unit that is done; None if no process is computing it.

    Args:
        stage: the unfinished result folder.
        unit: a unit that another process may be computing.
    """
    try:
        return float((stage / unit.work_folder / _PROGRESS).read_text() or 0)
    except (OSError, ValueError):
        return None


def has_checkpoint(unit: Unit, stage: Path) -> bool:
    """Return True if there is a checkpoint to resume from."""
    return (stage / unit.work_folder / CHECKPOINT).exists()


class _Diary:
    """The reports of a unit during its computation."""

    def __init__(self, unit: Unit, folder: Path, report: Callable[[float], None]):
        self._unit, self._folder, self._listener = unit, folder, report
        self._reported_at = self._saved_at = time.monotonic()

    def following(self) -> Following:
        """Return the callbacks for `execute`, and the checkpoint from which it resumes."""
        return Following(self._report, self._save, checkpoints.load(self._folder, self._unit.identity), self._is_due)

    def _report(self, fraction: float) -> None:
        self._listener(fraction)
        if time.monotonic() - self._reported_at > _INTERVAL:
            self._reported_at = time.monotonic()
            (self._folder / _PROGRESS).write_text(f"{fraction:.4f}")

    def _is_due(self) -> bool:
        if time.monotonic() - self._saved_at <= checkpoints.INTERVAL:
            return False
        is_late = bool(self._unit.has_own_classes and own_code.late_change())
        return not self._unit.unknown and not is_late  # otherwise no process could resume from it

    def _save(self, checkpoint: Checkpoint) -> None:
        checkpoints.save(self._folder, self._unit.identity, checkpoint)
        self._saved_at = time.monotonic()


@contextmanager
def _leaving_checkpoints_only(folder: Path) -> Iterator[None]:
    """Delete everything except a checkpoint if the work fails."""
    try:
        yield
    except BaseException:
        for path in folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != CHECKPOINT:
                path.unlink()
        raise
