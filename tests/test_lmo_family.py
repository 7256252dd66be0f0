"""Ringmaster with linear minimisation oracles: NumPy's word on Muon and signs."""

import math
from typing import Any

import numpy as np
import pytest

import fred
from fred.outcomes.outcome import Outcome
from fred.running.execution import execute
from fred.schedule.schedule import Verb
from tests.conftest import ROOT
from tests.plain.rounds import Muon
from tests.recompute import PlainSGD, by_plain, largest_relative_error
from tests.worlds import LAYERS, make_run, same

UNEQUAL = {"workers": 5, "compute": {"name": "lognormal", "median": 0.1, "sigma": 0.7}}
BOUND = {"name": "bounded-delay", "threshold": 4}


def outcome(algorithm: str, inline: bool = False, rate: float = 0.02, **options: Any) -> Outcome:
    described = {"name": algorithm, "learning_rate": rate, **options}
    return execute("run", make_run(described, protocol=BOUND, cluster=UNEQUAL, task=LAYERS, stop={"updates": 80}), 3, inline)


class PlainParameterFree(PlainSGD):
    """Sadiev et al. 2026: momentum of weight (k + 1)^-1/2, steps of length rate (k + 1)^-3/4 by Muon's oracle, or by signs."""

    def __init__(self, params: dict, rate: float):
        super().__init__(params, rate)
        self.momentum, self.updates = dict.fromkeys(params, 0.0), 0

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        number = self.updates + 1
        assert staleness < max(1, math.isqrt(self.updates)), "R"
        for name, g in grads.items():
            momentum = self.momentum[name] = (1 - number**-0.5) * self.momentum[name] + number**-0.5 * g
            wide = np.sqrt(max(1.0, g.shape[-1] / g.shape[0]))
            step = wide * Muon.orthogonal(momentum) if g.ndim == 2 else np.sign(momentum)
            self.params = self.params | {name: self.params[name] - self.rate * number**-0.75 * step}
        self.updates = number


@pytest.mark.slow
@pytest.mark.parametrize("inline", [False, True])
def test_the_shipped_method_without_parameters_has_all_three_parts(inline):
    shipped = fred.load(ROOT / "scenarios" / "systems" / "ringmaster-muon.yaml").runs["parameter-free"]
    run = make_run(cluster=UNEQUAL, task=LAYERS, stop={"updates": 120}).model_copy(
        update={"algorithm": shipped.algorithm, "protocol": shipped.protocol}
    )
    found = execute("run", run, 3, inline)
    (params,) = by_plain(found, [PlainParameterFree({k: v.astype(float) for k, v in found.initial.items()}, 0.3)])
    assert largest_relative_error(found.final, params) < 1e-3
    assert found.schedule["staleness"][found.schedule.rows(Verb.PUSH)].max() >= 3


def test_with_gradient_steps_it_is_ringmaster():
    assert same(outcome("ringmaster-lmo", optimizer="sgd"), outcome("ringmaster"))
