"""Runs recomputed by an independent NumPy program from the recorded schedule alone; rounds of expensive gradients."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fred
from fred import batch_indices
from fred.components import registry
from fred.replay import arithmetic
from fred.results import experiment, folder
from fred.running.execution import execute
from fred.running.model_training import Problem
from fred.specification.loading import load
from tests.plain import PLAIN_CLASSES
from tests.plain.base import Context
from tests.recompute import PlainEqual, PlainSGD, largest_relative_error, recompute, recompute_by
from tests.worlds import CLUSTERS, COMPUTE, LAYERS, make_run, outcome, same_outcome


def test_result_folder_is_enough_to_recompute_a_run(tmp_path, undrawn):
    """Only the files are read: schedule.parquet, params.npz, and the public functions for data and minibatches."""
    result = experiment.run(load("scenarios/quickstart.yaml", ["seeds=[5]", "stop.seconds=4"]), only=["fasgd"])
    folder.save(result, tmp_path / "out")
    files = tmp_path / "out" / "fasgd" / "seed-5"
    with np.load(files / "params.npz") as stored:
        initial, final = (
            {k.split("/", 1)[1]: stored[k] for k in stored.files if k.startswith(w)} for w in ("initial", "final")
        )
    server = PLAIN_CLASSES["fasgd"](
        {k: v.astype(float) for k, v in initial.items()}, Context(result.outcome("fasgd", 5).run, 5)
    )
    with np.load(Path(fred.__file__).parent / "learning/data/digits.npz") as digits:
        inputs, answers = digits["images"][:-360] / 16, digits["answers"][:-360]
    schedule = pd.read_parquet(files / "schedule.parquet")
    assert (schedule["verb"] == "PUSH").sum() > 400

    def minibatch(worker: int, step: int) -> Any:
        return batch_indices(5, worker, step, batch_size=8, examples=len(inputs))

    (params,) = recompute(schedule, [server], inputs, answers, minibatch)
    assert largest_relative_error(final, params) < 1e-4
    assert largest_relative_error(final, initial) > 0.1, "the run moved the parameters"


@settings(max_examples=6)
@given(CLUSTERS, st.integers(0, 9), st.sampled_from(["asynchronous", "synchronous", "backup", "dispatcher"]))
def test_random_runs_are_what_their_schedule_says(cluster, seed, protocol):
    name = "ssgd" if protocol in ("synchronous", "backup") else "asgd"
    options = {"name": "synchronous", "backup_workers": cluster.size // 3} if protocol == "backup" else protocol
    single = outcome(name, options, cluster.model_dump(), seed, stop={"gradients": 40})
    server = PlainSGD({k: v.astype(float) for k, v in single.initial.items()}, 0.125)
    assert largest_relative_error(single.final, recompute_by(single, [server])[0]) < 1e-4


@pytest.mark.slow
@settings(max_examples=3)
@given(st.integers(0, 10_000), st.sampled_from([(False, 1), (False, 1), (False, 3), (True, 1), (True, 2)]), st.integers(1, 3))
def test_a_random_program_of_verbs_is_what_its_schedule_says(number, world, workers):
    registry.allow_import(["tests.users"])
    (peers, blocks), cluster = world, {"workers": workers, "compute": COMPUTE, "servers": world[1]}
    protocol = {"name": "tests.users:Anything", "number": number, "peers": peers}
    run = make_run(protocol=protocol, cluster=cluster, stop={"gradients": 20})
    replayed, inline = (execute("run", run, 1, inline) for inline in (False, True))
    assert same_outcome(replayed, inline)
    initial = {k: v.astype(float) for k, v in replayed.initial.items()}
    replicas = workers if peers else 1
    cut = [PlainEqual(initial, 0.1, block, blocks) for _ in range(replicas) for block in range(blocks)]
    final = recompute_by(replayed, cut if blocks > 1 else [PlainSGD(initial, 0.1) for _ in range(replicas)])
    models = [PlainEqual.join(final[at : at + blocks], initial) for at in range(0, len(final), blocks)] if blocks > 1 else final
    params = {k: np.mean([model[k] for model in models], axis=0) for k in initial}
    assert largest_relative_error(replayed.final, params) < 1e-4


class TestExpensiveRounds:
    def test_only_rounds_of_expensive_gradients_have_other_bits(self, monkeypatch):
        run = make_run("ssgd", task=LAYERS, protocol={"name": "synchronous", "backup_workers": 1})
        flat = execute("run", run, 1)
        monkeypatch.setattr(arithmetic, "_EXPENSIVE", 0)
        separate, inline = (execute("run", run, 1, inline) for inline in (False, True))
        assert same_outcome(separate, inline) and flat.schedule.digest() == separate.schedule.digest()
        assert flat.params_digest != separate.params_digest
        for name, array in flat.final.items():
            np.testing.assert_allclose(separate.final[name], array, rtol=1e-3, atol=1e-5)

    def test_a_round_is_the_sum_of_its_gradients_in_the_order_of_workers(self, monkeypatch):
        monkeypatch.setattr(arithmetic, "_EXPENSIVE", 0)
        run = make_run("ssgd", task=LAYERS, stop={"updates": 1}, evaluate={"points": 1})
        assert run.task
        problem = Problem(run.task, run, seed=1)
        gradient = jax.jit(problem.loss.gradient)
        grads = [gradient(problem.params, problem.examples, problem.batches.minibatch(worker, 0, 0)) for worker in range(4)]
        expected = jax.tree.map(
            lambda params, *parts: params - np.float32(0.1) * (sum(parts[1:], parts[0]) * np.float32(0.25)),
            *(problem.params, *grads),
        )
        for actual, reference in zip(execute("run", run, 1).final.values(), jax.tree.leaves(expected), strict=True):
            np.testing.assert_array_equal(actual, jnp.asarray(reference))

    def test_the_cost_of_a_gradient_counts_tokens(self):
        model = {"name": "transformer", "width": 64, "layers": 2, "heads": 4}
        run = make_run("ssgd", task={"data": {"name": "bigrams", "context": 64}, "model": model, "batch_size": 8})
        assert run.task and Problem(run.task, run, 0).arithmetic.expensive
        assert not Problem(run.task.model_copy(update={"batch_size": 1}), run, 0).arithmetic.expensive
