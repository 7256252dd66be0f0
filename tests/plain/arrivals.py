"""Algorithms whose server moves whenever pseudo-gradients arrive."""

from typing import Any

import numpy as np

from tests.plain.base import Given, PlainRounds


class PlainFedBuff(PlainRounds):
    """Pseudo-gradients over the root of 1 + their staleness."""

    def contribution(self, message: dict, staleness: int) -> dict:
        return {k: self.its.server_rate * m / np.sqrt(1 + staleness) for k, m in message.items()}


class PlainFedAsync(PlainRounds):
    """A share of the way to a model: where the worker began, less what its steps have taken away."""

    def __init__(self, params: dict, given: Given):
        super().__init__(params, given)
        self.history = [params]

    def contribution(self, message: dict, staleness: int) -> dict:
        began = self.history[len(self.history) - 1 - staleness]
        share = self.its.mixing * (1 + staleness) ** -self.its.exponent
        return {k: share * (p - (began[k] - message[k])) for k, p in self.params.items()}

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        super().update(grads, staleness, count)
        self.history.append(self.params)


class PlainDelayed(PlainRounds):
    """Liu et al. 2024, algorithm 3, line by line."""

    def __init__(self, params: dict, given: Given):
        super().__init__(params, given)
        self.outer_rate, self.mu = self.its.outer_rate, self.its.momentum
        self.n = self.its.gathered or given.workers
        self.t, self.momentum, self.buffer = 0, dict.fromkeys(params, 0.0), dict.fromkeys(params, 0.0)

    def of_round(self, total: dict) -> None:
        self.buffer = {k: b + total[k] for k, b in self.buffer.items()}
        share = c = self.its.spread
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

    def __init__(self, params: dict, given: Given):
        super().__init__(params, given)
        if given.replica == given.replicas - 1:
            its = self.its
            self.outer_rate, self.mu, self.n = its.global_rate, its.global_momentum, its.global_gathered


class PlainCGAD(PlainRounds):
    """Adam, of pseudo-gradients that fade."""

    tolerance = 1e-4  # what is divided by is small
    faded = stayed = 0

    def __init__(self, params: dict, given: Given):
        super().__init__(params, given)
        self.t, self.first, self.second = 0, dict.fromkeys(params, 0.0), dict.fromkeys(params, 0.0)

    def contribution(self, message: dict, staleness: int) -> dict:
        gone = staleness >= self.its.cutoff
        self.faded, self.stayed = self.faded + gone, self.stayed + (not gone)
        cosine = 0.0 if gone else 0.5 * (1 + np.cos(np.pi * staleness / self.its.cutoff))
        return {k: np.exp(-self.its.fading * staleness) * cosine * m for k, m in message.items()}

    def of_round(self, total: dict) -> None:
        self.t += 1
        for k, p in self.params.items():
            self.first[k] = 0.9 * self.first[k] + 0.1 * total[k]
            self.second[k] = 0.999 * self.second[k] + 0.001 * total[k] ** 2
            mean, square = self.first[k] / (1 - 0.9**self.t), self.second[k] / (1 - 0.999**self.t)
            self.params = self.params | {k: p - self.its.outer_rate * mean / (np.sqrt(square) + 1e-8)}

    @property
    def reached(self) -> bool:
        return self.faded > 0 and self.stayed > 0


class PlainHeLoCo(PlainRounds):
    """The rule's three cases, array by array."""

    def __init__(self, params: dict, given: Given):
        super().__init__(params, given)
        self.momentum = {k: np.zeros_like(p) for k, p in params.items()}
        self.cases: set[str] = set()

    def contribution(self, message: dict, staleness: int) -> dict:
        return {k: self.corrected(d, self.momentum[k]) for k, d in message.items()}

    def corrected(self, d: Any, m: Any) -> Any:
        if not m.any():
            return d
        length, pace, its = np.linalg.norm(d), np.linalg.norm(m), self.its
        cosine, sure = (d * m).sum() / (length * pace), length / (length + pace)
        if cosine >= its.agreeing:
            self.cases.add("agrees")
            return d
        if cosine < 0:
            self.cases.add("opposes")
            along = cosine * length * m / pace
            return d - min(-its.shrink * cosine * sure, its.most) * along
        self.cases.add("is turned")
        share = min(its.turn * (1 - cosine) * sure, 1)
        way = (1 - share) * d / length + share * m / pace
        return length * way / np.linalg.norm(way)

    def of_round(self, total: dict) -> None:
        mu = self.its.momentum
        self.momentum = {k: mu * m + (1 - mu) * total[k] for k, m in self.momentum.items()}
        self.params = {k: p - self.its.outer_rate * (total[k] + mu * self.momentum[k]) for k, p in self.params.items()}

    @property
    def reached(self) -> bool:
        return self.cases == {"agrees", "opposes", "is turned"}


class PlainFADAS(PlainRounds):
    """AMSGrad of pseudo-gradients, with a rate that follows the stalest."""

    tolerance = 1e-4  # what is divided by is small
    shortened = full = 0

    def __init__(self, params: dict, given: Given):
        super().__init__(params, given)
        self.first, self.second, self.largest = (dict.fromkeys(params, 0.0) for _ in range(3))
        self.ages: list[int] = []

    def contribution(self, message: dict, staleness: int) -> dict:
        self.ages.append(staleness)
        return message

    def of_round(self, total: dict) -> None:
        its, stalest = self.its, max(self.ages)
        self.ages = []
        rate = its.outer_rate if stalest <= its.patience else min(its.outer_rate, 1 / stalest)
        self.shortened, self.full = self.shortened + (rate < its.outer_rate), self.full + (rate == its.outer_rate)
        self.first = {k: its.beta_1 * m + (1 - its.beta_1) * total[k] for k, m in self.first.items()}
        self.second = {k: its.beta_2 * v + (1 - its.beta_2) * total[k] ** 2 for k, v in self.second.items()}
        self.largest = {k: np.maximum(u, self.second[k]) for k, u in self.largest.items()}
        steps = {k: rate * self.first[k] / (np.sqrt(self.largest[k]) + its.epsilon) for k in self.params}
        self.params = {k: p - steps[k] for k, p in self.params.items()}

    @property
    def reached(self) -> bool:
        return self.shortened > 0 and self.full > 0


PLAIN = {
    **dict.fromkeys(("easgd", "downpour", "async-local", "birch-local", "cycle"), PlainRounds),
    "fadas": PlainFADAS,
    "fedbuff": PlainFedBuff,
    "fedasync": PlainFedAsync,
    "delayed-nesterov": PlainDelayed,
    "halos": PlainHALoS,
    "cgad": PlainCGAD,
    "heloco": PlainHeLoCo,
}
