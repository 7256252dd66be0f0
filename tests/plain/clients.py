"""Federated algorithms, whose sampled clients take local steps from the server model."""

from collections import defaultdict
from typing import Any

import numpy as np

from tests.plain.base import Context, PlainRounds, with_its_worker


class PlainFedAvg(PlainRounds):
    """McMahan et al. 2017, algorithm 1; replica 0 takes the local steps, replica 1 is the server."""

    rounds = 0

    def of_round(self, total: dict) -> None:
        self.rounds += 1
        self.params = {k: p - self.algorithm.server_rate * total[k] for k, p in self.params.items()}

    @property
    def reached(self) -> bool:
        return self.rounds > 3 or self.context.replica == 0


class PlainFedProx(PlainFedAvg):
    """Li et al. 2020, eq. 2."""

    def meet(self, mixed: dict, keep: float, weight: float) -> None:
        self.params = self.start = mixed

    def local_step(self, grads: dict) -> None:
        super().local_step({k: g + self.algorithm.mu * (self.params[k] - self.start[k]) for k, g in grads.items()})


class PlainFedAdam(PlainFedAvg):
    """Reddi et al. 2021, algorithm 2."""

    def __init__(self, params: dict, context: Context):
        super().__init__(params, context)
        self.m = dict.fromkeys(params, 0.0)
        self.v: dict[str, Any] = {k: np.full_like(p, self.algorithm.tau**2) for k, p in params.items()}

    def second_moment(self, v: Any, d: Any) -> Any:
        return self.algorithm.beta_2 * v + (1 - self.algorithm.beta_2) * d**2

    def of_round(self, total: dict) -> None:
        self.m = {k: self.algorithm.beta_1 * m + (1 - self.algorithm.beta_1) * total[k] for k, m in self.m.items()}
        self.v = {k: self.second_moment(v, total[k]) for k, v in self.v.items()}
        super().of_round({k: m / (np.sqrt(self.v[k]) + self.algorithm.tau) for k, m in self.m.items()})


class PlainFedYogi(PlainFedAdam):
    """The same, with Yogi's second moment."""

    tolerance = 1e-4  # near v = D^2 the sign follows from rounding

    def second_moment(self, v: Any, d: Any) -> Any:
        return v - (1 - self.algorithm.beta_2) * d**2 * np.sign(v - d**2)


class PlainFedCompass(PlainFedAvg):
    """Li et al. 2024: shares by the number of updates that a pseudo-gradient has missed."""

    stale = 0

    def contribution(self, message: dict, staleness: int) -> dict:
        self.stale += staleness > 0
        return {k: m / (1 + staleness) ** self.algorithm.exponent for k, m in message.items()}

    @property
    def reached(self) -> bool:
        return self.context.replica == 0 or (self.rounds > 3 and self.stale > 3)


class PlainSCAFFOLD(PlainFedAvg):
    """Karimireddy et al. 2020, algorithm 1, option II."""

    controls: dict[int, dict]  # c_i of each client

    def __init__(self, params: dict, context: Context):
        super().__init__(params, context)
        self.control = {k: np.zeros_like(p) for k, p in params.items()}
        self.steps = 0
        if context.replica == 0:  # the first of the run's replicas
            zeros = self.control
            type(self).controls = defaultdict(lambda: zeros)

    sent_message = staticmethod(with_its_worker)

    @staticmethod
    def model(params: dict) -> dict:
        return {k: p for k, p in params.items() if not k.startswith("control ") and k != "steps"}

    def published(self) -> dict:
        return self.params | {f"control {k}": c for k, c in self.control.items()} | {"steps": self.steps}

    def meet(self, mixed: dict, keep: float, weight: float) -> None:
        self.params, self.control = self.model(mixed), {k: mixed[f"control {k}"] for k in self.params}
        type(self).steps_taken = self.steps = 0

    def local_step(self, grads: dict) -> None:
        control = self.controls[grads["worker"]]
        super().local_step({k: grads[k] - control[k] + self.control[k] for k in self.params})
        self.steps += 1
        type(self).steps_taken = self.steps

    steps_taken = 0  # by the client whose pseudo-gradient is added next

    def contribution(self, message: dict, staleness: int) -> dict:
        worker = message["worker"]
        before, times = self.controls[worker], self.steps_taken * self.rate
        after = {k: c - self.control[k] + message[k] / times for k, c in before.items()}
        self.controls[worker] = after
        return {k: message[k] for k in after} | {f"control {k}": after[k] - before[k] for k in after}

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        if count:
            share = count / self.context.workers
            self.control = {k: c + share * grads[f"control {k}"] for k, c in self.control.items()}
        super().update(grads, staleness, count)


PLAIN_CLASSES = {
    **dict.fromkeys(("fedavg", "fednova"), PlainFedAvg),
    "fedprox": PlainFedProx,
    "fedadam": PlainFedAdam,
    "fedyogi": PlainFedYogi,
    "scaffold": PlainSCAFFOLD,
    "fedcompass": PlainFedCompass,
}
