"""Rescaled ASGD."""

from collections import Counter

import numpy as np

from tests.plain.base import Given, Plain, with_its_worker


class PlainRescaled(Plain):
    """Steps in proportion to a worker's time, which is given, or 1 / (1 + how many of its gradients there have been)."""

    sent = staticmethod(with_its_worker)

    def __init__(self, params: dict, given: Given):
        super().__init__(params, given)
        self.arrived = Counter[int]()

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        workers = range(self.given.workers)
        times = np.array(self.its.times or [1 / (1 + self.arrived[worker]) for worker in workers])
        scale = times[grads["worker"]] * np.mean(1 / times)
        self.params = {k: p - self.rate * scale * grads[k] for k, p in self.params.items()}
        self.arrived[grads["worker"]] += 1

    @property
    def reached(self) -> bool:
        return len(set(self.arrived.values())) > 1


PLAIN = {"rescaled-asgd": PlainRescaled}
