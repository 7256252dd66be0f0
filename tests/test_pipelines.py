"""Gradients of one age: extrapolated steps and PipeMare, recomputed by NumPy; without what they add they are plain steps."""

from typing import Any

import numpy as np
import pytest

from fred import batch_indices
from fred.learning.optimizer import Transformation
from fred.outcomes.outcome import Outcome
from fred.running.execution import execute
from tests.recompute import PlainSGD, largest_relative_error, recompute
from tests.worlds import make_run, same

LAG, RATE, UPDATES = 4, 0.1, 60


def outcome(name: str, inline: bool = False, lag: int = LAG, **options: Any) -> Outcome:
    protocol, stop = {"name": "fixed-lag", "lag": lag}, {"updates": UPDATES}
    return execute("run", make_run({"name": name, "learning_rate": RATE, **options}, protocol=protocol, stop=stop), 3, inline)


@pytest.mark.parametrize("lag", [0, LAG])
@pytest.mark.parametrize(("name", "options"), [("extrapolated", {"ahead": 0.0}), ("pipemare", {"warm_up": 0})])
def test_without_what_they_add_they_are_plain(name, options, lag):
    assert outcome(name, lag=lag, **options).params_digest == outcome("asgd", lag=lag).params_digest


@pytest.mark.parametrize(("name", "options"), [("extrapolated", {"ahead": 1.0}), ("pipemare", {"warm_up": 40})])
def test_inline_is_replayed(name, options):
    assert same(outcome(name, True, **options), outcome(name, **options))


class PlainExtrapolated(PlainSGD):
    """w - u - ahead (u - u before)."""

    before: Any = None

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        steps = {k: self.rate * g for k, g in grads.items()}
        before, self.before = self.before or steps, steps
        self.params = {k: w - steps[k] - 2.0 * (steps[k] - before[k]) for k, w in self.params.items()}


class PlainPipeMare(PlainSGD):
    """Steps divided by a power of the age that falls from 1 to 0 in 40 updates."""

    updates = 0

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        self.scale = lambda tau: max(tau, 1) ** -max(0.0, 1 - self.updates / 40)
        super().update(grads, staleness)
        self.updates += 1


PLAIN: dict[str, tuple[dict[str, Any], Any]] = {
    "extrapolated": ({"ahead": 2.0}, PlainExtrapolated),
    "pipemare": ({"warm_up": 40}, PlainPipeMare),
}


@pytest.mark.parametrize("name", PLAIN)
def test_servers_are_what_they_say(name):
    options, plain = PLAIN[name]
    found = outcome(name, **options)
    initial = {k: v.astype(float) for k, v in found.initial.items()}
    assert found.run.task is not None
    data, size = found.run.task.data.load(3).train, found.run.task.batch_size
    (params,) = recompute(
        found.schedule.frame(),
        [plain(initial, RATE)],
        data.inputs,
        data.answers,
        lambda worker, step: batch_indices(3, worker, step, batch_size=size, examples=len(data)),
    )
    assert largest_relative_error(found.final, params) < 1e-4
    assert largest_relative_error(found.final, outcome("asgd").final) > 0.01, "it is not plain"


def test_steps_that_only_grow_are_foreseen():
    """Where each step differs from the last by as much, extrapolating by one is the step that comes next."""
    server = make_run({"name": "extrapolated", "learning_rate": 1.0}).algorithm
    state = server.init({"w": np.zeros(1, np.float32)}, workers=1)
    for gradient in (1.0, 2.0, 3.0, 4.0):
        state = server.apply_update(state, {"w": np.array([gradient], np.float32)}, timestamp=0, worker=0)
    assert -state.params["w"].item() == 1.0 + 3.0 + 4.0 + 5.0


@pytest.mark.parametrize("name", ["nadam", "nadamw"])
def test_what_optax_makes_of_another_with_an_option_can_be_named(name):
    assert Transformation(name=name, b1=0.99).takes_rate
