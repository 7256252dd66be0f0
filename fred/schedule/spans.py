"""Each worker's activities over time: the basis of time shares, timelines and exports."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.schedule.schedule import NONE, Ints, Schedule, Verb, What, by_name, exact_sum

KINDS = ("computing", "wasted", "network", "waiting", "away")
OTHERS = ("", "worker", "server", "collective")  # the partner on the network; the one that a worker waits for
_COMPUTING, _WASTED, _NETWORK, _WAITING, _AWAY = range(len(KINDS))
_FIRST = (_AWAY, _COMPUTING, _WASTED, _NETWORK)  # priority of simultaneous activities; waiting is the remainder
_NOBODY, _WORKER, _SERVER, _COLLECTIVE = range(len(OTHERS))


def spans(schedule: Schedule, workers: int | None = None) -> pd.DataFrame:
    """Return the activities of all workers, or of the first ones: each moment belongs to exactly one row; by worker and time.

    Columns: worker, begin_ns, end_ns, kind (of KINDS), row (of the schedule; NONE), other (of OTHERS), number (of the
    other; NONE: unknown, or several). A worker's time ends with its last row or interval, since later activities are
    unknown. If no further event was possible, it ends with the run.

    Simultaneous activities count in this order:

    1. away: offline, or the whole job has failed and does not work yet;
    2. computing a gradient, including one in flight at the end of the run;
    3. wasted on a gradient that was dropped or lost in a crash, or on anything that a failure of the job undid;
    4. network: messages of servers from sending to arrival; messages to servers from the end of the gradient on; models between
       workers, for sender and receiver; collectives, once all awaited workers are available;
    5. waiting: all other time.

    A worker waits for whatever ends the wait: the server that sends next, the worker whose model is sent next, or the next
    collective operation.

    Args:
        schedule: schedule of a run with a clock, `result.outcome(run).schedule`.
        workers: number of workers, from the first on; default: all.

    >>> import fred
    >>> def constant(seconds):
    ...     return {"name": "constant", "seconds": seconds}
    >>> scenario = fred.scenario(
    ...     cluster={"workers": 2, "compute": constant(1), "network": {"latency": constant(0.25)}},
    ...     algorithm={"name": "asgd", "learning_rate": 0.1},
    ...     stop={"updates": 2},
    ... )
    >>> schedule = fred.run(scenario).outcome("asgd").schedule
    >>> fred.spans(schedule, workers=1)[["worker", "begin_ns", "end_ns", "kind"]]
       worker    begin_ns      end_ns       kind
    0       0           0   250000000    network
    1       0   250000000  1250000000  computing
    2       0  1250000000  1500000000    network
    """
    table = _Table(schedule, schedule.workers if workers is None else min(workers, schedule.workers))
    free, pieces = table.whole(), list[_Pieces]()
    for kind in _FIRST:
        taken = _taken(table.candidates(kind), free)
        free = _without(free, taken)
        pieces.append(taken)
    pieces.append(table.waiting(free))
    return table.frame(_Pieces.joined(pieces))


def shares(account: pd.DataFrame) -> dict[str, float | None]:
    """Return the share of each of KINDS in all workers' time; None if no time passed.

    Args:
        account: spans as returned by `spans`: columns begin_ns and end_ns, ns, and kind.

    >>> kind = pd.Categorical(["computing", "waiting"], KINDS)
    >>> shares(pd.DataFrame({"begin_ns": [0, 300], "end_ns": [300, 400], "kind": kind}))
    {'computing': 0.75, 'wasted': 0.0, 'network': 0.0, 'waiting': 0.25, 'away': 0.0}
    """
    lengths, kinds = (account["end_ns"] - account["begin_ns"]).to_numpy(), account["kind"].cat.codes.to_numpy()
    parts = [exact_sum(lengths[kinds == kind]) for kind in range(len(KINDS))]
    whole = sum(parts)
    return {name: part / whole if whole else None for name, part in zip(KINDS, parts, strict=True)}


_Each = Ints | int


class _Pieces(NamedTuple):
    """Pieces of a line on which all workers' times are laid end to end, each piece from one point to another."""

    begin: Ints
    end: Ints
    kind: Ints
    row: Ints
    other: Ints
    number: Ints

    @classmethod
    def of(
        cls, begin: Ints, end: Ints, kind: int, row: _Each = NONE, other: _Each = _NOBODY, number: _Each = NONE
    ) -> "_Pieces":
        """Return pieces; values common to all are given once."""
        return cls(begin, end, *(np.broadcast_to(each, begin.shape) for each in (np.int64(kind), row, other, number)))

    @classmethod
    def joined(cls, parts: "Iterable[_Pieces]") -> "_Pieces":
        """Return all of these pieces, in this order."""
        return cls(*map(np.concatenate, zip(*parts, strict=True)))

    def only(self, which: NDArray) -> "_Pieces":
        """Return the pieces selected by a mask, or by positions."""
        return _Pieces(*(column[which] for column in self))


