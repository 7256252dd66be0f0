"""Each worker's activities and absences over time: the basis of time shares, timelines and exports."""

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.base.types import Ints
from fred.components.component import NANOSECONDS
from fred.schedule.schedule import NONE, Schedule, Verb, What, by_name, exact_sum

STATES = {  # of the job, by the interval that tells; the rest of the time it trains
    "saving": What.SAVING,
    "undone": What.UNDONE,
    "detecting": What.DETECTING,
    "repairing": What.REPAIRING,
    "loading": What.LOADING,
}


def first_absence(schedule: Schedule, workers: Collection[int] | None = None) -> tuple[int, int] | None:
    """Return when a worker or server is first offline, ns, and the worker (-1: a server); None if that never happens.

    Args:
        schedule: schedule of a run with a clock.
        workers: workers to consider; default: all.
    """
    # A failure of the job begins with the time until it is noticed.
    offline, job_failures, servers = (schedule.intervals.select(kind) for kind in (What.AWAY, What.DETECTING, What.SERVER_AWAY))
    begins = *offline.begin_ns.tolist(), *job_failures.begin_ns.tolist()
    members = *offline.worker.tolist(), *job_failures.worker.tolist()
    absences = [(begin, worker) for begin, worker in zip(begins, members, strict=True) if workers is None or worker in workers]
    return min(absences + [(begin, -1) for begin in servers.begin_ns.tolist()], default=None)


def failure_times(schedule: Schedule) -> dict[str, Any]:
    """Return the number of failures, the mean time between them, s, and the share of each state in the job's time.

    Also return the number of deferred checkpoints: those that fell due while the last one was being written.

    Training is work that lasts: its share is the goodput, also called the effective training time ratio. Work after the last
    checkpoint counts as training until a failure undoes it.

    Args:
        schedule: schedule of a run whose cluster has `failures`.

    Example: the failure at 2.5 s undoes everything after 1 s, since the checkpoint of 2 s is not written yet.
        >>> import fred
        >>> failures = {"recorded": [[0, 2.5, 4.0]], "checkpoint": {"every_updates": 1, "write": 1.0}}
        >>> scenario = fred.scenario(
        ...     cluster={"workers": 1, "compute": {"name": "constant", "seconds": 1.0}, "failures": failures},
        ...     algorithm={"name": "ssgd", "learning_rate": 0.1},
        ...     stop={"seconds": 10},
        ... )
        >>> times = failure_times(fred.run(scenario).outcomes[0].schedule)
        >>> times["number"], times["goodput"], times["time"]["undone"], times["time"]["repairing"]
        (1, 0.7, 0.15, 0.15)
    """
    intervals = schedule.intervals
    lengths = intervals.end_ns - intervals.begin_ns
    spent = {name: exact_sum(lengths[intervals.what == kind]) for name, kind in STATES.items()}
    end = schedule.end_ns
    deferred = int((intervals.what == What.DEFERRED).sum())
    number = int((intervals.what == What.DETECTING).sum())
    seconds = end / NANOSECONDS
    training = end - sum(spent.values())
    return {
        "number": number,
        "goodput": training / end if end else None,
        "seconds_between": seconds / number if number else None,
        "deferred_checkpoints": deferred,
        "time": {name: length / end if end else None for name, length in {"training": training, **spent}.items()},
    }


def is_undone(schedule: Schedule, seconds: float) -> bool:
    """Return True if a failure undid the work that was done at a time, s.

    Args:
        schedule: schedule of a run.
        seconds: virtual time, s.
    """
    undone_work, time = schedule.intervals.select(What.UNDONE), round(seconds * NANOSECONDS)
    return bool(((undone_work.begin_ns < time) & (time < undone_work.end_ns)).any())


KINDS = ("computing", "wasted", "network", "waiting", "away")
PARTNERS = ("", "worker", "server", "collective")  # the partner on the network; the one that a worker waits for
_COMPUTING, _WASTED, _NETWORK, _WAITING, _AWAY = range(len(KINDS))
_PRIORITIES = (_AWAY, _COMPUTING, _WASTED, _NETWORK)  # of simultaneous activities; waiting is the remainder
_NOBODY, _WORKER, _SERVER, _COLLECTIVE = range(len(PARTNERS))
_IntsOrInt = Ints | int


