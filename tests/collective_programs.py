"""Collectives as programs of their ranks, simulated step by step. They share no code with FRED."""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple


class Step(NamedTuple):
    """What a rank does before its next step: at the same time it may send chunks to one rank, and get some from one."""

    to: int | None = None
    chunks: tuple[int, ...] = ()
    source: int | None = None
    adds: bool = True  # to what it has; else it replaces that


Programs = list[list[Step]]


def simulate(programs: Programs, chunks: int, seconds: Callable[[int, int, float], float]) -> tuple[float, int, float]:
    """Return the time at which all ranks are done, s, their messages, and their models; a message waits for both its ends."""
    ranks = range(len(programs))
    sums = [[Counter([rank]) for _ in range(chunks)] for rank in ranks]  # whose contributions each chunk is the sum of
    sent, models = 0, 0.0
    times, at = [0.0 for _ in ranks], [0 for _ in ranks]
    before = [list(row) for row in sums]  # as the step began
    open_ends: list[dict[str, float]] = [{} for _ in ranks]

    def step(rank: int) -> Step | None:
        return programs[rank][at[rank]] if at[rank] < len(programs[rank]) else None

    moved = True
    while moved:
        moved = False
        for rank in ranks:
            action = step(rank)
            other = action.to if action is not None and "sent" not in open_ends[rank] else None
            reply = step(other) if other is not None else None
            if action is not None and other is not None and reply is not None and reply.source == rank:
                size = len(action.chunks) / chunks
                end = max(times[rank], times[other]) + seconds(rank, other, size)
                open_ends[rank]["sent"] = open_ends[other]["got"] = end
                for chunk in action.chunks:
                    previous = before[other][chunk] if reply.adds else Counter()
                    sums[other][chunk] = previous + before[rank][chunk]
                sent, models, moved = sent + 1, models + size, True
        for rank in ranks:
            action = step(rank)
            if action is not None and len(open_ends[rank]) == (action.to is not None) + (action.source is not None):
                times[rank] = max([times[rank], *open_ends[rank].values()])
                at[rank], open_ends[rank], before[rank], moved = at[rank] + 1, {}, list(sums[rank]), True
    assert [len(program) for program in programs] == at, "nobody waits for ever"
    assert sums == [[Counter(ranks)] * chunks for _ in ranks], "everybody has everybody's contribution, once"
    return max(times), sent, models


def ring(n: int) -> tuple[Programs, int]:
    adding = [[Step((r + 1) % n, ((r - s) % n,), (r - 1) % n) for s in range(n - 1)] for r in range(n)]
    gathering = [[Step((r + 1) % n, ((r + 1 - s) % n,), (r - 1) % n, adds=False) for s in range(n - 1)] for r in range(n)]
    return [adds + gathers for adds, gathers in zip(adding, gathering, strict=True)], n


def fold(n: int, core: Callable[[int], tuple[Programs, int]]) -> tuple[Programs, int]:
    """Even ranks of the first 2 r give their model to their right neighbour first, and get the result in the end."""
    power = 1 << n.bit_length() - 1
    excess = n - power
    inner, chunks = core(power)
    everything = tuple(range(chunks))
    members = [2 * i + 1 for i in range(excess)] + list(range(2 * excess, n))
    programs: Programs = [[] for _ in range(n)]
    for rank, program in zip(members, inner, strict=True):
        for to, parts, source, adds in program:
            assert to is not None
            assert source is not None
            programs[rank].append(Step(members[to], parts, members[source], adds))
    for i in range(excess):
        programs[2 * i] = [Step(2 * i + 1, everything), Step(source=2 * i + 1, adds=False)]
        programs[2 * i + 1] = [Step(source=2 * i), *programs[2 * i + 1], Step(2 * i, everything)]
    return programs, chunks


def butterfly(n: int) -> tuple[Programs, int]:
    distances = [1 << k for k in range(n.bit_length() - 1)]
    return [[Step(rank ^ distance, (0,), rank ^ distance) for distance in distances] for rank in range(n)], 1


def halving_and_doubling(n: int) -> tuple[Programs, int]:
    programs: Programs = [[] for _ in range(n)]
    distances = [n >> k for k in range(1, n.bit_length())]
    for rank in range(n):
        for distance in distances:  # the half to which the partner belongs
            other = rank ^ distance
            programs[rank].append(Step(other, tuple(c for c in range(n) if c // distance == other // distance), other))
        for distance in reversed(distances):
            other = rank ^ distance
            kept_chunks = tuple(c for c in range(n) if c // distance == rank // distance)
            programs[rank].append(Step(other, kept_chunks, other, adds=False))
    return programs, n


def reduce_and_broadcast(n: int) -> tuple[Programs, int]:
    programs: Programs = [[] for _ in range(n)]
    masks = [1 << k for k in range((n - 1).bit_length())]
    for rank in range(n):
        below = [mask for mask in masks if rank % (2 * mask) == 0 and rank + mask < n]
        programs[rank] = [Step(source=rank + mask) for mask in below]
        if rank:
            parent = rank & (rank - 1)
            programs[rank] += [Step(parent, (0,)), Step(source=parent, adds=False)]
        programs[rank] += [Step(rank + mask, (0,)) for mask in reversed(below)]
    return programs, 1


PROGRAMS: dict[str, Callable[[int], tuple[Programs, int]]] = {
    "ring": ring,
    "recursive-doubling": lambda n: fold(n, butterfly),
    "rabenseifner": lambda n: fold(n, halving_and_doubling),
    "tree": reduce_and_broadcast,
}
