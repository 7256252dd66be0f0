"""Execution of a run: record its schedule, replay it (or do both at once), and evaluate at the points."""

import itertools
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import jax
import numpy as np
import pandas as pd

from fred.base import environment
from fred.cluster.durations import NANOSECONDS
from fred.learning.models.model import Params
from fred.learning.server import State
from fred.outcomes.computed import Computed
from fred.outcomes.outcome import Named
from fred.replay.interpreter import Interpreter
from fred.replay.machine import replay, states_at
from fred.replay.snapshot import Snapshot
from fred.running.cadence import Points
from fred.running.checks import check_task
from fred.running.problem import Measured, Problem, plain
from fred.running.recording import Recording
from fred.running.timings import Timings
from fred.schedule.schedule import Schedule
from fred.specification.blame import blamed
from fred.specification.shape import Run

Progress = Callable[[float], None]  # called with the fraction done


def check(name: str, run: Run, seed: int) -> Hashable:
    """Check that the data exist, and that model and algorithm fit them. Raises FredError otherwise.

    Args:
        name: name of the run, for messages.
        run: specification of the run; without a task there is nothing to check.
        seed: seed of generated data.

    Returns:
        The key of the compiled replay, equal for runs that share a program; None if nothing is compiled.
    """
    environment.check()
    with blamed(name, run):
        arithmetic = check_task(run.task, run, seed) if run.task is not None else None
    return None if arithmetic is None or run.protocol.needs_values else (arithmetic, run.protocol)


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run at an evaluation point, in memory or from a file, from which it resumes with the same bits.

    Args:
        measured: loss, error and other measurements, at each point so far.
        reached: arrays and facts from which the replay or interpreter resumes.
    """

    measured: Measured  # so far
    reached: Snapshot  # everything that the rest needs


@dataclass(frozen=True)
class Following:
    """Callbacks of a run for progress and checkpoints, and the checkpoint from which it resumes.

    Args:
        progress: called with the fraction done, after each evaluation.
        save: called with a checkpoint at evaluation points, except the last one; None: no checkpoints.
        resumed: the checkpoint from which the run resumes; None: it starts from the beginning.
        due: returns True if a checkpoint is due; called before each.
    """

    progress: Progress = lambda _: None
    save: Callable[[Checkpoint], None] | None = None
    resumed: Checkpoint | None = None
    due: Callable[[], bool] = lambda: True  # True if a checkpoint is due


def execute(
    name: str,
    run: Run,
    seed: int,
    inline: bool = False,
    following: Following = Following(),
    timings: Timings | None = None,
) -> Computed:
    """Execute one run with one seed; the result is bitwise the same whatever else runs. Raises FredError.

    Timing is recorded first and the arithmetic replayed; `inline` does both at once, with the same result.

    Args:
        name: name of the run, for messages and for its outcome.
        run: specification of the run.
        seed: seed of every random draw of timing and arithmetic.
        inline: compute during the simulation of timing.
        following: callbacks for progress and checkpoints, and the checkpoint from which to resume.
        timings: cache of schedules, for runs with the same timing; None: the schedule is recorded.

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
    with blamed(name, run):
        return _execute(name, run, seed, inline, following, timings or Timings())


def _execute(name: str, run: Run, seed: int, inline: bool, following: Following, timings: Timings) -> Computed:
    if run.task is None:
        recording = Recording(run, seed)
        schedule = timings.schedule(recording)
        return Computed(name, seed, run, schedule, _metrics(run, recording.cadence.points(schedule), []), {}, {}, None)
    problem = Problem(run.task, run, seed)
    recording = Recording(run, seed, problem.sizes)
    if inline or run.protocol.needs_values:
        schedule, measured, params = _inline(run, recording, problem, following)
    else:
        schedule, measured, params = _replayed(run, recording, problem, following, timings)
    metrics = _metrics(run, recording.cadence.points(schedule), measured)
    return Computed(name, seed, run, schedule, metrics, _initial(problem), _named(params), problem.data.digest)


