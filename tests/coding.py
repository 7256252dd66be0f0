"""Codecs as NumPy has them, in double precision, and what each worker remembers of them."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def rounded(values: Array, levels: Array) -> Array:
    """The nearest of some levels, which ascend; in the middle the upper one."""
    places = (values[..., None] >= (levels[1:] + levels[:-1]) / 2).sum(-1)
    return np.asarray(levels[places])


def only_largest(values: Array, count: int) -> Array:
    """Zero but for the `count` numbers of largest size."""
    chosen = np.argsort(-np.abs(values), kind="stable")[:count]
    result = np.zeros_like(values)
    result[chosen] = values[chosen]
    return result


class Feedback:
    """What each worker sends of what it has, and remembers; `coded` is told the worker, its count of messages, and the whole."""

    def __init__(self, coded: Callable[[int, int, dict], dict], decay: float):
        self.coded, self.decay = coded, decay
        self.rest: dict[int, dict] = defaultdict(dict)
        self.count: dict[int, int] = defaultdict(int)

    def __call__(self, worker: int, params: dict, message: dict) -> dict:
        whole = {k: g + self.decay * self.rest[worker].get(k, 0.0) for k, g in message.items()}
        sent = self.coded(worker, self.count[worker], whole)
        self.rest[worker] = {k: whole[k] - sent[k] for k in whole}
        self.count[worker] += 1
        return sent
