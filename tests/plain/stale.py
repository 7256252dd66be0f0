"""Algorithms that answer the staleness of single gradients."""

from collections import Counter, defaultdict
from typing import Any

import numpy as np

from tests.plain.base import Context, Plain, with_its_worker, with_read_params


class PlainWeighed(Plain):
    """Gradients that weigh by their own staleness, alone or in a round."""

    def weight(self, staleness: int) -> float:
        raise NotImplementedError

    def contribution(self, message: dict, staleness: int) -> dict:
        return {k: self.weight(staleness) * m for k, m in message.items()}

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        step = self.rate * (1.0 if count else self.weight(staleness))
        self.params = {k: p - step * grads[k] for k, p in self.params.items()}


class PlainSASGD(PlainWeighed):
    """Odena 2016, eqs. 1-2."""

    def weight(self, staleness: int) -> float:
        return 1 / (staleness + 1 if self.algorithm.divisor == "tau + 1" else max(staleness, 1))


class PlainExponential(PlainWeighed):
    """Chan & Lane 2014."""

    def weight(self, staleness: int) -> float:
        return self.algorithm.rho**staleness


class PlainFASGD(Plain):
    """Odena 2016, eqs. 4-8, in each of its variants; in a round v follows the mean, and each gradient has its own divisor."""

    def __init__(self, params: dict, context: Context):
        super().__init__(params, context)
        self.n, self.b, self.m = ({k: np.zeros_like(p) for k, p in params.items()} for _ in range(3))
        self.v = {k: np.full_like(p, self.algorithm.v0) for k, p in params.items()}

    def divisor(self, staleness: int) -> int:
        adds_one = self.algorithm.variant == "published-code" or self.algorithm.divisor == "tau + 1"
        return staleness + 1 if adds_one else max(staleness, 1)

    def contribution(self, message: dict, staleness: int) -> dict:
        return message | {f"weighed {k}": m / self.divisor(staleness) for k, m in message.items()}

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        params = {}
        for k, p in self.params.items():
            weighed = grads[f"weighed {k}"] if count else grads[k] / self.divisor(staleness)
            params[k] = p - self.rate * weighed / self.deviation(k, grads[k])
        self.params = params

    def deviation(self, k: str, g: Any) -> Any:
        gamma, beta = self.algorithm.gamma, self.algorithm.beta
        if self.algorithm.variant == "published-code":
            self.m[k] = beta * self.m[k] + (1 - beta) * np.abs(g)
            return self.m[k] + 0.001
        self.n[k] = gamma * self.n[k] + (1 - gamma) * g**2
        self.b[k] = gamma * self.b[k] + (1 - gamma) * g
        deviation = np.sqrt(self.n[k] - self.b[k] ** 2 + self.algorithm.epsilon)
        self.v[k] = beta * self.v[k] + (1 - beta) * (1 / deviation if self.algorithm.variant == "literal" else deviation)
        return self.v[k]


class PlainDelayAdaptive(PlainWeighed):
    """Steps that are shorter where a gradient is staler than there are workers."""

    def weight(self, staleness: int) -> float:
        n = self.context.workers
        return 1.0 if staleness <= n else {"n / tau": n / staleness, "1 / tau": 1 / staleness, "0": 0.0}[self.algorithm.beyond]


class PlainClipped(Plain):
    """Gradients shortened to a given length."""

    clipped = updates = 0

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        length = np.sqrt(sum((g**2).sum() for g in grads.values()))
        self.clipped, self.updates = self.clipped + (length > self.algorithm.length), self.updates + 1
        super().update({k: min(1.0, self.algorithm.length / length) * g for k, g in grads.items()}, staleness)

    @property
    def reached(self) -> bool:
        return 0 < self.clipped < self.updates


class PlainCompensated(Plain):
    """g + lambda g g (w - w_read), lambda divided by the root of a moving average where it is adaptive."""

    sent_message = staticmethod(with_read_params)

    def __init__(self, params: dict, context: Context):
        super().__init__(params, context)
        self.squares = dict.fromkeys(params, 0.0)

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        factor: Any = dict.fromkeys(self.params, self.algorithm.compensation)
        if self.algorithm.adaptive:
            m = self.algorithm.decay
            self.squares = {k: m * s + (1 - m) * grads[k] ** 2 for k, s in self.squares.items()}
            factor = {k: self.algorithm.compensation / np.sqrt(s + 1e-7) for k, s in self.squares.items()}
        self.params = {
            k: w - self.rate * (grads[k] + factor[k] * grads[k] ** 2 * (w - grads[f"read {k}"])) for k, w in self.params.items()
        }


