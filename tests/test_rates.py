"""What goes on beside an update: schedules of the learning rate, its linear scaling, the moving average, weights in rounds."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fred
from fred import FredError
from fred.learning import optimizer
from fred.learning.optimizer import RateSchedule
from fred.outcomes.outcome import Outcome
from fred.running.execution import execute
from fred.running.model_training import Problem, _examples_of_replicas
from tests.plain.averages import PlainPush
from tests.plain.base import Context
from tests.recompute import PlainEqual, largest_relative_error, recompute_by
from tests.recompute import measure as plainly_measured
from tests.worlds import COMPUTE, LAYERS, make_run, same_outcome


def initial_of(outcome: Outcome) -> dict:
    return {k: v.astype(float) for k, v in outcome.initial.items()}


class TestSchedules:
    def test_the_rules_of_the_papers_are_what_their_formulas_say(self):
        decay = {"name": "exponential_decay", "transition_steps": 50}
        linear = {"name": "linear_schedule", "end_value": 0, "transition_begin": 60, "transition_steps": 100}
        pieces = {"name": "piecewise_constant_schedule", "boundaries_and_scales": {"30": 0.1, 60: 0.1}}
        warm_up = {"name": "warmup_constant_schedule", "init_value": 0.2, "warmup_steps": 10}
        formulas: list[tuple[Any, Callable[[int], float]]] = [
            (decay | {"decay_rate": 0.94}, lambda t: 0.94 ** (t / 50)),
            (decay | {"decay_rate": 0.5, "staircase": True}, lambda t: 0.5 ** (t // 50)),
            (linear, lambda t: 1 - np.clip((t - 60) / 100, 0, 1)),
            ({"name": "inverse_power_schedule", "power": 0.75}, lambda t: (t + 1) ** -0.75),
            (pieces, lambda t: 0.1 ** ((t >= 30) + (t >= 60))),
            ([warm_up, decay | {"decay_rate": 0.94}], lambda t: (0.2 + 0.8 * np.minimum(t, 10) / 10) * 0.94 ** (t / 50)),
        ]
        for schedule, expected in formulas:
            server = make_run({"name": "asgd", "learning_rate": 0.1, "schedule": schedule}).algorithm
            for count in (0, 1, 29, 30, 59, 60, 61, 77, 100, 10_000):
                assert float(optimizer.factor(server.schedule, jnp.int32(count))) == pytest.approx(expected(count), abs=1e-6)
            for part in server.schedule:
                assert RateSchedule.model_validate_json(part.model_dump_json()) == part

    def test_wrong_schedules_are_refused(self):
        for name, options, message in (
            ("exponential_decy", {}, "optax has no schedule `exponential_decy`; did you mean `exponential_decay`?"),
            ("adam", {}, "optax has no schedule `adam`.*it has cosine_decay_schedule"),
            ("linear_schedule", {"transition_steps": 3}, "optax.linear_schedule cannot be used .*end_value"),
            ("linear_schedule", {"end_valu": 3}, "has no option `end_valu` here; did you mean `end_value`?"),
            ("linear_schedule", {"end_value": 0, "transition_steps": 0}, "`transition_steps` .*expected a positive"),
            ("linear_schedule", {"end_value": -1, "transition_steps": 9}, "comes to -1.0; expected finite"),
            (
                "exponential_decay",
                {"decay_rate": np.nan},
                "`decay_rate` of `exponential_decay`: found nan; expected a finite number",
            ),
            ("piecewise_constant_schedule", {"boundaries_and_scales": {"x": 0.1}}, "found {'x': 0.1}; expected whole numbers"),
        ):
            with pytest.raises(FredError, match=message):
                make_run({"name": "asgd", "learning_rate": 0.1, "schedule": {"name": name, **options}})

    def test_every_base_rate_runs_the_same_program(self):
        schedule = {"name": "exponential_decay", "decay_rate": 0.9, "transition_steps": 5}
        options: dict[str, Any] = {"name": "asgd", "schedule": schedule, "scaling": "workers", "average": 0.9}
        runs = [make_run({**options, "learning_rate": rate}) for rate in (0.1, 0.3)]
        problems = [Problem(run.task, run, 0) for run in runs if run.task]
        assert problems[0].arithmetic == problems[1].arithmetic
        base_rates = [float(problem.arithmetic.start(problem.models, 1)[0].rate) for problem in problems]
        assert base_rates == pytest.approx([0.1 * 4, 0.3 * 4]), "4 workers"


class PlainChen(PlainEqual):
    """A server's part: clipped steps, averaged; their rate is scaled by a round's gradients, and warms up and decays by all."""

    def __init__(self, params: dict, rate: float, number: int, servers: int):
        super().__init__(params, rate, number, servers)
        self.processed, self.average = 0, self.params

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        step = self.rate * count * min(self.processed, 10) / 10 * 0.9 ** (self.processed / 50)
        self.params = {k: p - step * np.clip(grads[k], -0.02, 0.02) for k, p in self.params.items()}
        self.processed += count
        self.average = {k: 0.8 * a + 0.2 * self.params[k] for k, a in self.average.items()}


def test_rounds_with_scaling_decay_by_processed_data_clipping_and_average_are_what_numpy_says():
    warm_up = {"name": "linear_schedule", "init_value": 0, "end_value": 1, "transition_steps": 10}
    decay = {"name": "exponential_decay", "decay_rate": 0.9, "transition_steps": 50}
    algorithm = {"name": "ssgd", "learning_rate": 0.1, "scaling": "gradients", "counts": "gradients", "average": 0.8}
    algorithm |= {"schedule": [warm_up, decay], "optimizer": [{"name": "clip", "max_delta": 0.02}, "sgd"]}
    protocol = {"name": "partial", "gradients": 3, "push_timeout": 0.02}
    cluster = {"workers": 6, "compute": COMPUTE, "servers": 2, "network": {"bandwidth": 1e5}}
    outcome = execute("run", make_run(algorithm, protocol=protocol, cluster=cluster, stop={"gradients": 120}), 3)
    servers = [PlainChen(initial_of(outcome), 0.1, number, 2) for number in range(2)]
    recompute_by(outcome, servers)
    averages = PlainEqual.join([server.average for server in servers], servers[0].like)
    assert largest_relative_error(outcome.final, averages) < 1e-4
    assert largest_relative_error(outcome.final, PlainEqual.join([s.params for s in servers], servers[0].like)) > 1e-3
    per_round = outcome.schedule.ledger.gradients_per_update()
    assert per_round.max() > per_round.min()


class PlainDecayingPush(PlainPush):
    """Steps with g + 0.1 z at x, z = x / w; the rate is a tenth from the 10th update on; x and w are averaged."""

    def __init__(self, params: dict, context: Context):
        super().__init__(params, context)
        self.updates, self.average = 0, self.params

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        rate, z = self.rate * (0.1 if self.updates >= 10 else 1.0), self.model(self.params)
        self.params = self.params | {k: self.params[k] - rate * (g + 0.1 * z[k]) for k, g in grads.items()}
        self.updates += 1
        self.follow()

    def meet(self, mixed: dict, keep: float, weight: float) -> None:
        super().meet(mixed, keep, weight)
        self.follow()

    def follow(self) -> None:
        self.average = {k: 0.7 * a + 0.3 * self.params[k] for k, a in self.average.items()}


def test_push_sum_decays_the_model_counts_no_averagings_and_averages_whatever_changes_a_replica():
    schedule = {"name": "piecewise_constant_schedule", "boundaries_and_scales": {10: 0.1}}
    decay = [{"name": "add_decayed_weights", "weight_decay": 0.1}, "sgd"]
    algorithm = {"name": "sgp", "learning_rate": 0.1, "schedule": schedule, "optimizer": decay, "average": 0.7}
    protocol = {"name": "gossip", "topology": "star"}  # whose weights are far from 1
    run = make_run(algorithm, protocol=protocol, stop={"gradients": 80})
    outcome = execute("run", run, 3)
    servers = [PlainDecayingPush(initial_of(outcome), Context(run, 3)) for _ in range(4)]
    final = recompute_by(outcome, servers, PlainPush.model)
    assert max(abs(params["w"] - 1) for params in final) > 0.1
    mean = {k: np.mean([server.average[k] for server in servers], axis=0) for k in final[0]}
    assert largest_relative_error(outcome.final, PlainPush.model(mean)) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "protocol"), [("ssgd", "synchronous"), ("ad-psgd", "pairwise"), ("wagma-sgd", "group-averaging")]
)
def test_an_average_that_forgets_at_once_is_the_parameters(algorithm, protocol):
    """Both have the same bits, also if no replica steps alone, and if replicas are replaced, mixed with theirs, or share versions."""
    unaveraged, averaged = (
        execute("run", make_run({"name": algorithm, "learning_rate": 0.1, **options}, protocol=protocol), 1)
        for options in ({}, {"average": 0.0})
    )
    assert same_outcome(unaveraged, averaged)


def test_the_replicas_own_errors_are_the_mean_over_the_replicas():
    run = make_run("d-psgd", task={**LAYERS, "replicas_start": "apart"})
    assert run.task is not None
    problem = Problem(run.task, run, 0)
    data = run.task.data.load(0).evaluation
    models = [{f"{layer}/{name}": array for layer in model for name, array in model[layer].items()} for model in problem.models]
    losses, errors = zip(*(plainly_measured(model, data.inputs, data.answers) for model in models), strict=True)
    states = jax.tree.map(lambda *leaves: jnp.stack(leaves), *problem.arithmetic.start(problem.models, 4))
    measured = problem.measure([states])
    assert measured["replicas_loss"] == pytest.approx(np.mean(losses), rel=1e-4)
    assert measured["replicas_error"] == pytest.approx(np.mean(errors), rel=1e-5)
    assert measured["replicas_loss"] != pytest.approx(measured["loss"], rel=1e-3)


@given(examples=st.integers(1, 3000), replicas=st.integers(1, 2000))
def test_where_there_are_many_replicas_every_example_is_judged_about_as_often(examples, replicas):
    judged = _examples_of_replicas(examples, replicas)
    assert judged.shape[0] == replicas
    assert judged.size <= max(1 << 15, examples + replicas)
    often = np.bincount(judged.ravel(), minlength=examples)
    assert often.max() - often.min() <= 2
    if examples * replicas <= 1 << 15:
        assert (np.sort(judged, axis=1) == np.arange(examples)).all(), "each replica by all"


@pytest.mark.parametrize("variant", ["std", "published-code", "literal"])
def test_a_round_of_one_fresh_gradient_is_that_gradient(variant):
    """FASGD's rule for rounds is its rule for gradients: same moments, same step, whatever the staleness."""
    server = fred.systems.FASGD(learning_rate=0.1, variant=variant)
    params, grads = {"w": jnp.array([0.5, -1.0, 2.0])}, {"w": jnp.array([0.1, 0.7, -0.3])}
    state = server.init(params, 1).replace(clock=jnp.int32(7))
    updated = server.apply_update(state, grads, 4, 0)
    other = server.apply_round(state, server.contribute(state, grads, 4, 0), 7, 1)
    assert np.asarray(updated.params["w"]) == pytest.approx(np.asarray(other.params["w"]), rel=1e-5)
    assert (np.asarray(updated.params["w"]) != np.asarray(params["w"])).all()
