"""Training of a run's models: replay its schedule, or compute during the simulation; evaluate at the points."""

import contextlib
import itertools
from typing import NamedTuple

from fred.base.progress import Measured
from fred.components.limits import NANOSECONDS
from fred.learning.models.model import Params
from fred.learning.models.named import to_named
from fred.learning.server import State
from fred.outcomes.outcome import Named
from fred.replay.helpers import replay
from fred.replay.interpreter import Interpreter
from fred.replay.machine import states_at
from fred.running.cadence import Points
from fred.running.checkpoints import Checkpoint, Following
from fred.running.interpreted import interpreted
from fred.running.problem import Problem
from fred.running.recording import Recording
from fred.running.timings import Timings
from fred.schedule.absences import undone
from fred.schedule.schedule import Schedule
from fred.specification.shape import Run
from fred.specification.task import Task


class Trained(NamedTuple):
    """The schedule of a run with a task, and everything computed along it."""

    schedule: Schedule
    points: Points
    measured: Measured  # at each point
    initial: Named
    final: Named
    data: str  # SHA-256


def trained(run: Run, task: Task, seed: int, inline: bool, following: Following, timings: Timings, cores: int = 1) -> Trained:
    """Record a run's schedule and train its models. Raises FredError.

    Args:
        run: specification of the run.
        task: its task.
        seed: seed of every random draw of timing and arithmetic.
        inline: compute during the simulation of timing.
        following: callbacks for progress and checkpoints, and the checkpoint from which to resume.
        timings: cache of schedules, for runs with the same timing.
        cores: largest number of processes that replay the run.
    """
    problem = Problem(task, run, seed)
    recording = Recording(run, seed, problem.sizes)
    if inline and run.cluster.failures is not None:
        schedule, measured, params = _row_by_row(run, recording, problem, following)
    elif inline or run.protocol.needs_values:
        schedule, measured, params = _inline(run, recording, problem, following)
    else:
        schedule, measured, params = _replayed(run, recording, problem, following, timings, cores)
    points = recording.cadence.points(schedule)
    return Trained(schedule, points, measured, _initial(problem), to_named(params), problem.data.digest)


def _replayed(
    run: Run, recording: Recording, problem: Problem, following: Following, timings: Timings, cores: int
) -> tuple[Schedule, Measured, Params]:
    """Record, then replay. If the target is reached early, record the schedule again up to that point."""
    schedule = timings.schedule(recording)
    points, do, resumed = recording.cadence.points(schedule), problem.arithmetic, following.resumed
    program = timings.program(schedule, points.rows, do)
    measured, reached = (list(resumed.measured), resumed.reached) if resumed else ([], None)
    passed = len(measured)
    replaying = replay(program, do, problem.models, problem.examples, problem.batches, reached, passed, cores)
    with contextlib.closing(replaying) as marks:  # whatever ends this, its helpers end with it
        for number, mark in enumerate(marks, start=passed):
            if number > passed and program.repeats(number):
                measured.append(measured[-1])
            else:
                states = states_at(program, number, mark, do, problem.layout.answer)
                measured.append(problem.measure(states))
            following.report(len(measured) / len(points.rows), measured)
            if _target_reached(run, measured):
                schedule = _up_to(recording, schedule, points, number)
                break
            if following.save and len(measured) < len(points.rows) and following.due():
                following.save(Checkpoint(list(measured), mark.snapshot()))
    return schedule, measured, do.answer(states)


def _up_to(recording: Recording, schedule: Schedule, points: Points, number: int) -> Schedule:
    """Return the schedule up to this point, at which the target was reached; recorded again, unless it ends there."""
    rows, at = int(points.rows[number]), float(points.seconds[number])
    if rows == len(schedule) and at >= schedule.end_ns / NANOSECONDS:
        return schedule
    if recording.cadence.unit == "seconds" and not undone(schedule, at):
        return recording.up_to(at)
    return recording.up_to(rows=rows, since=int(schedule["time_ns"][rows - 1]))


def _row_by_row(run: Run, recording: Recording, problem: Problem, following: Following) -> tuple[Schedule, Measured, Params]:
    """Record, then compute row by row: until the recording is over, a failure may undo any work."""
    schedule = recording.schedule()
    points, measured = recording.cadence.points(schedule), Measured()
    for number, states in enumerate(interpreted(problem, schedule, points.rows)):
        measured.append(problem.measure(states))
        following.report(len(measured) / len(points.rows), measured)
        if _target_reached(run, measured):
            schedule = _up_to(recording, schedule, points, number)
            break
    return schedule, measured, problem.arithmetic.answer(states)


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
        following.report(fraction, measured)
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


def _initial(problem: Problem) -> Named:
    """Return the initial parameters; if replicas start apart, those of each under its number."""
    if len(problem.models) == 1:
        return to_named(problem.params)
    return {
        f"replica-{number}/{path}": array
        for number, model in enumerate(problem.models)
        for path, array in to_named(model).items()
    }