def spans(schedule: Schedule, workers: int | None = None) -> pd.DataFrame:
    """Return the activities of all workers, or of the first ones: each moment belongs to exactly one row; by worker and time.

    Columns: worker, begin_ns, end_ns, kind (of KINDS), row (of the schedule; NONE), other (of PARTNERS), number (of the
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
    free, pieces = table.lifetimes(), list[_Pieces]()
    for kind in _PRIORITIES:
        clipped = _clip(table.candidates(kind), free)
        free = _subtract(free, clipped)
        pieces.append(clipped)
    pieces.append(table.waiting(free))
    return table.frame(_Pieces.concatenate(pieces))


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
    total = sum(parts)
    return {name: part / total if total else None for name, part in zip(KINDS, parts, strict=True)}


class _Pieces(NamedTuple):
    """Pieces of a line on which all workers' times are laid end to end, each piece from one point to another."""

    begin: Ints
    end: Ints
    kind: Ints
    row: Ints
    partner: Ints  # position in PARTNERS
    partner_number: Ints  # NONE: unknown, or several

    @classmethod
    def from_columns(
        cls,
        begin: Ints,
        end: Ints,
        kind: int,
        row: _IntsOrInt = NONE,
        partner: _IntsOrInt = _NOBODY,
        partner_number: _IntsOrInt = NONE,
    ) -> "_Pieces":
        """Return pieces from points of the line [pieces]; values common to all are given once."""
        facts = np.int64(kind), row, partner, partner_number
        return cls(begin, end, *(np.broadcast_to(column, begin.shape) for column in facts))

    @classmethod
    def concatenate(cls, parts: "Iterable[_Pieces]") -> "_Pieces":
        """Return all of these pieces, in this order."""
        return cls(*map(np.concatenate, zip(*parts, strict=True)))

    def select(self, selection: NDArray) -> "_Pieces":
        """Return the pieces selected by a mask, or by positions."""
        return _Pieces(*(column[selection] for column in self))


def _clip(candidates: _Pieces, free: _Pieces) -> _Pieces:
    """Return the parts of candidates within free pieces (sorted and disjoint). Of overlapping candidates the earlier counts."""
    # All candidates at once, since a run may have millions. Each begins no earlier than the latest end before it, so that none
    # overlap. Two searches give the first free piece that a candidate touches, and the number of such pieces. `positions`
    # repeats the candidate once per piece, and `free_positions` counts these pieces up from the first one.
    order = np.argsort(candidates.begin, kind="stable")
    begin, end = candidates.begin[order], candidates.end[order]
    latest_end = np.maximum.accumulate(end)
    begin[1:] = np.maximum(begin[1:], latest_end[:-1])
    nonempty = np.flatnonzero(end > begin)
    begin, end = begin[nonempty], end[nonempty]
    first_free = np.searchsorted(free.end, begin, "right")
    counts = np.searchsorted(free.begin, end, "left") - first_free
    positions = np.repeat(np.arange(len(counts)), counts)
    output_begins = np.cumsum(counts) - counts  # where each candidate's parts begin in the result
    free_positions = np.arange(len(positions)) - np.repeat(output_begins - first_free, counts)
    begin, end = np.maximum(begin[positions], free.begin[free_positions]), np.minimum(end[positions], free.end[free_positions])
    return candidates.select(order[nonempty[positions]])._replace(begin=begin, end=end)


def _subtract(free: _Pieces, pieces: _Pieces) -> _Pieces:
    """Return the remainder of free pieces, as waiting; the other pieces lie within them and do not overlap."""
    # A gap begins where a free piece begins or another piece ends, and ends where another piece begins or a free piece ends.
    # Gaps do not overlap, so the i-th begin in sorted order belongs to the i-th end; some gaps are empty.
    begin = np.sort(np.concatenate((free.begin, pieces.end)), kind="stable")
    end = np.sort(np.concatenate((pieces.begin, free.end)), kind="stable")
    return _Pieces.from_columns(begin[end > begin], end[end > begin], _WAITING)


