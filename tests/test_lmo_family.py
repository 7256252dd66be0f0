"""Ringmaster with linear minimisation oracles: NumPy's word on Muon and signs."""

import math
from typing import Any

import numpy as np
import pytest

import fred
from fred import batch_indices
from fred.outcomes.outcome import Outcome
from fred.running.execution import execute
from fred.schedule.schedule import Verb
from tests.conftest import ROOT
from tests.recompute import PlainSGD, by_plain, largest_relative_error, recompute
from tests.worlds import LAYERS, make_run, same

UNEQUAL = {"workers": 5, "compute": {"name": "lognormal", "median": 0.1, "sigma": 0.7}}
BOUND = {"name": "bounded-delay", "threshold": 4}


def outcome(algorithm: str, inline: bool = False, rate: float = 0.02, **options: Any) -> Outcome:
    described = {"name": algorithm, "learning_rate": rate, **options}
    return execute("run", make_run(described, protocol=BOUND, cluster=UNEQUAL, task=LAYERS, stop={"updates": 80}), 3, inline)


class PlainMuon(PlainSGD):
    """Matrices: five iterations of Newton and Schulz bring all singular values of the momentum near 1; vectors: Nesterov's Adam."""

    def __init__(self, params: dict):
        super().__init__(params, 0.02)
        self.first, self.second, self.updates = dict.fromkeys(params, 0.0), dict.fromkeys(params, 0.0), 0

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        self.updates += 1
        for name, g in grads.items():
            b = 0.95 if g.ndim == 2 else 0.9
            self.first[name] = b * self.first[name] + (1 - b) * g
            ahead = b * self.first[name] / (1 - b ** (self.updates + 1)) + (1 - b) * g / (1 - b**self.updates)
            if g.ndim == 2:
                step = np.sqrt(max(1.0, g.shape[1] / g.shape[0])) * self.orthogonal(ahead)
            else:
                self.second[name] = 0.999 * self.second[name] + 0.001 * g**2
                step = ahead / (np.sqrt(self.second[name] / (1 - 0.999**self.updates)) + 1e-8)
            self.params = self.params | {name: self.params[name] - self.rate * step}

    @staticmethod
    def orthogonal(u: np.ndarray) -> np.ndarray:
        """By what the iteration does to each singular value."""
        left, values, right = np.linalg.svd(u / np.sqrt((u**2).sum()), full_matrices=False)
        for _ in range(5):
            values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
        return (left * values) @ right


class PlainSigns(PlainSGD):
    def __init__(self, params: dict):
        super().__init__(params, 0.02)
        self.momentum = dict.fromkeys(params, 0.0)

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        self.momentum = {k: 0.9 * m + 0.1 * grads[k] for k, m in self.momentum.items()}
        super().update({k: np.sign(m) for k, m in self.momentum.items()}, staleness)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize(("options", "plain"), [({}, PlainMuon), ({"optimizer": "signum"}, PlainSigns)])
def test_oracles_are_what_they_say(options, plain, inline):
    found = outcome("ringmaster-lmo", inline, **options)
    initial = {k: v.astype(float) for k, v in found.initial.items()}
    assert found.run.task is not None
    data = found.run.task.data.load(3).train
    (params,) = recompute(
        found.schedule.frame(),
        [plain(initial)],
        data.inputs,
        data.answers,
        lambda worker, step: batch_indices(3, worker, step, batch_size=4, examples=len(data)),
    )
    assert largest_relative_error(found.final, params) < 1e-3
    assert largest_relative_error(found.final, initial) > 0.1
    assert found.schedule["staleness"][found.schedule.rows(Verb.PUSH)].max() == 3


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
            step = wide * PlainMuon.orthogonal(momentum) if g.ndim == 2 else np.sign(momentum)
            self.params = self.params | {name: self.params[name] - self.rate * number**-0.75 * step}
        self.updates = number


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


def test_inline_and_replayed_are_the_same():
    assert same(outcome("ringmaster-lmo"), outcome("ringmaster-lmo", inline=True))
