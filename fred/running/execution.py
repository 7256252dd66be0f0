"""Execution of a run: record its schedule, compute its parameters if it has a task, and measure at the points."""

from collections.abc import Hashable, Iterable
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.base import cached, environment
from fred.base.progress import COMPILED, Measured, report_measurements
from fred.cluster import costs
from fred.components.component import NANOSECONDS, own_classes
from fred.outcomes.outcome import Computed
from fred.running.cadence import Points
from fred.running.checkpoints import Following
from fred.running.recording import Recording
from fred.running.timings import Timings
from fred.running.units import seeds_of
from fred.schedule.schedule import NONE, Schedule
from fred.specification.loading import Scenario
from fred.specification.run_names import blamed
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
    with blamed(name, run):
        from fred.running.checks import check_task  # imports jax

        arithmetic = check_task(run.task, run, seed)
    return None if run.protocol.needs_values else (arithmetic, run.protocol)


def check_runs(scenario: Scenario, names: Iterable[str], inline: bool = False) -> None:
    """Check runs as `check` does, before any of them begins, and announce the number of programs to compile.

    Args:
        scenario: the runs and their seeds.
        names: names of runs.
        inline: True to compute timing and arithmetic at once, which compiles no replay.
    """
    runs = {name: scenario.runs[name] for name in names}
    cached.forget(compiled=any(map(own_classes, runs.values())))
    programs = {check(name, run, seeds_of(scenario, name)[0]) for name, run in runs.items()}
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
    with blamed(name, run):
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
    workers = ledger.workers[used][np.argsort(ledger.applied[used], kind="stable")]
    return np.concatenate(([0], np.cumsum(sizes[workers])))
