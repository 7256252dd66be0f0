"""Durations in integer nanoseconds, handed out one at a time from each entity's counter-based stream."""

from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from fred import registry
from fred.errors import FredError
from fred.timing.latency import Latency, Seconds

NANOSECONDS = 1_000_000_000  # per second
LONGEST = 9e9  # s, 285 years: about as far as 64 bits of nanoseconds reach
_WRONG = -1  # in the place of what is no duration
_AT_THE_START = 1 << 18  # draws made for all entities in one vectorised call at most, but at least 16 each
_FIRST_BLOCK, _LARGEST_BLOCK = 256, 4096  # draws of an entity made at a time: ever more, for many runs need few


def nanoseconds(seconds: float | NDArray[np.float64]) -> NDArray[np.int64]:
    """Seconds rounded to whole nanoseconds."""
    return np.rint(np.asarray(seconds) * NANOSECONDS).astype(np.int64)


def durations(seed: int, purpose: str, latencies: Sequence[Latency], speeds: Sequence[float]) -> list[Callable[[], int]]:
    """For each entity a function that returns its next duration, ns: a draw of its latency divided by its speed.

    The k-th call for entity i always returns the same value, whatever the other entities do. A call raises FredError if the
    latency gives no duration there, or too long a one.
    """
    result: dict[int, Callable[[], int]] = {}
    size = min(max(16, _AT_THE_START // len(latencies)), _FIRST_BLOCK)
    for latency in {id(latency): latency for latency in latencies}.values():
        members = np.array([i for i, own in enumerate(latencies) if own is latency])
        draws = latency.draws(seed, purpose, members, np.arange(len(members)), 0, size)
        block = _whole(draws / np.asarray(speeds)[members, None])
        for rank, (entity, row) in enumerate(zip(members.tolist(), block, strict=True)):
            own = partial(latency.draws, seed, purpose, entity, rank)
            result[entity] = chain.from_iterable(_blocks(latency, own, speeds[entity], _packed(row))).__next__
    return [result[entity] for entity in range(len(latencies))]


def check_median(latency: Latency, speed: float) -> None:
    """Refuse, with ValueError, a latency whose usual draw is no duration; rare draws are checked when they come up."""
    try:
        draw = latency.sample(np.array([0.5])) / speed
    except Exception as error:  # in a user's own class
        raise ValueError(f"latency `{registry.name_of('latency', latency)}`: {type(error).__name__}: {error}") from error
    if _WRONG in _whole(draw):
        raise ValueError(_not_a_duration(latency))


def _whole(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    right = (seconds >= 0) & (seconds <= LONGEST)
    return np.where(right, nanoseconds(np.where(right, seconds, 0)), _WRONG)


def _packed(numbers: NDArray[np.int64]) -> "array[int]":
    """Close together in memory: with many workers each comes to its next number when it has long left the cache."""
    return array("q", numbers.tobytes())


def _not_a_duration(latency: Latency) -> str:
    name = registry.name_of("latency", latency)
    return f"latency `{name}` gives durations that are not between 0 and {LONGEST:g} s; check its options, and the speeds"


def _blocks(
    latency: Latency, draws: Callable[[int, int], Seconds], speed: float, block: "array[int]"
) -> Iterator["array[int]"]:
    position, size = 0, len(block)
    while True:
        if _WRONG in block:
            yield block[: block.index(_WRONG)]
            raise FredError(_not_a_duration(latency))
        yield block
        position += size
        size = min(2 * size, _LARGEST_BLOCK)
        block = _packed(_whole(draws(position, size) / speed))