def _taken(candidates: _Pieces, free: _Pieces) -> _Pieces:
    """Return the parts of candidates within free pieces (sorted and disjoint); of two at once the one that began first."""
    order = np.argsort(candidates.begin, kind="stable")
    begin, end = candidates.begin[order], candidates.end[order]
    reached = np.maximum.accumulate(end)
    begin[1:] = np.maximum(begin[1:], reached[:-1])
    real = np.flatnonzero(end > begin)
    begin, end = begin[real], end[real]
    first = np.searchsorted(free.end, begin, "right")
    count = np.searchsorted(free.begin, end, "left") - first
    which = np.repeat(np.arange(len(count)), count)
    within = np.arange(len(which)) - np.repeat(np.cumsum(count) - count - first, count)
    begin, end = np.maximum(begin[which], free.begin[within]), np.minimum(end[which], free.end[within])
    return candidates.only(order[real[which]])._replace(begin=begin, end=end)


def _without(free: _Pieces, taken: _Pieces) -> _Pieces:
    """Return the remainder of free pieces, as waiting."""
    begin = np.sort(np.concatenate((free.begin, taken.end)), kind="stable")
    end = np.sort(np.concatenate((taken.begin, free.end)), kind="stable")
    return _Pieces.of(begin[end > begin], end[end > begin], _WAITING)


