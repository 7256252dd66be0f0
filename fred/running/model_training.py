"""Training of a run's models: its concrete task, replayed or computed during the simulation, and evaluated at the points.

There are three ways, with the same bits. A recorded schedule is *replayed* as one compiled program, which knows all later rows
and computes no wasted gradient. A protocol whose timing depends on values (a loss, a statistic) cannot be recorded first: it is
computed *inline*, row by row, while the simulation waits. With failures of the whole job an inline run would compute work that
a failure undoes later, so it records first and then *interprets* what lasted.

A run that reaches its target early ends at that point. Its schedule is recorded again up to there, which is quick, instead of
cut: gradients under way and events at that very moment are then those of a run with this end.
"""

import contextlib
import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from fred.base import cached, numerics
from fred.base.progress import Measured
from fred.base.types import Ints
from fred.components.component import NANOSECONDS
from fred.learning.data.dataset import Dataset, loaded
from fred.learning.loss import CALIBRATED_BY, Arrays, CrossEntropy, Loss, initial_params, on_device
from fred.learning.models.model import Params
from fred.learning.models.named import name_arrays, unify_nans
from fred.learning.server import State
from fred.outcomes.outcome import Named
from fred.replay.arithmetic import Arithmetic
from fred.replay.helpers import replay
from fred.replay.interpreter import Interpreter
from fred.replay.machine import states_at
from fred.running.checkpoints import Checkpoint, Following
from fred.running.recording import Points, Recording, Timings
from fred.schedule.minibatches import Minibatches, Parts, divide, divide_by_owner, divide_by_quantity, divide_by_shares
from fred.schedule.schedule import Schedule, message_key
from fred.schedule.spans import is_undone
from fred.specification.shape import Run
from fred.specification.task import Task

_JUDGEMENTS = 1 << 15  # examples at each point, summed over replicas


class Problem:
    """A task for one run with one seed, whose parts fit each other (`checks.py`). Raises FredError for missing data.

    Args:
        task: data, model, and how minibatches are drawn.
        run: its algorithm, protocol and cluster determine the replicas and their updates.
        seed: seed of initial parameters, minibatches and generated data.
    """

    def __init__(self, task: Task, run: Run, seed: int):
        self.data = loaded(task.data, seed)
        self.loss = Loss.for_data(task.model, task.loss, self.data, task.l2)
        self.layout = run.protocol.layout(run.cluster)
        self.models = [initial_params(task.model, self.data, number) for number in _initial_seeds(task, seed, run)]
        self.params = self.models[0]
        shapes = self.params, self.layout, run.cluster.size, task.batch_size, task.context or 1
        self.arithmetic = Arithmetic.build(run.algorithm, self.loss, *shapes)
        self.parts = parts = _parts(task, self.data, seed, run.cluster.size)
        self.sizes = self.arithmetic.sizes  # bytes of models and messages
        if parts is not None and run.protocol.needs_examples:
            self.sizes = self.sizes._replace(examples=tuple(np.diff(parts.begins).tolist()))
        self.examples, self.evaluation = _arrays(self.data)
        self.seen = self.examples[0][:CALIBRATED_BY] if task.model.calibrates else None  # calibrate each evaluation
        self._norm = run.evaluate.measures_gradient_norm
        of_tokens = self.data.tokens and isinstance(self.loss.function, CrossEntropy)
        self._of_tokens = Loss(task.model, CrossEntropy()) if of_tokens else None  # its exponential is the perplexity
        self._examples_of_replicas = _examples_of_replicas(len(self.data.evaluation), len(self.layout.answer))
        workers, draws = run.cluster.size, task.model.draws
        self.batches = Minibatches(seed, task.batch_size, len(self.data.train), task.sampling, workers, parts, draws)

    def measure(self, states: list[State]) -> dict[str, float]:
        """Return loss and error on the evaluation examples; for several replicas also their own means and disagreement.

        If requested, the result includes the norm of the gradient over all these examples. Sequences with a cross-entropy
        loss have a perplexity, too: that of the tokens alone, without label smoothing and without `l2`.

        Args:
            states: states of the replicas that are the answer, in order.
        """
        arithmetic = self.arithmetic
        operands = arithmetic.answer(states), self.evaluation, self.seen
        values = dict(zip(("loss", "error"), unify_nans(self.loss.evaluate(*operands)).tolist(), strict=True))
        if self._of_tokens:
            nats = values["loss"] if self._of_tokens == self.loss else float(unify_nans(self._of_tokens.evaluate(*operands))[0])
            values["perplexity"] = math.exp(nats) if nats < 700 else math.inf  # a float would overflow
        if self._norm:
            values["gradient_norm"] = float(unify_nans(self.loss.gradient_norm(*operands)))
        if len(self.layout.answer) == 1:
            return values
        replicas = jax.vmap(lambda *blocks: arithmetic.blocks.join(blocks))(*(state.params for state in states))
        loss, error = unify_nans(
            arithmetic.mean_replica_loss(states, self.evaluation, self._examples_of_replicas, self.seen)
        ).tolist()
        disagreement = float(unify_nans(arithmetic.disagreement(replicas)))
        return {**values, "disagreement": disagreement, "replicas_loss": loss, "replicas_error": error}


