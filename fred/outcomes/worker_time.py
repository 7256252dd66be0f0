"""Where workers' time went: computing, computing in vain, on the network, waiting."""

import numpy as np

from fred.schedule import NONE, Ints, Schedule, Verb, exact_sum

KINDS = ("computing", "in_vain", "network", "waiting")


def shares(schedule: Schedule, on_servers: range) -> dict[str, float | None]:
    """The share of all workers' time, each worker's until the last row about it, that went to each of KINDS.

    What happens at once counts once, as the first of KINDS that it is. Computing is in vain where the gradient was dropped;
    waiting is all that is left. Messages of servers, which hold the replicas `on_servers`, are on the network from being
    sent to their arrival, those to servers from the end of the gradient; collectives for the time that they take. Models that
    workers send each other singly (gossip, pairs) are waited for. None where no time passed.
    """
    whole = exact_sum(_until_last_row(schedule))
    if not whole:
        return dict.fromkeys(KINDS)
    computing = _spans(schedule, schedule.rows(Verb.PUSH, Verb.ADD), "begin_ns", "end_ns")
    in_vain = _spans(schedule, schedule.rows(Verb.DROP), "begin_ns", "end_ns")
    sent = _messages(schedule, on_servers)
    covered = [_covered(parts) / whole for parts in ([computing], [computing, in_vain], [computing, in_vain, sent])]
    values = np.diff([0.0, *covered, 1.0]).clip(0.0)
    return dict(zip(KINDS, values.tolist(), strict=True))


_Spans = tuple[Ints, Ints, Ints]  # worker, begin, end, ns


def _messages(schedule: Schedule, on_servers: range) -> _Spans:
    """When messages of each worker were on their way."""
    sent = schedule.rows(Verb.PUSH, Verb.ADD, Verb.DROP, Verb.SYNC)
    sent = sent[(schedule["messages"][sent] > 0) & np.isin(schedule["replica"][sent], on_servers)]
    up = _spans(schedule, sent, "end_ns", "time_ns")
    down = _spans(schedule, schedule.rows(Verb.PULL), "begin_ns", "end_ns")
    rows, begin, end = schedule.collectives.T
    exchanging = schedule["worker"][rows]
    across = exchanging, begin, np.minimum(end, _until_last_row(schedule)[exchanging])
    worker, begin, end = (np.concatenate(parts) for parts in zip(up, down, across, strict=True))
    return worker, begin, end


def _spans(schedule: Schedule, rows: Ints, begin: str, end: str) -> _Spans:
    return schedule["worker"][rows], schedule[begin][rows], np.minimum(schedule[end][rows], schedule.end_ns)


def _until_last_row(schedule: Schedule) -> Ints:
    """[workers]: when the last of what is known about each worker happened, within the run."""
    last = np.zeros(schedule.workers, np.int64)
    known = schedule["worker"] >= 0
    for name in ("time_ns", "end_ns"):
        np.maximum.at(last, schedule["worker"][known], np.minimum(schedule[name][known], schedule.end_ns))
    return last


def _covered(parts: list[_Spans]) -> int:
    """How long, in all, each worker is in at least one of these spans, ns."""
    worker, begin, end = (np.concatenate(each) for each in zip(*parts, strict=True))
    real = (worker >= 0) & (end > begin)
    worker, begin, end = worker[real], begin[real], end[real]
    order = np.lexsort((begin, worker))
    worker, begin, end = worker[order], begin[order], end[order]
    if not len(worker):
        return 0
    first = np.flatnonzero(np.diff(worker, prepend=NONE))  # of each worker
    reached = np.concatenate([np.maximum.accumulate(own) for own in np.split(end, first[1:])])
    before = np.concatenate(([0], reached[:-1]))  # where the worker's spans before this one have reached to
    before[first] = 0
    return exact_sum((end - np.maximum(begin, before)).clip(0))
