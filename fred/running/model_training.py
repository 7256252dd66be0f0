"""Training of a run's models: replay its schedule, or compute during the simulation; evaluate at the points.

There are three ways, with the same bits. A recorded schedule is *replayed* as one compiled program, which knows all later rows
and computes no wasted gradient. A protocol whose timing depends on values (a loss, a statistic) cannot be recorded first: it is
computed *inline*, row by row, while the simulation waits. With failures of the whole job an inline run would compute work that
a failure undoes later, so it records first and then *interprets* what lasted.

A run that reaches its target early ends at that point. Its schedule is recorded again up to there, which is quick, instead of
cut: gradients under way and events at that very moment are then those of a run with this end.
"""

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

from fred.base.progress import Measured
from fred.components.component import NANOSECONDS
from fred.learning.models.model import Params
from fred.learning.models.named import name_arrays
from fred.learning.server import State
from fred.outcomes.outcome import Named
from fred.replay.helpers import replay
from fred.replay.interpreter import Interpreter
from fred.replay.machine import states_at
from fred.running.cadence import Points
from fred.running.checkpoints import Checkpoint, Following
from fred.running.problem import Problem
from fred.running.recording import Recording
from fred.running.timings import Timings
from fred.schedule.schedule import Ints, Schedule, message_key
from fred.schedule.spans import is_undone
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


def train(run: Run, task: Task, seed: int, inline: bool, following: Following, timings: Timings, cores: int = 1) -> Trained:
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
        schedule, measured, params = _interpreted(run, recording, problem, following)
    elif inline or run.protocol.needs_values:
        schedule, measured, params = _inline(run, recording, problem, following)
    else:
        schedule, measured, params = _replayed(run, recording, problem, following, timings, cores)
    points = recording.cadence.points(schedule)
    return Trained(schedule, points, measured, _initial(problem), name_arrays(params), problem.data.digest)


def _replayed(
    run: Run, recording: Recording, problem: Problem, following: Following, timings: Timings, cores: int
) -> tuple[Schedule, Measured, Params]:
    """Record, then replay. If the target is reached early, record the schedule again up to that point."""
    schedule = timings.schedule(recording)
    points, arithmetic, resumed = recording.cadence.points(schedule), problem.arithmetic, following.resumed
    program = timings.program(schedule, points.rows, arithmetic)
    measured, reached = (list(resumed.measured), resumed.reached) if resumed else ([], None)
    passed = len(measured)
    replaying = replay(program, arithmetic, problem.models, problem.examples, problem.batches, reached, passed, cores)
    with contextlib.closing(replaying) as marks:  # whatever ends this, its helpers end with it
        for number, mark in enumerate(marks, start=passed):
            if number > passed and program.repeats(number):
                measured.append(measured[-1])
            else:
                states = states_at(program, number, mark, arithmetic, problem.layout.answer)
                measured.append(problem.measure(states))
            following.report(len(measured) / len(points.rows), measured)
            if _target_reached(run, measured):
                schedule = _shorten(recording, schedule, points, number)
                break
            if following.save and len(measured) < len(points.rows) and following.due():
                following.save(Checkpoint(list(measured), mark.snapshot()))
    return schedule, measured, arithmetic.answer(states)


def _shorten(recording: Recording, schedule: Schedule, points: Points, number: int) -> Schedule:
    """Return the schedule up to this point, at which the target was reached; recorded again, unless it ends there."""
    rows, at = int(points.rows[number]), float(points.seconds[number])
    if rows == len(schedule) and at >= schedule.end_ns / NANOSECONDS:
        return schedule
    if recording.cadence.unit == "seconds" and not is_undone(schedule, at):
        return recording.schedule_until(at)
    return recording.schedule_until(rows=rows, since=int(schedule["time_ns"][rows - 1]))


def _interpreted(run: Run, recording: Recording, problem: Problem, following: Following) -> tuple[Schedule, Measured, Params]:
    """Record, then compute row by row: until the recording is over, a failure may undo any work."""
    schedule = recording.schedule()
    points, measured = recording.cadence.points(schedule), Measured()
    for number, states in enumerate(_interpret(problem, schedule, points.rows)):
        measured.append(problem.measure(states))
        following.report(len(measured) / len(points.rows), measured)
        if _target_reached(run, measured):
            schedule = _shorten(recording, schedule, points, number)
            break
    return schedule, measured, problem.arithmetic.answer(states)


