"""Ringmaster with linear minimisation oracles: NumPy's word on Muon and signs."""

from typing import Any

from fred.outcomes.outcome import Outcome
from fred.running.execution import execute
from tests.worlds import LAYERS, make_run, same

UNEQUAL = {"workers": 5, "compute": {"name": "lognormal", "median": 0.1, "sigma": 0.7}}
BOUND = {"name": "bounded-delay", "threshold": 4}


def outcome(algorithm: str, inline: bool = False, rate: float = 0.02, **options: Any) -> Outcome:
    described = {"name": algorithm, "learning_rate": rate, **options}
    return execute("run", make_run(described, protocol=BOUND, cluster=UNEQUAL, task=LAYERS, stop={"updates": 80}), 3, inline)


def test_with_gradient_steps_it_is_ringmaster():
    assert same(outcome("ringmaster-lmo", optimizer="sgd"), outcome("ringmaster"))
