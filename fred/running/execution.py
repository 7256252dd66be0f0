"""Where timing and arithmetic meet: record a run's schedule, replay it (or do both at once), measure on the way."""

import hashlib
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred import streams
from fred.errors import FredError
from fred.learning.data.dataset import Data, Dataset
from fred.learning.models.model import Params
from fred.learning.problem import Arrays, Loss, check_memory, initial_params, on_device
from fred.minibatches import Minibatches
from fred.replay.arithmetic import Arithmetic
from fred.replay.interpreter import Inline
from fred.replay.lower import lower
from fred.replay.machine import replay
from fred.running.cadence import Points
from fred.scenario.blame import blamed
from fred.scenario.shape import Run, Task
from fred.schedule import Schedule
from fred.timing.durations import LONGEST
from fred.timing.recorder import Recorder
from fred.timing.simulation import Simulation

Progress = Callable[[float], None]  # told the fraction done
Named = dict[str, NDArray]  # parameters by path


@dataclass(frozen=True)
class Outcome:
    """What one run with one seed came to."""

    name: str
    seed: int
    run: Run
    schedule: Schedule
    metrics: pd.DataFrame  # one row per evaluation point
    initial: Named  # parameters before the first update
    final: Named
    data_digest: str | None

    @property
    def params_digest(self) -> str | None:
        """SHA-256 of the final parameters: the identity of the arithmetic."""
        return digest(self.final)


def digest(params: Named) -> str | None:
    """SHA-256 of parameters; None if there are none."""
    if not params:
        return None
    sha = hashlib.sha256()
    for path, array in sorted(params.items()):
        sha.update(f"{path} {array.dtype.str} {array.shape}".encode())
        sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()


def check(name: str, run: Run, seed: int) -> None:
    """Find out before anything runs whether the data are there and the model fits them. Raises FredError."""
    with blamed(name, run):
        if run.task is not None:
            _Problem(run.task, run, seed)


def execute(name: str, run: Run, seed: int, inline: bool = False, progress: Progress = lambda _: None) -> Outcome:
    """One run with one seed. Bitwise the same whenever and beside whatever else it is run. Raises FredError.

    Timing is recorded first and the arithmetic replayed; `inline` does both at once, with the same result.
    """
    with blamed(name, run):
        return _execute(name, run, seed, inline, progress)


def _execute(name: str, run: Run, seed: int, inline: bool, progress: Progress) -> Outcome:
    if run.task is None:
        schedule = _record(_start(run, seed, Recorder(*_sizes(run), **_limits(run)), 0), run.stop.seconds)
        return Outcome(name, seed, run, schedule, _metrics(run, schedule, []), {}, {}, None)
    problem = _Problem(run.task, run, seed)
    inline = inline or run.protocol.needs_values
    schedule, measured, params = (_inline if inline else _replayed)(run, seed, problem, progress)
    metrics = _metrics(run, schedule, measured)
    return Outcome(name, seed, run, schedule, metrics, _named(problem.params), _named(params), problem.data.digest)


class _Problem:
    """A task made concrete for one seed."""

    def __init__(self, task: Task, run: Run, seed: int):
        self.data = _load(task.data, seed if task.data.generated else 0)
        self.loss = Loss(task.model, self.data.classifies)
        check_memory(task.model, self.data, run.protocol.replicas(run.cluster) if run.protocol.decentralised else 1)
        self.models = [initial_params(task.model, self.data, number) for number in _initial_seeds(task, seed, run)]
        self.params = self.models[0]
        self.arithmetic = Arithmetic.of(run.algorithm, self.loss, self.params, run.protocol.blocks(run.cluster))
        self.decentralised = run.protocol.decentralised
        self.size = sum(leaf.nbytes for leaf in jax.tree.leaves(self.params))  # bytes of one model
        self.examples, self.evaluation = _arrays(self.data)
        self.batches = Minibatches(seed, task.batch_size, len(self.data.train), task.sampling, run.cluster.size)

    def measure(self, replicas: Params) -> dict[str, float]:
        """Loss and error on the evaluation examples; how far workers' own models are apart."""
        loss, error = _plain(self.loss.evaluate(self.arithmetic.consensus(replicas), self.evaluation)).tolist()
        if not self.decentralised:
            return {"loss": loss, "error": error}
        return {"loss": loss, "error": error, "disagreement": float(_plain(self.arithmetic.disagreement(replicas)))}


Measured = list[dict[str, float]]  # what was measured at each point