def _examples_of_replicas(examples: int, replicas: int) -> NDArray[np.int32]:
    """Return the evaluation examples of each replica: all if that is cheap, else a part each, which together cover all.

    So a point costs about the larger of one evaluation and `_JUDGEMENTS`, whatever the number of replicas.
    """
    examples_each = min(examples, max(-(-examples // replicas), _JUDGEMENTS // replicas))
    begins = np.arange(replicas) * examples // replicas
    return ((begins[:, None] + np.arange(examples_each)) % examples).astype(np.int32)


def _parts(task: Task, data: Dataset, seed: int, workers: int) -> Parts | None:
    """Return each worker's part of the examples, if they are divided."""
    if task.division == "shared":
        return None
    seed = seed if task.division_seed is None else task.division_seed
    if task.division == "dirichlet":
        return divide_by_shares(seed, data.train.answers, workers, task.concentration)
    if task.division == "by-owner":
        assert data.owners is not None
        return divide_by_owner(data.owners)
    if task.division == "by-quantity":
        return divide_by_quantity(seed, len(data.train), workers, task.concentration)
    return divide(seed, len(data.train), workers, data.train.answers if task.division == "by-label" else None)


def _initial_seeds(task: Task, seed: int, run: Run) -> list[int]:
    """Return the seeds of the replicas' initial parameters: the run's seed for all, unless replicas start apart."""
    replicas = run.protocol.layout(run.cluster).replicas if task.replicas_start == "apart" else 1
    return [seed, *(numerics.stream_key(seed, f"replica {number}")[0] for number in range(1, replicas))]


@cached.data(4)
def _arrays(data: Dataset) -> tuple[Arrays, Arrays]:
    return on_device(data.train), on_device(data.evaluation)


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
    first = len(measured)  # point that this process measures first
    replaying = replay(program, arithmetic, problem.models, problem.examples, problem.batches, reached, first, cores)
    with contextlib.closing(replaying) as marks:  # whatever ends this, its helpers end with it
        for number, mark in enumerate(marks, start=first):
            if number > first and program.repeats(number):  # nothing has changed since the point before
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
    rows, seconds = int(points.rows[number]), float(points.seconds[number])
    if rows == len(schedule) and seconds >= schedule.end_ns / NANOSECONDS:
        return schedule
    # A recording that ends at a moment whose work a failure undoes later would hold that work.
    if recording.cadence.unit == "seconds" and not is_undone(schedule, seconds):
        return recording.schedule_until(seconds)
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


def _by_row(last_rows: dict[Any, int]) -> dict[int, list[Any]]:
    values = dict[int, list[Any]]()
    for value, row in last_rows.items():
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
        seconds = float(points.seconds[len(measured) - 1])
        schedule = recording.schedule_until(seconds, statistics=interpreter.memory.statistics)
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