def _replayed(
    run: Run, recording: Recording, problem: Problem, following: Following, timings: Timings
) -> tuple[Schedule, Measured, Params]:
    """Record, then replay. If the target is reached early, record the schedule again up to that point."""
    schedule = timings.schedule(recording)
    points, do, resumed = recording.cadence.points(schedule), problem.arithmetic, following.resumed
    program = timings.program(schedule, points.rows, do)
    measured, reached = (list(resumed.measured), resumed.reached) if resumed else ([], None)
    passed = len(measured)
    marks = replay(program, do, problem.models, problem.examples, problem.batches, reached, passed)
    before = -1
    for number, mark in enumerate(marks, start=passed):
        if mark.phase == before:  # nothing has happened since
            measured.append(measured[-1])
        else:
            states = states_at(program, number, mark, do, problem.layout.answer)
            measured.append(problem.measure(states))
        before = mark.phase
        following.progress(len(measured) / len(points.rows))
        if _target_reached(run, measured):
            rows, at = int(points.rows[number]), float(points.seconds[number])
            if rows < len(schedule) or at < schedule.end_ns / NANOSECONDS:
                schedule = recording.up_to(at) if recording.cadence.unit == "seconds" else recording.up_to(rows=rows)
            break
        if following.save and len(measured) < len(points.rows) and following.due():
            following.save(Checkpoint(list(measured), mark.snapshot()))
    return schedule, measured, do.answer(states)


def _inline(run: Run, recording: Recording, problem: Problem, following: Following) -> tuple[Schedule, Measured, Params]:
    """Record and compute at once. If the target is reached at a point in time, record the schedule again up to it."""
    do, resumed, replicas = problem.arithmetic, following.resumed, problem.layout.replicas
    measured, reached = (list(resumed.measured), resumed.reached) if resumed else ([], None)
    interpreter = Interpreter(do, problem.models, replicas, problem.examples, problem.batches, reached)
    interpreter.loss = lambda: problem.measure(interpreter.states(problem.layout.answer))["loss"]
    looks = itertools.count(1)  # counts points, including those measured before
    states: list[State] = []  # at the last point

    def look(fraction: float) -> bool:
        if next(looks) <= (len(resumed.measured) if resumed else 0):
            return False
        states[:] = interpreter.states(problem.layout.answer)
        measured.append(problem.measure(states))
        following.progress(fraction)
        enough = _target_reached(run, measured)
        if following.save and not enough and fraction < 1.0 and following.due():
            following.save(Checkpoint(list(measured), interpreter.memory.snapshot()))
        return enough

    look(0.0)
    schedule = recording.watched(interpreter, look)
    points = recording.cadence.points(schedule)
    if recording.cadence.unit == "seconds" and _target_reached(run, measured) and len(measured) < len(points.rows):
        at = float(points.seconds[len(measured) - 1])
        schedule = recording.up_to(at, statistics=interpreter.memory.statistics)
    else:
        del measured[len(points.rows) - 1 :]  # the end is evaluated after all events at its time
        while len(measured) < len(points.rows):
            look(1.0)
    return schedule, measured, do.answer(states)


def _target_reached(run: Run, measured: Measured) -> bool:
    """Return True if the run has reached its target; the starting point never counts."""
    return run.stop.target_loss is not None and len(measured) > 1 and measured[-1]["loss"] <= run.stop.target_loss


def _metrics(run: Run, points: Points, measured: Measured) -> pd.DataFrame:
    """Return one row per evaluation point; without a task only the counts."""
    seconds = points.seconds if run.protocol.has_clock else np.full(len(points.rows), np.nan)
    frame = pd.DataFrame({"virtual_seconds": seconds, "updates": points.updates, "gradients": points.gradients})
    if run.task is not None and run.task.tokens:
        frame["tokens"] = points.gradients * run.task.tokens
    if measured:
        frame = pd.concat([frame, pd.DataFrame(measured)], axis=1)
    return frame


def _initial(problem: Problem) -> Named:
    """Return the initial parameters; if replicas start apart, those of each under its number."""
    if len(problem.models) == 1:
        return _named(problem.params)
    return {
        f"replica-{number}/{path}": array
        for number, model in enumerate(problem.models)
        for path, array in _named(model).items()
    }


def _named(params: Params) -> Named:
    """Return each parameter array under its path, such as `layer0/weights`."""
    leaves = jax.tree_util.tree_flatten_with_path(params)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="/") or "params": plain(leaf) for path, leaf in leaves}