def _replayed(run: Run, seed: int, problem: _Problem, progress: Progress) -> tuple[Schedule, Measured, Params]:
    """Record, then replay. If the target is reached on the way, the schedule is recorded again up to there."""
    schedule = _record(_start(run, seed, Recorder(*_sizes(run), **_limits(run)), problem.size), run.stop.seconds)
    unit, spacing = run.evaluate.spacing(run.stop)
    points = Points.of(schedule, unit, spacing)
    program = lower(schedule, points.rows)
    measured: Measured = []
    for replicas in replay(program, problem.arithmetic, problem.models, problem.examples, problem.batches):
        measured.append(problem.measure(replicas))
        progress(len(measured) / len(points.rows))
        if _target_reached(run, measured) and len(measured) < len(points.rows):
            last = len(measured) - 1
            limit = {} if unit == "seconds" else {"rows": int(points.rows[last])}
            recorder = Recorder(*_sizes(run), **limit)
            schedule = _record(_start(run, seed, recorder, problem.size), points.seconds[last] if unit == "seconds" else None)
            break
    return schedule, measured, problem.arithmetic.consensus(replicas)


def _inline(run: Run, seed: int, problem: _Problem, progress: Progress) -> tuple[Schedule, Measured, Params]:
    """Record and compute at once."""
    measured: Measured = []

    def observe(replicas: Params) -> bool:
        measured.append(problem.measure(replicas))
        progress(min(1.0, recorder.updates / max(1.0, _limits(run)["updates"])))
        return _target_reached(run, measured)

    unit, spacing = run.evaluate.spacing(run.stop)
    recorder = Inline(
        *_sizes(run),
        **_limits(run),
        arithmetic=problem.arithmetic,
        models=problem.models,
        examples=problem.examples,
        batches=problem.batches,
        observe=observe,
        every=(unit, spacing),
    )
    recorder.observe()
    simulation = _start(run, seed, recorder, problem.size)
    times = []  # of the points, ns

    def observe_now() -> None:
        times.append(simulation.now)
        recorder.observe()

    if unit == "seconds":
        simulation.every(spacing, observe_now)
    schedule = _record(simulation, run.stop.seconds)
    if times and times[-1] == schedule.end_ns:
        measured.pop()  # the end is measured after what happens then
    points = len(Points.of(schedule, unit, spacing).rows)
    while len(measured) < points:  # the end, and points after the last update
        recorder.observe()
    return schedule, measured, problem.arithmetic.consensus(recorder.replicas())


def _start(run: Run, seed: int, recorder: Recorder, model_bytes: int) -> Simulation:
    with _representable():
        simulation = Simulation(run.cluster, recorder, seed, model_bytes)
        run.protocol.start(simulation)
    return simulation


def _record(simulation: Simulation, seconds: float | None) -> Schedule:
    with _representable():
        simulation.run(seconds or math.inf)
        return simulation.record.schedule(simulation.now)


@contextmanager
def _representable() -> Iterator[None]:
    try:
        yield
    except OverflowError as error:
        raise FredError(f"virtual time passes {LONGEST:g} s; check durations (in seconds) and bandwidths (bytes/s)") from error


def _sizes(run: Run) -> tuple[int, int, int]:
    """Workers, replicas, blocks."""
    return run.cluster.size, run.protocol.replicas(run.cluster), run.protocol.blocks(run.cluster)


def _initial_seeds(task: Task, seed: int, run: Run) -> list[int]:
    """What the replicas' first parameters are drawn with: all with the run's seed, unless they are to start apart."""
    replicas = run.protocol.replicas(run.cluster) if task.replicas_start == "apart" else 1
    return [seed, *(streams.stream_key(seed, f"replica {number}")[0] for number in range(1, replicas))]


def _limits(run: Run) -> dict[str, Any]:
    return {"updates": run.stop.updates or math.inf, "gradients": run.stop.gradients or math.inf}


def _target_reached(run: Run, measured: Measured) -> bool:
    """Whether the run is to stop here; the starting point never counts."""
    return run.stop.target_loss is not None and len(measured) > 1 and measured[-1]["loss"] <= run.stop.target_loss


def _metrics(run: Run, schedule: Schedule, measured: Measured) -> pd.DataFrame:
    """One row per evaluation point; without a task only the counts."""
    points = Points.of(schedule, *run.evaluate.spacing(run.stop))
    seconds = points.seconds if run.protocol.has_clock else np.full(len(points.rows), np.nan)
    frame = pd.DataFrame({"virtual_seconds": seconds, "updates": points.updates, "gradients": points.gradients})
    if measured:
        frame = pd.concat([frame, pd.DataFrame(measured)], axis=1)
    return frame


def _named(params: Params) -> Named:
    """Each parameter array under its path, such as `layer0/weights`."""
    leaves = jax.tree_util.tree_flatten_with_path(params)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="/") or "params": _plain(leaf) for path, leaf in leaves}


def _plain(array: jax.Array) -> NDArray:
    """As NumPy has it; all that is not a number alike, for its sign and payload follow the order of operands."""
    return np.where(np.isnan(array), np.float32(np.nan), array)


@lru_cache(maxsize=4)
def _load(data: Data, seed: int) -> Dataset:
    return data.load(seed)


@lru_cache(maxsize=4)
def _arrays(data: Dataset) -> tuple[Arrays, Arrays]:
    return on_device(data.train), on_device(data.evaluation)
