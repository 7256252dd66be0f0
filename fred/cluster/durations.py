"""Durations in integer nanoseconds, handed out one at a time from each entity's counter-based stream."""

from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, count

import numpy as np
from numpy.typing import NDArray

from fred.cluster.latency import Latency, Seconds
from fred.components import registry
from fred.components.input_path import UnreadError
from fred.components.limits import LONGEST
from fred.errors import FredError

NANOSECONDS = 1_000_000_000  # per second
NEVER = 1 << 70  # ns: no moment of virtual time, which has 63 bits
_WRONG = -1  # in the place of what is no duration
_AT_THE_START = 1 << 18  # draws made for all entities in one vectorised call at most, but at least 16 each
_FIRST_BLOCK = 256  # draws of an entity made at a time at first; then ever more, for many runs need few
_TOGETHER, _AT_A_TIME = 32, 1 << 13  # entities whose later draws are made in one call; draws made there at most


def nanoseconds(seconds: float | NDArray[np.float64]) -> NDArray[np.int64]:
    """Seconds rounded to whole nanoseconds.

    >>> nanoseconds(np.array([1e-9, 0.1, 2.5])).tolist()
    [1, 100000000, 2500000000]
    """
    return np.rint(np.asarray(seconds) * NANOSECONDS).astype(np.int64)


def durations(seed: int, purpose: str, latencies: Sequence[Latency], speeds: Sequence[float]) -> list[Callable[[], int]]:
    """For each entity a function that returns its next duration, ns: a draw of its latency divided by its speed.

    The k-th call for entity i always returns the same value, whatever the other entities do. A call raises FredError if the
    latency gives no duration there, or too long a one.

    Args:
        seed: the run's.
        purpose: what the durations are for: names the streams.
        latencies, speeds: one for each entity; entities may share a latency.

    Example: the second entity is twice as fast.
        >>> from fred.cluster.latency import Constant
        >>> slow, fast = durations(0, "compute", [Constant(seconds=1.0)] * 2, [1.0, 2.0])
        >>> slow(), fast()
        (1000000000, 500000000)
    """
    result: dict[int, Callable[[], int]] = {}
    size = min(max(16, _AT_THE_START // len(latencies)), _FIRST_BLOCK)
    for latency in {id(latency): latency for latency in latencies}.values():
        members = np.array([i for i, own in enumerate(latencies) if own is latency])
        ranks, own_speeds = np.arange(len(members)), np.asarray(speeds)[members, None]
        block = _whole(latency.draws(seed, purpose, members, ranks, 0, size) / own_speeds)
        for start in range(0, len(members), _TOGETHER):
            part = slice(start, start + _TOGETHER)
            draws = partial(latency.draws, seed, purpose, members[part], ranks[part])
            supply = _Supply(latency, draws, own_speeds[part], block[part])
            for place, entity in enumerate(members[part].tolist()):
                result[entity] = chain.from_iterable(supply.of(place)).__next__
    return [result[entity] for entity in range(len(latencies))]


def check_median(latency: Latency, speed: float) -> None:
    """Refuse, with ValueError, a latency whose usual draw is no duration; rare draws are checked when they come up."""
    try:
        draw = latency.sample(np.array([0.5])) / speed
    except UnreadError:
        raise
    except Exception as error:  # in a user's own class
        raise ValueError(f"latency `{registry.name_of('latency', latency)}`: {type(error).__name__}: {error}") from error
    if _WRONG in _whole(draw):
        raise ValueError(_not_a_duration(latency))


def _whole(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    right = (seconds >= 0) & (seconds <= LONGEST)
    return np.where(right, nanoseconds(np.where(right, seconds, 0)), _WRONG)


def _not_a_duration(latency: Latency) -> str:
    name = registry.name_of("latency", latency)
    return f"latency `{name}` gives durations that are not between 0 and {LONGEST:g} s; check its options, and the speeds"


class _Supply:
    """Durations of a few entities that share a latency, made together in blocks: quicker than for each by itself."""

    def __init__(
        self, latency: Latency, draws: Callable[[int, int], Seconds], speeds: NDArray[np.float64], first: NDArray[np.int64]
    ):
        self._latency, self._draws, self._speeds = latency, draws, speeds
        self._size = self._made = first.shape[1]  # of the last block, and of all so far
        self._blocks = [self._own(first)]  # of each entity that has not come to it yet

    def of(self, place: int) -> Iterator["array[int]"]:
        """The blocks of one entity."""
        for number in count():
            if number == len(self._blocks):
                self._make()
            block = self._blocks[number].pop(place)
            if _WRONG in block:
                yield block[: block.index(_WRONG)]
                raise FredError(_not_a_duration(self._latency))
            yield block

    def _make(self) -> None:
        """The next block of all."""
        self._size = min(2 * self._size, max(_FIRST_BLOCK, _AT_A_TIME // len(self._speeds)))
        self._blocks.append(self._own(_whole(self._draws(self._made, self._size) / self._speeds)))
        self._made += self._size

    @staticmethod
    def _own(block: NDArray[np.int64]) -> dict[int, "array[int]"]:
        """Close together in memory: with many workers each comes to its next number when it has long left the cache."""
        return {place: array("q", row.tobytes()) for place, row in enumerate(block)}
