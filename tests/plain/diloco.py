"""DiLoCo and its kin: rounds of pseudo-gradients are outer steps."""

from typing import Any

import numpy as np

from tests.plain.base import Context, PlainRounds
from tests.plain.rounds import Muon


class PlainDiLoCo(PlainRounds):
    """Outer steps with Nesterov momentum."""

    rounds = 0

    def __init__(self, params: dict, context: Context):
        super().__init__(params, context)
        self.mu = self.algorithm.outer[0].arguments["momentum"]
        self.momentum = dict.fromkeys(params, 0.0)

    def of_round(self, total: dict) -> None:
        self.rounds += 1
        self.momentum = {k: self.mu * m + total[k] for k, m in self.momentum.items()}
        steps = {k: self.algorithm.outer_rate * (total[k] + self.mu * self.momentum[k]) for k in self.params}
        self.params = {k: p - steps[k] for k, p in self.params.items()}

    @property
    def reached(self) -> bool:
        return self.rounds > 3


class PlainMuLoCo(PlainDiLoCo):
    """Local steps are Muon's."""

    tolerance = 1e-4

    def __init__(self, params: dict, context: Context):
        super().__init__(params, context)
        self.muon = Muon(params)

    def local_step(self, grads: dict) -> None:
        super().local_step(self.muon.steps(grads))


class PlainDecoupled(PlainDiLoCo):
    """Lengths and directions are averaged apart."""

    def contribution(self, message: dict, staleness: int) -> dict:
        lengths = {k: np.linalg.norm(d) for k, d in message.items()}
        return {f"length {k}": length for k, length in lengths.items()} | {
            f"way {k}": d / lengths[k] for k, d in message.items()
        }

    def of_round(self, total: dict) -> None:
        ways = {k: total[f"way {k}"] for k in self.params}
        super().of_round({k: total[f"length {k}"] * way / np.linalg.norm(way) for k, way in ways.items()})


class PlainPALSGD(PlainDiLoCo):
    """A pull keeps everything, and goes some of the way."""

    pulls = 0

    def meet(self, mixed: dict, keep: float, weight: float) -> None:
        self.pulls += keep > 0
        share = self.algorithm.strength * self.rate * weight if keep else 1.0
        self.params = {k: p - share * (p - mixed[k]) for k, p in self.params.items()}

    @property
    def reached(self) -> bool:
        return self.pulls > 0


class PlainEDiT(PlainDiLoCo):
    """Weights by length, outliers, moving averages, clipping: line by line."""

    left_out = 0

    def __init__(self, params: dict, context: Context):
        super().__init__(params, context)
        self.pseudo_gradients: list[dict] = []
        self.mean: dict[str, Any] = {}
        self.variance: dict[str, Any] = {}

    def contribution(self, message: dict, staleness: int) -> dict:
        self.pseudo_gradients.append(message)  # in the order of workers
        return message

    def of_round(self, total: dict) -> None:
        super().of_round(
            {k: self.combine(k, [pseudo_gradient[k] for pseudo_gradient in self.pseudo_gradients]) for k in self.params}
        )
        self.pseudo_gradients = []

    def combine(self, k: str, pseudo_gradients: list) -> Any:
        algorithm, alpha = self.algorithm, self.algorithm.decay
        lengths = np.array([np.linalg.norm(delta) for delta in pseudo_gradients])
        mean, variance = self.mean.get(k, lengths), self.variance.get(k, np.zeros(len(lengths)))
        mask = (self.rounds < algorithm.warm_up) | (lengths - mean <= algorithm.deviations * np.sqrt(variance))
        self.left_out += int((~mask).sum())
        new = mean + alpha * (lengths - mean)
        self.variance[k] = np.where(mask, (1 - alpha) * (variance + alpha * (lengths - mean) * (lengths - new)), variance)
        self.mean[k] = np.where(mask, new, mean)
        weights = np.exp(-lengths / algorithm.temperature) * mask
        total = sum(w * delta for w, delta in zip(weights / max(weights.sum(), 1e-300), pseudo_gradients, strict=True))
        return total * min(1.0, algorithm.longest / max(float(np.linalg.norm(total)), 1e-300))

    @property
    def reached(self) -> bool:
        return self.left_out > 0


class PlainSparse(PlainRounds):
    """A share of what workers send is subtracted."""

    def of_round(self, total: dict) -> None:
        super().of_round({k: self.algorithm.outer_rate * t for k, t in total.items()})


class PlainSigns(PlainRounds):
    """DeMo: steps of one length in every direction."""

    def of_round(self, total: dict) -> None:
        self.local_step({k: np.sign(t) for k, t in total.items()})


PLAIN_CLASSES = {
    **dict.fromkeys(("diloco", "streaming-diloco", "eager-diloco"), PlainDiLoCo),
    "muloco": PlainMuLoCo,
    "decoupled-diloco": PlainDecoupled,
    "palsgd": PlainPALSGD,
    "edit": PlainEDiT,
    "sparseloco": PlainSparse,
    "demo": PlainSigns,
    "choco-sgd": PlainRounds,
}
