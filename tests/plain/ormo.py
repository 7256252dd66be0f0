"""OrMo, in order: parameters as if each bucket had been complete before the next one began."""

from collections import defaultdict

from tests.plain.base import Given, Plain


class PlainOrMo(Plain):
    """w_0 - rate x the sum over buckets j of (1 + beta + ... + beta^(newest - j)) x the sum of the bucket's gradients."""

    def __init__(self, params: dict, given: Given):
        super().__init__(params, given)
        self.first, self.updates, self.late = dict(params), 0, 0
        self.sums: defaultdict[int, dict] = defaultdict(lambda: dict.fromkeys(params, 0.0))

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        newest, own = (-(-read // self.given.workers) for read in (self.updates, self.updates - staleness))
        self.sums[own] = {k: s + grads[k] for k, s in self.sums[own].items()}
        self.updates, self.late = self.updates + 1, self.late + (own < newest)
        lengths = {bucket: sum(self.its.momentum**age for age in range(newest - bucket + 1)) for bucket in self.sums}
        moved = {k: sum(lengths[bucket] * s[k] for bucket, s in self.sums.items()) for k in self.first}
        self.params = {k: first - self.rate * moved[k] for k, first in self.first.items()}

    @property
    def reached(self) -> bool:
        return 0 < self.late < self.updates


PLAIN = {"ormo": PlainOrMo}