def _interpret(problem: Problem, schedule: Schedule, marks: Ints) -> Iterator[list[State]]:
    """Yield the states of the replicas that are the answer at each mark: rows before which they are read, ascending."""
    replicas = problem.layout.replicas
    interpreter = Interpreter(problem.arithmetic, problem.models, replicas, problem.examples, problem.batches)
    schedule = schedule.by_minibatch()
    last_uses, rows, position = LastUses(schedule), iter(schedule), 0
    for mark in marks.tolist():
        for number in range(position, mark):
            interpreter.execute(next(rows))
            last_uses.release(interpreter, number)
        position = mark
        yield interpreter.states(problem.layout.answer)


class LastUses:
    """The values that an interpreter of a recorded schedule can release after each row.

    Args:
        schedule: the whole run, by minibatches.
    """

    def __init__(self, schedule: Schedule):
        mailboxes, messages = dict[int, int](), dict[tuple[int, ...], int]()  # last row of each
        for number, row in enumerate(schedule):
            mailboxes[row.mailbox] = mailboxes[row.source] = number
            messages[message_key(row.worker, row.step, row.source, row.mailbox)] = number
        self._mailboxes, self._messages = _by_row(mailboxes), _by_row(messages)

    def release(self, interpreter: Interpreter, number: int) -> None:
        """Release the values whose last use is in this row."""
        for mailbox in self._mailboxes.get(number, ()):
            interpreter.forget_mailbox(mailbox)
        for message in self._messages.get(number, ()):
            interpreter.forget_message(message)


def _by_row(rows: dict[Any, int]) -> dict[int, list[Any]]:
    values = dict[int, list[Any]]()
    for value, row in rows.items():
        values.setdefault(row, []).append(value)
    return values


def _inline(run: Run, recording: Recording, problem: Problem, following: Following) -> tuple[Schedule, Measured, Params]:
    """Record and compute at once. If the target is reached at a point in time, record the schedule again up to it."""
    arithmetic, resumed, replicas = problem.arithmetic, following.resumed, problem.layout.replicas
    measured, reached = (list(resumed.measured), resumed.reached) if resumed else ([], None)
    interpreter = Interpreter(arithmetic, problem.models, replicas, problem.examples, problem.batches, reached)
    interpreter.loss = lambda: problem.measure(interpreter.states(problem.layout.answer))["loss"]
    looks = itertools.count(1)  # counts points, including those measured before
    states: list[State] = []  # at the last point

    def look(fraction: float) -> bool:
        if next(looks) <= (len(resumed.measured) if resumed else 0):
            return False
        states[:] = interpreter.states(problem.layout.answer)
        measured.append(problem.measure(states))
        following.report(fraction, measured)
        is_reached = _target_reached(run, measured)
        if following.save and not is_reached and fraction < 1.0 and following.due():
            following.save(Checkpoint(list(measured), interpreter.memory.snapshot()))
        return is_reached

    look(0.0)
    schedule = recording.watched(interpreter, look)
    points = recording.cadence.points(schedule)
    if recording.cadence.unit == "seconds" and _target_reached(run, measured) and len(measured) < len(points.rows):
        at = float(points.seconds[len(measured) - 1])
        schedule = recording.schedule_until(at, statistics=interpreter.memory.statistics)
    else:
        del measured[len(points.rows) - 1 :]  # the end is evaluated after all events at its time
        while len(measured) < len(points.rows):
            look(1.0)
    return schedule, measured, arithmetic.answer(states)


def _target_reached(run: Run, measured: Measured) -> bool:
    """Return True if the run has reached its target; the starting point never counts."""
    return run.stop.target_loss is not None and len(measured) > 1 and measured[-1]["loss"] <= run.stop.target_loss


def _initial(problem: Problem) -> Named:
    """Return the initial parameters; if replicas start apart, those of each under its number."""
    if len(problem.models) == 1:
        return name_arrays(problem.params)
    return {
        f"replica-{number}/{path}": array
        for number, model in enumerate(problem.models)
        for path, array in name_arrays(model).items()
    }