class _Table:
    """A schedule's rows and intervals as pieces of a line."""

    def __init__(self, schedule: Schedule, workers: int):
        self._schedule, self._workers = schedule, workers
        self._away = schedule.intervals.only(What.AWAY)
        self._stride = schedule.end_ns + 1  # from one worker's beginning to the next one's
        self._ticks = np.zeros(0, np.int64)  # points of time, numbered if the line would be too long otherwise
        if self._stride * workers >= 2**63:
            names = ("time_ns", "begin_ns", "end_ns")
            times = [schedule[name] for name in names] + [schedule.intervals.begin_ns, schedule.intervals.end_ns]
            self._ticks = np.unique(np.concatenate([[0, schedule.end_ns], *(each.clip(0, schedule.end_ns) for each in times)]))
            self._stride = len(self._ticks)

    def whole(self) -> _Pieces:
        """Return each worker's time, until its last known activity."""
        schedule, last = self._schedule, np.zeros(self._workers, np.int64)
        if schedule.standstill:
            last[:] = schedule.end_ns
        known = (schedule["worker"] >= 0) & (schedule["worker"] < self._workers)
        for name in ("time_ns", "end_ns"):
            np.maximum.at(last, schedule["worker"][known], schedule[name][known].clip(max=schedule.end_ns))
        beside = schedule.intervals
        if (of_all := beside.what >= What.SAVING).any():
            last = last.clip(min=beside.end_ns[of_all].max())
        for whose, some in ((beside.worker, beside.what != What.UNFINISHED), (beside.other, beside.what == What.TRIP)):
            shown = some & (whose >= 0) & (whose < self._workers)
            np.maximum.at(last, whose[shown], beside.end_ns[shown].clip(max=schedule.end_ns))
        everybody = np.flatnonzero(last)
        return _Pieces.of(self._at(everybody, np.zeros_like(everybody)), self._at(everybody, last[everybody]), _WAITING)

    def candidates(self, kind: int) -> _Pieces:
        """Return all activities of one kind, which may overlap with those of others."""
        schedule = self._schedule
        if kind == _AWAY:
            away = self._placed(self._away.worker, self._away.begin_ns, self._away.end_ns, kind)
            return _Pieces.joined((away, self._of_all(kind, What.DETECTING, What.REPAIRING, What.LOADING)))
        if kind == _COMPUTING:
            used = self._of_rows(schedule.rows(Verb.PUSH, Verb.ADD), "begin_ns", "end_ns", kind)
            return _Pieces.joined((used, self._beside(What.COMPUTING, kind)))
        if kind == _WASTED:
            dropped = self._of_rows(schedule.rows(Verb.DROP), "begin_ns", "end_ns", kind)
            return _Pieces.joined((dropped, self._beside(What.LOST, kind), self._of_all(kind, What.UNDONE)))
        return _Pieces.joined((self._down(), self._up(), self._together(), *self._trips()))

    def _down(self) -> _Pieces:
        """Return messages from servers, which end early if their receiver crashes."""
        down = self._of_rows(self._schedule.rows(Verb.PULL), "begin_ns", "end_ns", _NETWORK, _SERVER)
        crashes = np.sort(self._at(self._away.worker, self._away.begin_ns))
        if not len(crashes):
            return down
        following = np.searchsorted(crashes, down.begin)
        crash = np.append(crashes, np.iinfo(np.int64).max)[following]
        return down._replace(end=np.minimum(down.end, crash))

    def _up(self) -> _Pieces:
        """Return messages to servers."""
        schedule = self._schedule
        rows = schedule.rows(Verb.PUSH, Verb.ADD, Verb.DROP, Verb.SYNC)
        rows = rows[(schedule["messages"][rows] > 0) & self._schedule.is_on_servers(rows)]
        arrived = self._of_rows(rows, "end_ns", "time_ns", _NETWORK, _SERVER)
        return _Pieces.joined((arrived, self._beside(What.SENDING, _NETWORK, _SERVER)))

    def _together(self) -> _Pieces:
        """Return collective operations."""
        found = self._schedule.intervals.only(What.COLLECTIVE)
        return self._placed(found.worker, found.begin_ns, found.end_ns, _NETWORK, found.row, _COLLECTIVE)

    def _trips(self) -> tuple[_Pieces, _Pieces]:
        """Return models between workers: for receivers, and for senders."""
        _, begin, end, row, sender, receiver = self._schedule.intervals.only(What.TRIP)
        return (
            self._placed(receiver, begin, end, _NETWORK, row, _WORKER, sender),
            self._placed(sender, begin, end, _NETWORK, row, _WORKER, receiver),
        )

    def waiting(self, free: _Pieces) -> _Pieces:
        """Return the remainder of the line as waiting, each piece for the event that follows."""
        if not len(free.begin):
            return free
        coming = _Pieces.joined((self._trips()[0], self._together(), self._rows()))  # first wins among equals
        coming = coming.only(np.argsort(coming.begin, kind="stable"))
        next_ = np.searchsorted(coming.begin, free.end).clip(max=max(0, len(coming.begin) - 1))
        if not len(coming.begin):
            return free._replace(other=np.full_like(free.other, self._usual()))
        own = (coming.begin[next_] >= free.end) & (coming.begin[next_] // self._stride == free.begin // self._stride)
        other, number = np.where(own, coming.other[next_], self._usual()), np.where(own, coming.number[next_], NONE)
        return free._replace(other=other, number=number)

    def frame(self, pieces: _Pieces) -> pd.DataFrame:
        """Return the account as a table, in order."""
        pieces = pieces.only(np.argsort(pieces.begin, kind="stable"))
        worker, begin = np.divmod(pieces.begin, self._stride)
        end = pieces.end - worker * self._stride
        if len(self._ticks):
            begin, end = self._ticks[begin], self._ticks[end]
        kind, other = by_name(pieces.kind, KINDS), by_name(pieces.other, OTHERS)
        columns = {"worker": worker, "begin_ns": begin, "end_ns": end, "kind": kind, "row": pieces.row, "other": other}
        return pd.DataFrame({**columns, "number": pieces.number}, copy=False)

    def _rows(self) -> _Pieces:
        """Return the beginnings of rows with their partners; rows of collective operations first."""
        schedule = self._schedule
        rows = np.flatnonzero((schedule["worker"] >= 0) & (schedule["verb"] != Verb.MIX))
        rows = rows[np.argsort(~self._is_together(rows), kind="stable")]
        served = self._schedule.is_on_servers(rows)
        begin = np.where(schedule["verb"][rows] == Verb.PULL, schedule["begin_ns"][rows], schedule["time_ns"][rows])
        other = np.select([served, self._is_together(rows)], [_SERVER, _COLLECTIVE], self._usual())
        number = np.where(served & (schedule.blocks > 1), schedule["block"][rows], NONE)
        return self._placed(schedule["worker"][rows], begin, begin, _WAITING, rows, other, number)

    def _is_together(self, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return True for rows for which workers sent messages to each other, to change their own or a shared replica."""
        sent = (self._schedule["messages"][rows] > 0) & (self._schedule["verb"][rows] != Verb.PULL)
        return sent & ~self._schedule.is_on_servers(rows)

    def _usual(self) -> int:
        """Return the kind of partner that a worker waits for if nothing tells it."""
        if len(self._schedule.on_servers):
            return _SERVER
        return _COLLECTIVE if self._schedule.replicas == 1 else _WORKER

    def _of_rows(self, rows: NDArray[np.intp], begin: str, end: str, kind: int, other: int = _NOBODY) -> _Pieces:
        schedule = self._schedule
        number = schedule["block"][rows] if other and schedule.blocks > 1 else NONE
        return self._placed(schedule["worker"][rows], schedule[begin][rows], schedule[end][rows], kind, rows, other, number)

    def _beside(self, what: What, kind: int, other: int = _NOBODY) -> _Pieces:
        """Return the intervals of this kind, which are stored next to the schedule's rows."""
        found = self._schedule.intervals.only(what)
        return self._placed(found.worker, found.begin_ns, found.end_ns, kind, found.row, other)

    def _of_all(self, kind: int, *whats: What) -> _Pieces:
        """Return the intervals of the whole job of these kinds, for each worker."""
        beside, workers = self._schedule.intervals, np.arange(self._workers)
        found = np.isin(beside.what, whats)
        each = np.repeat(workers, found.sum())
        return self._placed(
            each, np.tile(beside.begin_ns[found], len(workers)), np.tile(beside.end_ns[found], len(workers)), kind
        )

    def _placed(
        self,
        worker: Ints,
        begin: Ints,
        end: Ints,
        kind: int,
        row: _Each = NONE,
        other: _Each = _NOBODY,
        number: _Each = NONE,
    ) -> _Pieces:
        """Return the pieces for these times of workers, without workers outside the table."""
        pieces = _Pieces.of(self._at(worker, begin), self._at(worker, end), kind, row, other, number)
        return pieces.only((worker >= 0) & (worker < self._workers))

    def _at(self, worker: Ints, time: Ints) -> Ints:
        """Return points of the line."""
        time = time.clip(0, self._schedule.end_ns)
        if len(self._ticks):
            time = np.searchsorted(self._ticks, time)
        return worker * self._stride + time
