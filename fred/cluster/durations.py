"""Durations drawn from latencies, in ns: each entity's next one, in blocks for all entities that share a latency."""

from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, count

import numpy as np
from numpy.typing import NDArray

from fred.base.errors import FredError
from fred.cluster.latency import Latency, Seconds
from fred.components import registry
from fred.components.component import LONGEST, NANOSECONDS, is_user_class
from fred.components.input_path import UnreadError

NEVER = 1 << 70  # ns: beyond virtual time, which has 63 bits
_INVALID = -1  # in place of an invalid duration
_AT_THE_START = 1 << 18  # most draws for all entities in the first vectorised call, with at least 16 for each
_FIRST_BLOCK = 256  # first block of an entity's draws; later blocks grow, since many runs need few draws
_TOGETHER, _AT_A_TIME = 32, 1 << 13  # entities whose later draws are made in one call; most draws in that call


def nanoseconds(seconds: float | NDArray[np.float64]) -> NDArray[np.int64]:
    """Return seconds rounded to whole nanoseconds.

    >>> nanoseconds(np.array([1e-9, 0.1, 2.5])).tolist()
    [1, 100000000, 2500000000]
    """
    return np.rint(np.asarray(seconds) * NANOSECONDS).astype(np.int64)


def durations(seed: int, purpose: str, latencies: Sequence[Latency], speeds: Sequence[float]) -> list[Callable[[], int]]:
    """Return, for each entity, a function that returns its next duration, ns: a draw of its latency divided by its speed.

    The k-th call for entity i always returns the same value, whatever the other entities do. A call raises FredError if the
    latency gives an invalid duration, or one that is too long.

    Args:
        seed: seed of the run.
        purpose: use of the durations, which names the streams.
        latencies, speeds: latency and speed of each entity; entities may share a latency.

    Example: the second entity is twice as fast.
        >>> from fred.cluster.latency import Constant
        >>> slow, fast = durations(0, "compute", [Constant(seconds=1.0)] * 2, [1.0, 2.0])
        >>> slow(), fast()
        (1000000000, 500000000)
    """
    functions: dict[int, Callable[[], int]] = {}  # by entity
    size = min(max(16, _AT_THE_START // len(latencies)), _FIRST_BLOCK)
    for latency in {id(latency): latency for latency in latencies}.values():
        members = np.array([i for i, candidate in enumerate(latencies) if candidate is latency])
        ranks, member_speeds = np.arange(len(members)), np.asarray(speeds)[members, None]
        block = _to_nanoseconds(latency.draws(seed, purpose, members, ranks, 0, size) / member_speeds)
        for start in range(0, len(members), _TOGETHER):
            part = slice(start, start + _TOGETHER)
            draws = partial(latency.draws, seed, purpose, members[part], ranks[part])
            supply = _Supply(latency, draws, member_speeds[part], block[part])
            for row, entity in enumerate(members[part].tolist()):
                functions[entity] = chain.from_iterable(supply.iterate_blocks(row)).__next__
    return [functions[entity] for entity in range(len(latencies))]


def check_median(latency: Latency, speed: float) -> None:
    """Raise ValueError if the latency's median draw is no valid duration; rare draws are checked when they occur."""
    try:
        calls = 2 if is_user_class(type(latency)) else 1  # two show whether a user's `sample` depends on `u` alone
        draws = [np.ravel(latency.sample(np.array([0.5])) / speed) for _ in range(calls)]
    except UnreadError:
        raise
    except Exception as error:  # in a user's own class
        raise ValueError(f"latency `{registry.name_of('latency', latency)}`: {type(error).__name__}: {error}") from error
    if _INVALID in _to_nanoseconds(draws[0]):
        raise ValueError(f"{_not_a_duration(latency)}; its median is {draws[0][0]:g} s")
    if not np.array_equal(draws[0], draws[-1]):
        raise ValueError(
            f"latency `{registry.name_of('latency', latency)}` gives {draws[0][0]:g} s and {draws[1][0]:g} s for the same `u`; "
            "expected durations that depend on `u` alone: draw no random numbers in `sample`"
        )


def _to_nanoseconds(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return whole nanoseconds; `_INVALID` for durations that are negative, too long or NaN."""
    is_valid = (seconds >= 0) & (seconds <= LONGEST)
    return np.where(is_valid, nanoseconds(np.where(is_valid, seconds, 0)), _INVALID)


def _not_a_duration(latency: Latency) -> str:
    name = registry.name_of("latency", latency)
    return f"latency `{name}` gives durations that are not between 0 and {LONGEST:g} s; check its options, and the speeds"


class _Supply:
    """A supply of durations for a few entities that share a latency; it draws in blocks, which is faster than one by one."""

    def __init__(
        self, latency: Latency, draws: Callable[[int, int], Seconds], speeds: NDArray[np.float64], first: NDArray[np.int64]
    ):
        self._latency, self._draws, self._speeds = latency, draws, speeds
        self._size = self._made = first.shape[1]  # size of the last block; total size of all blocks
        self._blocks = [self._contiguous_rows(first)]  # for each block, the rows of entities that have not reached it yet

    def iterate_blocks(self, row: int) -> Iterator["array[int]"]:
        """Yield the blocks of the entity in this row."""
        for number in count():
            if number == len(self._blocks):
                self._append_block()
            block = self._blocks[number].pop(row)
            if _INVALID in block:
                yield block[: block.index(_INVALID)]
                raise FredError(_not_a_duration(self._latency))
            yield block

    def _append_block(self) -> None:
        """Append the next block of all entities."""
        self._size = min(2 * self._size, max(_FIRST_BLOCK, _AT_A_TIME // len(self._speeds)))
        self._blocks.append(self._contiguous_rows(_to_nanoseconds(self._draws(self._made, self._size) / self._speeds)))
        self._made += self._size

    @staticmethod
    def _contiguous_rows(block: NDArray[np.int64]) -> dict[int, "array[int]"]:
        """Copy each row to contiguous memory: with many workers, a worker's next number has long left the cache."""
        return {row: array("q", values.tobytes()) for row, values in enumerate(block)}
