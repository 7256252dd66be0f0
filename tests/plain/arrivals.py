"""Algorithms whose server moves whenever pseudo-gradients arrive."""

from typing import Any

import numpy as np

from tests.plain.base import Context, PlainRounds


class PlainFedBuff(PlainRounds):
    """Pseudo-gradients over the root of 1 + their staleness."""

    def contribution(self, message: dict, staleness: int) -> dict:
        return {k: self.algorithm.server_rate * m / np.sqrt(1 + staleness) for k, m in message.items()}


class PlainFedAsync(PlainRounds):
    """A share of the way to a model: where the worker began, less what its steps have taken away."""

    def __init__(self, params: dict, context: Context):
        super().__init__(params, context)
        self.history = [params]

    def contribution(self, message: dict, staleness: int) -> dict:
        began = self.history[len(self.history) - 1 - staleness]
        share = self.algorithm.mixing * (1 + staleness) ** -self.algorithm.exponent
        return {k: share * (p - (began[k] - message[k])) for k, p in self.params.items()}

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        super().update(grads, staleness, count)
        self.history.append(self.params)


class PlainDelayed(PlainRounds):
    """Liu et al. 2024, algorithm 3, line by line."""

    def __init__(self, params: dict, context: Context):
        super().__init__(params, context)
        self.outer_rate, self.mu = self.algorithm.outer_rate, self.algorithm.momentum
        self.n = self.algorithm.gathered or context.workers
        self.t, self.momentum, self.buffer = 0, dict.fromkeys(params, 0.0), dict.fromkeys(params, 0.0)

    def of_round(self, total: dict) -> None:
        self.buffer = {k: b + total[k] for k, b in self.buffer.items()}
        share = c = self.algorithm.spread
        if (self.t + 1) % self.n == 0:
            self.momentum = {k: self.mu * m + self.buffer[k] / self.n for k, m in self.momentum.items()}
            self.buffer, share = dict.fromkeys(self.buffer, 0.0), 1 - c * self.n + c
        steps = {k: share * self.mu * self.momentum[k] + total[k] / self.n for k in self.params}
        self.params = {k: p - self.outer_rate * steps[k] for k, p in self.params.items()}
        self.t += 1

    @property
    def reached(self) -> bool:
        return self.t > 2 * self.n


class PlainHALoS(PlainDelayed):
    """Delayed Nesterov on local servers, and with other constants on the last one."""

    def __init__(self, params: dict, context: Context):
        super().__init__(params, context)
        if context.replica == context.replicas - 1:
            algorithm = self.algorithm
            self.outer_rate, self.mu, self.n = algorithm.global_rate, algorithm.global_momentum, algorithm.global_gathered


class PlainCGAD(PlainRounds):
    """Adam, of pseudo-gradients that fade."""

    tolerance = 1e-4  # what is divided by is small
    faded = stayed = 0

    def __init__(self, params: dict, context: Context):
        super().__init__(params, context)
        self.t, self.first, self.second = 0, dict.fromkeys(params, 0.0), dict.fromkeys(params, 0.0)

    def contribution(self, message: dict, staleness: int) -> dict:
        expired = staleness >= self.algorithm.cutoff
        self.faded, self.stayed = self.faded + expired, self.stayed + (not expired)
        cosine = 0.0 if expired else 0.5 * (1 + np.cos(np.pi * staleness / self.algorithm.cutoff))
        return {k: np.exp(-self.algorithm.fading * staleness) * cosine * m for k, m in message.items()}

    def of_round(self, total: dict) -> None:
        self.t += 1
        for k, p in self.params.items():
            self.first[k] = 0.9 * self.first[k] + 0.1 * total[k]
            self.second[k] = 0.999 * self.second[k] + 0.001 * total[k] ** 2
            mean, square = self.first[k] / (1 - 0.9**self.t), self.second[k] / (1 - 0.999**self.t)
            self.params = self.params | {k: p - self.algorithm.outer_rate * mean / (np.sqrt(square) + 1e-8)}

    @property
    def reached(self) -> bool:
        return self.faded > 0 and self.stayed > 0


class PlainHeLoCo(PlainRounds):
    """The rule's three cases, array by array."""

    def __init__(self, params: dict, context: Context):
        super().__init__(params, context)
        self.momentum = {k: np.zeros_like(p) for k, p in params.items()}
        self.cases: set[str] = set()

    def contribution(self, message: dict, staleness: int) -> dict:
        return {k: self.corrected(d, self.momentum[k]) for k, d in message.items()}

    def corrected(self, d: Any, m: Any) -> Any:
        if not m.any():
            return d
        length, pace, algorithm = np.linalg.norm(d), np.linalg.norm(m), self.algorithm
        cosine, sure = (d * m).sum() / (length * pace), length / (length + pace)
        if cosine >= algorithm.agreeing:
            self.cases.add("agrees")
            return d
        if cosine < 0:
            self.cases.add("opposes")
            parallel = cosine * length * m / pace
            return d - min(-algorithm.shrink * cosine * sure, algorithm.most) * parallel
        self.cases.add("is turned")
        share = min(algorithm.turn * (1 - cosine) * sure, 1)
        way = (1 - share) * d / length + share * m / pace
        return length * way / np.linalg.norm(way)

    def of_round(self, total: dict) -> None:
        mu = self.algorithm.momentum
        self.momentum = {k: mu * m + (1 - mu) * total[k] for k, m in self.momentum.items()}
        self.params = {k: p - self.algorithm.outer_rate * (total[k] + mu * self.momentum[k]) for k, p in self.params.items()}

    @property
    def reached(self) -> bool:
        return self.cases == {"agrees", "opposes", "is turned"}


class PlainFADAS(PlainRounds):
    """AMSGrad of pseudo-gradients, with a rate that follows the stalest."""

    tolerance = 1e-4  # what is divided by is small
    shortened = full = 0

    def __init__(self, params: dict, context: Context):
        super().__init__(params, context)
        self.first, self.second, self.largest = (dict.fromkeys(params, 0.0) for _ in range(3))
        self.ages: list[int] = []

    def contribution(self, message: dict, staleness: int) -> dict:
        self.ages.append(staleness)
        return message

    def of_round(self, total: dict) -> None:
        algorithm, stalest = self.algorithm, max(self.ages)
        self.ages = []
        rate = algorithm.outer_rate if stalest <= algorithm.patience else min(algorithm.outer_rate, 1 / stalest)
        self.shortened, self.full = self.shortened + (rate < algorithm.outer_rate), self.full + (rate == algorithm.outer_rate)
        self.first = {k: algorithm.beta_1 * m + (1 - algorithm.beta_1) * total[k] for k, m in self.first.items()}
        self.second = {k: algorithm.beta_2 * v + (1 - algorithm.beta_2) * total[k] ** 2 for k, v in self.second.items()}
        self.largest = {k: np.maximum(u, self.second[k]) for k, u in self.largest.items()}
        steps = {k: rate * self.first[k] / (np.sqrt(self.largest[k]) + algorithm.epsilon) for k in self.params}
        self.params = {k: p - steps[k] for k, p in self.params.items()}

    @property
    def reached(self) -> bool:
        return self.shortened > 0 and self.full > 0


PLAIN_CLASSES = {
    **dict.fromkeys(("easgd", "downpour", "async-local", "birch-local", "cycle"), PlainRounds),
    "fadas": PlainFADAS,
    "fedbuff": PlainFedBuff,
    "fedasync": PlainFedAsync,
    "delayed-nesterov": PlainDelayed,
    "halos": PlainHALoS,
    "cgad": PlainCGAD,
    "heloco": PlainHeLoCo,
}