class PlainPicky(Plain):
    """Gradients that are used only near the parameters that they were computed at."""

    rejected = accepted = 0
    sent_message = staticmethod(with_read_params)

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        distance = np.sqrt(sum(((w - grads[f"read {k}"]) ** 2).sum() for k, w in self.params.items()))
        if distance <= self.algorithm.distance:
            self.accepted += 1
            super().update({k: grads[k] for k in self.params}, staleness)
        else:
            self.rejected += 1

    @property
    def reached(self) -> bool:
        return self.accepted > 0 and self.rejected > 0


class PlainTable(Plain):
    """Steps with the mean of all workers' last gradients."""

    steps = waited = 0
    sent_message = staticmethod(with_its_worker)

    def __init__(self, params: dict, context: Context):
        super().__init__(params, context)
        self.last: dict[int, dict] = {}

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        self.last[grads["worker"]] = grads
        if len(self.last) < self.context.workers:
            self.waited += 1
            return
        self.steps += 1
        super().update({k: sum(g[k] for g in self.last.values()) / self.context.workers for k in self.params}, staleness)

    @property
    def reached(self) -> bool:
        return self.steps > 20 and self.waited > 0


class PlainRingleader(Plain):
    """Two tables of lists of gradients, as in the paper."""

    steps = waited = 0
    sent_message = staticmethod(with_its_worker)

    def __init__(self, params: dict, context: Context):
        super().__init__(params, context)
        self.had_turn: set[int] = set()
        self.table, self.next = self.empty_table(), self.empty_table()

    def empty_table(self) -> list[list[dict]]:
        return [[] for _ in range(self.context.workers)]

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        worker, workers = grads["worker"], self.context.workers
        (self.next if worker in self.had_turn else self.table)[worker].append(grads)
        if worker in self.had_turn or not all(self.table):
            self.waited += 1
            return
        means = {
            k: sum(sum(g[k] for g in gradients) / len(gradients) for gradients in self.table) / workers for k in self.params
        }
        super().update(means, staleness)
        self.steps += 1
        self.had_turn.add(worker)
        if len(self.had_turn) == workers:
            self.table, self.next, self.had_turn = self.next, self.empty_table(), set()

    @property
    def reached(self) -> bool:
        return self.steps > 20 and self.waited > 0


class PlainOrMo(Plain):
    """w_0 - rate x the sum over buckets j of (1 + beta + ... + beta^(newest - j)) x the sum of the bucket's gradients."""

    def __init__(self, params: dict, context: Context):
        super().__init__(params, context)
        self.first, self.updates, self.late = dict(params), 0, 0
        self.sums: defaultdict[int, dict] = defaultdict(lambda: dict.fromkeys(params, 0.0))

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        newest, round_number = (-(-read // self.context.workers) for read in (self.updates, self.updates - staleness))
        self.sums[round_number] = {k: s + grads[k] for k, s in self.sums[round_number].items()}
        self.updates, self.late = self.updates + 1, self.late + (round_number < newest)
        lengths = {bucket: sum(self.algorithm.momentum**age for age in range(newest - bucket + 1)) for bucket in self.sums}
        moved = {k: sum(lengths[bucket] * s[k] for bucket, s in self.sums.items()) for k in self.first}
        self.params = {k: first - self.rate * moved[k] for k, first in self.first.items()}

    @property
    def reached(self) -> bool:
        return 0 < self.late < self.updates


class PlainRescaled(Plain):
    """Steps in proportion to a worker's time, which is given, or 1 / (1 + how many of its gradients there have been)."""

    sent_message = staticmethod(with_its_worker)

    def __init__(self, params: dict, context: Context):
        super().__init__(params, context)
        self.arrived = Counter[int]()

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        workers = range(self.context.workers)
        times = np.array(self.algorithm.times or [1 / (1 + self.arrived[worker]) for worker in workers])
        scale = times[grads["worker"]] * np.mean(1 / times)
        self.params = {k: p - self.rate * scale * grads[k] for k, p in self.params.items()}
        self.arrived[grads["worker"]] += 1

    @property
    def reached(self) -> bool:
        return len(set(self.arrived.values())) > 1


PLAIN_CLASSES = {
    "sasgd": PlainSASGD,
    "exponential": PlainExponential,
    "fasgd": PlainFASGD,
    "b-fasgd": PlainFASGD,
    "delay-adaptive": PlainDelayAdaptive,
    "clipped-asgd": PlainClipped,
    "dc-asgd": PlainCompensated,
    "picky-sgd": PlainPicky,
    "ia2sgd": PlainTable,
    "ringleader": PlainRingleader,
    "ormo": PlainOrMo,
    "rescaled-asgd": PlainRescaled,
}
