"""Rounds of expensive gradients: sums in the order of workers, inline and replayed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fred.replay import arithmetic
from fred.running.execution import execute
from fred.running.problem import Problem
from tests.worlds import LAYERS, make_run, same


@pytest.fixture
def expensive(monkeypatch):
    monkeypatch.setattr(arithmetic, "_EXPENSIVE", 0)


@pytest.mark.parametrize("options", [{}, {"protocol": {"name": "synchronous", "backup_workers": 1}}], ids=["all", "some"])
def test_inline_and_replay_agree(expensive, options):
    run = make_run("ssgd", task=LAYERS, **options)
    assert same(execute("run", run, 1), execute("run", run, 1, inline=True))


def test_a_round_is_the_sum_of_its_gradients_in_the_order_of_workers(expensive):
    run = make_run("ssgd", task=LAYERS, stop={"updates": 1}, evaluate={"points": 1})
    assert run.task
    problem = Problem(run.task, run, seed=1)
    gradients = [
        jax.jit(problem.loss.gradient)(problem.params, problem.examples, problem.batches.one(worker, 0, 0))
        for worker in range(4)
    ]
    expected = jax.tree.map(
        lambda params, *each: params - np.float32(0.1) * (sum(each[1:], each[0]) * np.float32(0.25)), problem.params, *gradients
    )
    found = execute("run", run, 1)
    for one, other in zip(found.final.values(), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(one, jnp.asarray(other))


def test_only_rounds_of_expensive_gradients_have_other_bits(monkeypatch):
    run = make_run("ssgd", task=LAYERS)
    flat = execute("run", run, 1)
    monkeypatch.setattr(arithmetic, "_EXPENSIVE", 0)
    apart = execute("run", run, 1)
    assert flat.schedule.digest() == apart.schedule.digest()
    assert flat.params_digest != apart.params_digest
    for name, array in flat.final.items():
        np.testing.assert_allclose(apart.final[name], array, rtol=1e-3, atol=1e-5)


def test_the_cost_of_a_gradient_counts_tokens():
    model = {"name": "transformer", "width": 64, "layers": 2, "heads": 4}
    data = {"name": "bigrams", "context": 64}
    run = make_run("ssgd", task={"data": data, "model": model, "batch_size": 8})
    assert run.task
    assert Problem(run.task, run, 0).arithmetic.expensive
    assert not Problem(run.task.model_copy(update={"batch_size": 1}), run, 0).arithmetic.expensive
