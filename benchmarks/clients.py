"""Ten thousand clients, a hundred in each round: the replay against a bare loop of the same local steps, and memory."""

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import fred  # before jax
from benchmarks.common import Row, medians
from benchmarks.whole import Timed, timed
from fred.learning.models.model import Params
from fred.replay.helpers import replay
from fred.replay.lower import lower
from fred.running.model_training import Problem
from fred.running.recording import Recording
from fred.schedule.schedule import Verb

CLIENTS, STEPS, FEW, MANY = 100, 10, 5, 500  # in a round, of a client, rounds
RATE = 0.05


def long_rows() -> Iterator[Row]:
    """Yield ratios, seconds and GiB."""
    replayed, bare = _build_loops()
    replay_seconds, bare_seconds = medians([replayed, bare])
    yield Row(
        "10,000 clients, 784-200-10, batch 32: replay / bare loop of the local steps", replay_seconds / bare_seconds, "x", 1.3
    )
    yield Row("  a local step", replay_seconds / (FEW * CLIENTS * STEPS) * 1e6, "us")
    program = _run_program()
    yield Row(f"10,000 clients, {MANY} rounds of {CLIENTS} with {STEPS} steps", program.seconds, "s")
    yield Row("  its memory", program.memory, "GiB", 3)


def _settings(rounds: int) -> dict[str, Any]:
    data = {"name": "synthetic-classification", "examples": 20_000, "evaluation": 1000, "features": 784}
    return {
        "task": {"data": data, "model": {"name": "mlp", "hidden": [200]}, "batch_size": 32, "division": "divided"},
        "cluster": {"workers": 10_000, "compute": {"name": "lognormal", "median": 0.1, "sigma": 0.7}},
        "stop": {"updates": rounds * (CLIENTS * STEPS + 1)},
        "evaluate": {"points": 4},
        "algorithm": {"name": "fedavg", "learning_rate": RATE},
        "protocol": {"clients": CLIENTS, "period": STEPS},
    }


def _run_program() -> Timed:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clients.yaml"
        path.write_text(json.dumps({"title": "clients", **_settings(MANY)}))
        return timed("run", str(path), "--no-report")


def _build_loops() -> tuple[Callable[[], object], Callable[[], object]]:
    """Return the replay of a few rounds, and a loop that takes the same local steps and does nothing else."""
    run = fred.scenario(_settings(FEW)).runs["fedavg"]
    assert run.task is not None
    problem = Problem(run.task, run, 0)
    recording = Recording(run, 0, problem.sizes)
    schedule = recording.schedule()
    arithmetic, points = problem.arithmetic, recording.cadence.points(schedule)
    program = lower(schedule, points.rows, hooks=arithmetic.hooks)
    pushes = schedule.rows(Verb.PUSH)
    indices = problem.batches.indices(schedule["worker"][pushes], schedule["step"][pushes], 0)
    batches = jnp.asarray(indices.reshape(FEW, CLIENTS, STEPS, -1))

    def replayed() -> object:
        *_, last = replay(program, arithmetic, problem.models, problem.examples, problem.batches)
        return jax.block_until_ready(last.carry)

    def client(model: Params, batch: jax.Array) -> Params:
        def step(number: int, params: Params) -> Params:
            grads = problem.loss.gradient(params, problem.examples, batch[number])
            return jax.tree.map(lambda p, g: p - RATE * g, params, grads)

        return jax.lax.fori_loop(0, STEPS, step, model)

    def one_round(number: int, model: Params) -> Params:
        def add(member: int, total: Params) -> Params:
            return jax.tree.map(lambda t, p, q: t + (p - q), total, model, client(model, batches[number, member]))

        total = jax.lax.fori_loop(0, CLIENTS, add, jax.tree.map(jnp.zeros_like, model))
        return jax.tree.map(lambda p, t: p - t / CLIENTS, model, total)

    bare = jax.jit(lambda model: jax.lax.fori_loop(0, FEW, one_round, model))
    return replayed, lambda: jax.block_until_ready(bare(problem.params))
