"""Algorithms that make plain steps; whose rounds are more, or less, than a mean of gradients; and gradients of one age."""

from typing import Any

import numpy as np

from tests.plain.base import Context, Plain


class PlainPSP(Plain):
    """Steps that are as long as gradients took part [PSP-SGD, algorithm 1, line 13]."""

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        self.params = {k: p - self.rate * max(count, 1) * grads[k] for k, p in self.params.items()}


class PlainDropCompute(Plain):
    """Rounds divided by the number of planned gradients, or of finished ones, instead of by the schedule's weights."""

    own_steps = False

    def __init__(self, params: dict, context: Context):
        super().__init__(params, context)
        protocol: Any = context.run.protocol
        self.planned = protocol.micro_batches * context.workers if protocol.average == "planned" else 0
        self.numbers, self.sum = list[int](), dict[str, Any]()

    def contribution(self, message: dict, staleness: int) -> dict:
        self.sum = {k: self.sum.get(k, 0.0) + g for k, g in message.items()}
        return message

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        self.numbers.append(count)
        total, self.sum = self.sum, {}
        super().update({k: g / (self.planned or count) for k, g in total.items()}, staleness)

    @property
    def reached(self) -> bool:
        return len(set(self.numbers)) > 3


class Muon:
    """Muon's steps: matrices by Newton and Schulz's iterations, vectors by Nesterov's Adam."""

    def __init__(self, params: dict):
        self.first: dict[str, Any] = dict.fromkeys(params, 0.0)
        self.second: dict[str, Any] = dict.fromkeys(params, 0.0)
        self.updates = 0

    def steps(self, grads: dict) -> dict:
        self.updates += 1
        return {name: self.step(name, g) for name, g in grads.items()}

    def step(self, name: str, g: np.ndarray) -> Any:
        b = 0.95 if g.ndim == 2 else 0.9
        self.first[name] = b * self.first[name] + (1 - b) * g
        ahead = b * self.first[name] / (1 - b ** (self.updates + 1)) + (1 - b) * g / (1 - b**self.updates)
        if g.ndim == 2:
            return np.sqrt(max(1.0, g.shape[1] / g.shape[0])) * self.orthogonal(ahead)
        self.second[name] = 0.999 * self.second[name] + 0.001 * g**2
        return ahead / (np.sqrt(self.second[name] / (1 - 0.999**self.updates)) + 1e-8)

    @staticmethod
    def orthogonal(u: np.ndarray) -> np.ndarray:
        """Bring all singular values near 1, by what five iterations do to each of them."""
        left, values, right = np.linalg.svd(u / np.sqrt((u**2).sum()), full_matrices=False)
        for _ in range(5):
            values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
        return (left * values) @ right


class PlainOracle(Plain):
    """Ringmaster with a linear minimisation oracle: `muon` or `signum`."""

    tolerance = 1e-4

    def __init__(self, params: dict, context: Context):
        super().__init__(params, context)
        self.muon, self.momentum = Muon(params), dict.fromkeys(params, 0.0)

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        if self.algorithm.optimizer[0].name == "muon":
            steps = self.muon.steps(grads)
        else:
            self.momentum = {k: 0.9 * m + 0.1 * grads[k] for k, m in self.momentum.items()}
            steps = {k: np.sign(m) for k, m in self.momentum.items()}
        super().update(steps, staleness)


class PlainExtrapolated(Plain):
    """w - u - ahead (u - u before)."""

    before: Any = None

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        steps = {k: self.rate * g for k, g in grads.items()}
        before, self.before = self.before or steps, steps
        self.params = {k: w - steps[k] - self.algorithm.ahead * (steps[k] - before[k]) for k, w in self.params.items()}


class PlainPipeMare(Plain):
    """Steps divided by a power of the age that falls from 1 to 0 while the warm-up lasts."""

    updates = 0

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        power = max(0.0, 1 - self.updates / self.algorithm.warm_up)
        self.params = {k: w - self.rate * grads[k] / max(staleness, 1) ** power for k, w in self.params.items()}
        self.updates += 1


PLAIN_CLASSES: dict[str, type[Plain]] = {
    **dict.fromkeys(  # whatever sets them apart is in their protocols, and so in the schedule
        (
            *("ssgd", "m-sync", "rennala", "malenia", "mindflayer", "ata", "cutoff-sgd", "allreduce-sgd", "dbw"),
            *("asgd", "softsync-sgd", "k-async", "k-batch-async", "ssp", "ringmaster", "async-batch", "eager-sgd"),
            *("local-sgd", "adacomm", "stsyn", "swarm-sgd", "d-psgd", "ad-psgd", "wagma-sgd"),
        ),
        Plain,
    ),
    "psp-sgd": PlainPSP,
    "dropcompute": PlainDropCompute,
    "ringmaster-lmo": PlainOracle,
    "extrapolated": PlainExtrapolated,
    "pipemare": PlainPipeMare,
}