class _Table:
    """A schedule's rows and intervals as pieces of a line."""

    def __init__(self, schedule: Schedule, workers: int):
        self._schedule, self._workers = schedule, workers
        self._away = schedule.intervals.select(What.AWAY)
        # One line holds the times of all workers, end to end, so one sort and one search serve all of them. Its length may
        # exceed 64 bits, such as for thousands of workers over years. Then the points are not nanoseconds but the ranks of the
        # times that occur, and `frame` translates them back.
        self._stride = schedule.end_ns + 1  # from one worker's beginning to the next one's
        self._ticks = np.zeros(0, np.int64)  # times that occur, ns, ascending; empty: points are nanoseconds
        if self._stride * workers >= 2**63:
            names = ("time_ns", "begin_ns", "end_ns")
            times = [schedule[name] for name in names] + [schedule.intervals.begin_ns, schedule.intervals.end_ns]
            self._ticks = np.unique(
                np.concatenate([[0, schedule.end_ns], *(column.clip(0, schedule.end_ns) for column in times)])
            )
            self._stride = len(self._ticks)

    def lifetimes(self) -> _Pieces:
        """Return each worker's time, until its last known activity."""
        schedule, last_ns = self._schedule, np.zeros(self._workers, np.int64)
        if schedule.standstill:
            last_ns[:] = schedule.end_ns
        in_table = (schedule["worker"] >= 0) & (schedule["worker"] < self._workers)
        for name in ("time_ns", "end_ns"):
            np.maximum.at(last_ns, schedule["worker"][in_table], schedule[name][in_table].clip(max=schedule.end_ns))
        intervals = schedule.intervals
        # The kinds from SAVING on exist only if the whole job can fail. Then all workers live until the last of these.
        if (of_job := intervals.what >= What.SAVING).any():
            last_ns = last_ns.clip(min=intervals.end_ns[of_job].max())
        for members, mask in (
            (intervals.worker, intervals.what != What.UNFINISHED),  # it ends when it would have been finished
            (intervals.other, intervals.what == What.TRIP),  # the receiver
        ):
            selected = mask & (members >= 0) & (members < self._workers)
            np.maximum.at(last_ns, members[selected], intervals.end_ns[selected].clip(max=schedule.end_ns))
        workers = np.flatnonzero(last_ns)
        return _Pieces.from_columns(
            self._points(workers, np.zeros_like(workers)), self._points(workers, last_ns[workers]), _WAITING
        )

    def candidates(self, kind: int) -> _Pieces:
        """Return all activities of one kind, which may overlap with those of others."""
        schedule = self._schedule
        if kind == _AWAY:
            absences = self._located(self._away.worker, self._away.begin_ns, self._away.end_ns, kind)
            return _Pieces.concatenate((absences, self._job_pieces(kind, What.DETECTING, What.REPAIRING, What.LOADING)))
        if kind == _COMPUTING:
            computed = self._row_pieces(schedule.rows(Verb.PUSH, Verb.ADD), "begin_ns", "end_ns", kind)
            return _Pieces.concatenate((computed, self._kind_pieces(What.COMPUTING, kind)))
        if kind == _WASTED:
            dropped = self._row_pieces(schedule.rows(Verb.DROP), "begin_ns", "end_ns", kind)
            return _Pieces.concatenate((dropped, self._kind_pieces(What.LOST, kind), self._job_pieces(kind, What.UNDONE)))
        return _Pieces.concatenate((self._from_servers(), self._to_servers(), self._collectives(), *self._trips()))

    def _from_servers(self) -> _Pieces:
        """Return messages from servers, which end early if their receiver crashes."""
        down = self._row_pieces(self._schedule.rows(Verb.PULL), "begin_ns", "end_ns", _NETWORK, _SERVER)
        crashes = np.sort(self._points(self._away.worker, self._away.begin_ns))
        if not len(crashes):
            return down
        # The next crash on the line may be another worker's. It is then later than all of this worker's time: no effect.
        position = np.searchsorted(crashes, down.begin)
        next_crash = np.append(crashes, np.iinfo(np.int64).max)[position]
        return down._replace(end=np.minimum(down.end, next_crash))

    def _to_servers(self) -> _Pieces:
        """Return messages to servers."""
        schedule = self._schedule
        rows = schedule.rows(Verb.PUSH, Verb.ADD, Verb.DROP, Verb.SYNC)
        rows = rows[(schedule["messages"][rows] > 0) & self._schedule.is_on_servers(rows)]
        arrived = self._row_pieces(rows, "end_ns", "time_ns", _NETWORK, _SERVER)
        return _Pieces.concatenate((arrived, self._kind_pieces(What.SENDING, _NETWORK, _SERVER)))

    def _collectives(self) -> _Pieces:
        """Return collective operations."""
        intervals = self._schedule.intervals.select(What.COLLECTIVE)
        return self._located(intervals.worker, intervals.begin_ns, intervals.end_ns, _NETWORK, intervals.row, _COLLECTIVE)

    def _trips(self) -> tuple[_Pieces, _Pieces]:
        """Return models between workers: for receivers, and for senders."""
        _, begin, end, row, sender, receiver = self._schedule.intervals.select(What.TRIP)
        return (
            self._located(receiver, begin, end, _NETWORK, row, _WORKER, sender),
            self._located(sender, begin, end, _NETWORK, row, _WORKER, receiver),
        )

    def waiting(self, idle: _Pieces) -> _Pieces:
        """Return idle pieces as waiting: each for the partner of the worker's next event, or the usual one if none follows."""
        if not len(idle.begin):
            return idle
        events = _Pieces.concatenate((self._trips()[0], self._collectives(), self._row_begins()))  # first wins among equals
        events = events.select(np.argsort(events.begin, kind="stable"))
        if not len(events.begin):
            return idle._replace(partner=np.full_like(idle.partner, self._default_partner()))
        position = np.searchsorted(events.begin, idle.end).clip(max=len(events.begin) - 1)  # of the next event
        follows = events.begin[position] >= idle.end  # false after the last event
        is_same_worker = events.begin[position] // self._stride == idle.begin // self._stride
        is_known = follows & is_same_worker
        partner = np.where(is_known, events.partner[position], self._default_partner())
        partner_number = np.where(is_known, events.partner_number[position], NONE)
        return idle._replace(partner=partner, partner_number=partner_number)

    def frame(self, pieces: _Pieces) -> pd.DataFrame:
        """Return the account as a table, in order."""
        pieces = pieces.select(np.argsort(pieces.begin, kind="stable"))
        worker, begin = np.divmod(pieces.begin, self._stride)
        end = pieces.end - worker * self._stride
        if len(self._ticks):
            begin, end = self._ticks[begin], self._ticks[end]
        kind, partner = by_name(pieces.kind, KINDS), by_name(pieces.partner, PARTNERS)
        columns = {"worker": worker, "begin_ns": begin, "end_ns": end, "kind": kind, "row": pieces.row, "other": partner}
        return pd.DataFrame({**columns, "number": pieces.partner_number}, copy=False)

    def _row_begins(self) -> _Pieces:
        """Return the beginnings of rows, as empty pieces, with their partners; rows of collective operations first."""
        schedule = self._schedule
        rows = np.flatnonzero((schedule["worker"] >= 0) & (schedule["verb"] != Verb.MIX))
        rows = rows[np.argsort(~self._is_collective(rows), kind="stable")]  # False, for collective rows, comes first
        served = self._schedule.is_on_servers(rows)
        begin = np.where(schedule["verb"][rows] == Verb.PULL, schedule["begin_ns"][rows], schedule["time_ns"][rows])
        partner = np.select([served, self._is_collective(rows)], [_SERVER, _COLLECTIVE], self._default_partner())
        partner_number = np.where(served & (schedule.blocks > 1), schedule["block"][rows], NONE)
        return self._located(schedule["worker"][rows], begin, begin, _WAITING, rows, partner, partner_number)

    def _is_collective(self, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return True for rows for which workers sent messages to each other, to change their own or a shared replica."""
        sent = (self._schedule["messages"][rows] > 0) & (self._schedule["verb"][rows] != Verb.PULL)
        return sent & ~self._schedule.is_on_servers(rows)

    def _default_partner(self) -> int:
        """Return the kind of partner that a worker waits for if nothing tells it."""
        if len(self._schedule.on_servers):
            return _SERVER
        return _COLLECTIVE if self._schedule.replicas == 1 else _WORKER

    def _row_pieces(self, rows: NDArray[np.intp], begin: str, end: str, kind: int, partner: int = _NOBODY) -> _Pieces:
        """Return the times of rows from one column to another, both in ns."""
        schedule = self._schedule
        block = schedule["block"][rows] if partner and schedule.blocks > 1 else NONE
        return self._located(schedule["worker"][rows], schedule[begin][rows], schedule[end][rows], kind, rows, partner, block)

    def _kind_pieces(self, activity: What, kind: int, partner: int = _NOBODY) -> _Pieces:
        """Return the intervals of this kind, which are stored next to the schedule's rows."""
        intervals = self._schedule.intervals.select(activity)
        return self._located(intervals.worker, intervals.begin_ns, intervals.end_ns, kind, intervals.row, partner)

    def _job_pieces(self, kind: int, *activities: What) -> _Pieces:
        """Return the intervals of the whole job of these kinds, for each worker."""
        intervals, workers = self._schedule.intervals, np.arange(self._workers)
        mask = np.isin(intervals.what, activities)
        worker = np.repeat(workers, mask.sum())
        return self._located(
            worker, np.tile(intervals.begin_ns[mask], len(workers)), np.tile(intervals.end_ns[mask], len(workers)), kind
        )

    def _located(
        self,
        worker: Ints,
        begin: Ints,
        end: Ints,
        kind: int,
        row: _IntsOrInt = NONE,
        partner: _IntsOrInt = _NOBODY,
        partner_number: _IntsOrInt = NONE,
    ) -> _Pieces:
        """Return the pieces for these times of workers, ns [pieces], without workers outside the table."""
        ends = self._points(worker, begin), self._points(worker, end)
        pieces = _Pieces.from_columns(*ends, kind, row, partner, partner_number)
        return pieces.select((worker >= 0) & (worker < self._workers))

    def _points(self, worker: Ints, time: Ints) -> Ints:
        """Return the points of the line for times of workers, ns; times after the end of the run count as that end."""
        time = time.clip(0, self._schedule.end_ns)
        if len(self._ticks):
            time = np.searchsorted(self._ticks, time)
        return worker * self._stride + time
