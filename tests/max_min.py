"""Flows on shared links, event by event in floating-point seconds: what FRED's are compared with. It shares no code with FRED."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Message(NamedTuple):
    """A message: when it begins (ns), the numbers of its links, bytes, weight, and highest rate (bytes per ns)."""

    begin: int
    path: tuple[int, ...]
    size: float
    weight: float = 1.0
    limit: float = math.inf


def rates(messages: Sequence[Message], capacities: Sequence[float]) -> NDArray[np.float64]:
    """Return the weighted max-min fair rate of each message, bytes per ns, by progressive filling."""
    passes = np.array([[link in message.path for message in messages] for link in range(len(capacities))], float)
    weights, limits = (np.array([getattr(message, name) for message in messages]) for name in ("weight", "limit"))
    result, free = np.zeros(len(messages)), np.ones(len(messages), bool)
    while free.any():
        load = passes @ (weights * free)
        shares = np.full(len(capacities), np.inf)
        np.divide(np.array(capacities) - passes @ (result * ~free), load, out=shares, where=load > 0)
        level = min(shares.min(), (limits / weights)[free].min())
        full = (shares <= level * (1 + 1e-12)) & (load > 0)
        limited = free & ((passes[full].sum(axis=0) > 0) | (limits / weights <= level * (1 + 1e-12)))
        result[limited] = level * weights[limited]
        free &= ~limited
    return result


def ends(
    messages: Sequence[Message], capacities: Sequence[float], changes: Sequence[tuple[int, int, float]] = ()
) -> list[float]:
    """Return when each message has passed its links, ns; `changes`: when (ns) which link gets which capacity, in order."""
    now_has, coming = list(capacities), list(changes)
    waiting = sorted(range(len(messages)), key=lambda number: messages[number].begin)
    left: dict[int, float] = {}
    done, now = [0.0] * len(messages), 0.0
    while waiting or left:
        rate = dict(zip(left, rates([messages[number] for number in left], now_has), strict=True)) if left else {}
        first = min((now + left[number] / rate[number] for number in left), default=math.inf)
        following = min(first, messages[waiting[0]].begin if waiting else math.inf, coming[0][0] if coming else math.inf)
        for number in list(left):
            left[number] -= rate[number] * (following - now)
            if following == first and left[number] <= 1e-9 * messages[number].size:
                done[number] = following
                del left[number]
        now = following
        while coming and coming[0][0] <= now:
            _, link, capacity = coming.pop(0)
            now_has[link] = capacity
        while waiting and messages[waiting[0]].begin <= now:
            number = waiting.pop(0)
            left[number] = messages[number].size
    return done
