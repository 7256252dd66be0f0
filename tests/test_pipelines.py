"""Gradients of one age: extrapolated steps and PipeMare, recomputed by NumPy; without what they add they are plain steps."""

from typing import Any

import numpy as np
import pytest

from fred.learning.optimizer import Transformation
from fred.outcomes.outcome import Outcome
from fred.running.execution import execute
from tests.worlds import make_run

LAG, RATE, UPDATES = 4, 0.1, 60


def outcome(name: str, inline: bool = False, lag: int = LAG, **options: Any) -> Outcome:
    protocol, stop = {"name": "fixed-lag", "lag": lag}, {"updates": UPDATES}
    return execute("run", make_run({"name": name, "learning_rate": RATE, **options}, protocol=protocol, stop=stop), 3, inline)


@pytest.mark.parametrize("lag", [0, LAG])
@pytest.mark.parametrize(("name", "options"), [("extrapolated", {"ahead": 0.0}), ("pipemare", {"warm_up": 0})])
def test_without_what_they_add_they_are_plain(name, options, lag):
    assert outcome(name, lag=lag, **options).params_digest == outcome("asgd", lag=lag).params_digest


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
