"""The recorder: writes the schedule during the simulation, and passes each row to a listener."""

import math
import struct
import weakref
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fred.base.errors import FredError
from fred.base.types import Ints
from fred.schedule.bounds import check_rows
from fred.schedule.layout import Layout
from fred.schedule.schedule import COLUMNS, NONE, SCALES, UNENDING, Intervals, Row, Schedule, Verb, What, message_key
from fred.timing.copies import NOT_SPLIT, Copy, Gradient

_PULL, _PUSH, _ADD, _COMMIT, _MIX, _SYNC, _DROP = map(int, Verb)  # plain integers: an enum costs time in every row
_ROW = struct.Struct(f"<{len(COLUMNS)}q{len(SCALES)}d")
_pack = _ROW.pack  # the fastest of five ways to store a row: 0.25 us
_INTERVAL = struct.Struct(f"<{len(Intervals._fields)}q")
_pack_interval = _INTERVAL.pack
_COLLECTIVE, _TRIP = int(What.COLLECTIVE), int(What.TRIP)
_END = struct.Struct("<q")
_END_AT, _ROW_END_AT = (8 * fields.index("end_ns") for fields in (Intervals._fields, COLUMNS))  # in an interval, a row: bytes
_ROWS_AT_ONCE = 1 << 12  # rows; they fit into a processor's cache
_FEW_UNSETTLED = 64  # gradients among which it does not matter if some are settled
_MAX_OPEN_ROUND = 1000  # gradients in a round that is never committed, in addition to ten per worker


class Listener(Protocol):
    """A receiver of each row as it is written; subclasses may ignore any of these calls."""

    def execute(self, row: Row) -> None:
        """Receive one more `row`."""
        return

    def forget_mailbox(self, mailbox: int) -> None:
        """Release `mailbox`: no copy of it is left."""
        return

    def forget_message(self, key: tuple[int, ...]) -> None:
        """Release the message with this `key`: no object of its gradient (or pseudo-gradient) is left."""
        return

    def statistic(self, cell: int) -> float:
        """Return the algorithm's statistic of a block's current state, on which timing depends; for NONE, the run's loss."""


class Recorder:
    """The writer of the schedule during the simulation; it also holds the clocks and counters that protocols use.

    It is `full` once the schedule has the wanted number of updates, of gradients that took part in one, or of rows. Later
    events at the same time are not part of the schedule. Each row is passed to the listener.

    Args:
        workers: number of workers.
        layout: the replicas.
        updates, gradients, rows: wanted number of each.
        listener: receiver of each row.

    A run creates its own, and protocols only call the simulation. A `Simulation` without a protocol needs one:

        >>> import fred
        >>> recorder = fred.Recorder(workers=2, layout=fred.Layout.central(), updates=1)
        >>> sim = fred.Simulation(fred.Cluster(workers=2), recorder, seed=0)
        >>> sim.push(sim.compute(0, sim.read(0), duration=0))
        >>> recorder.full, recorder.updates, recorder.clocks, len(recorder)
        (True, 1, [1], 2)
    """

    def __init__(
        self,
        workers: int,
        layout: Layout,
        *,
        updates: float = math.inf,
        gradients: float = math.inf,
        rows: float = math.inf,
        listener: Listener | None = None,
    ):
        self.workers, self.layout = workers, layout
        self.full = False
        self._blocks = layout.blocks
        self._change_limit, self._gradient_limit = _as_integer(updates * layout.blocks), _as_integer(gradients)
        self._byte_limit = _as_integer(rows * _ROW.size)
        self._end: tuple[int, int, int] | None = None  # rows, bytes of intervals, begun gradients when full
        cells = layout.replicas * layout.blocks
        self.clocks = [0] * cells  # changes of each block of each replica
        self.changes = 0  # updates, summed over all blocks of all replicas
        self.gradients = 0  # gradients that took part in an update
        self.steps = [0] * workers  # gradients begun by each worker
        self.latest = [_placeholder()] * workers  # last gradient begun by each worker
        self._unsettled: list[Gradient] = []  # earlier gradients that still need rows
        self._many_unsettled = _FEW_UNSETTLED  # length above which `retain` removes settled ones
        self._remaining: list[Gradient] = []  # gradients of both kinds that were in flight when it became full
        self._rounds: list[list[Gradient]] = [[] for _ in range(cells)]  # gradients in each open round
        self._totals = [0.0] * cells  # sum of what they count as
        self._mailboxes = 0  # number written so far
        self._rows, self._intervals = bytearray(), bytearray()
        self.listener = listener
        self._holders: dict[tuple[int, ...], int] = {}  # live objects for each message, if there is a listener

    @property
    def started(self) -> int:
        """Return the number of gradients begun."""
        return sum(self.steps)

    @property
    def updates(self) -> int:
        """Return the number of updates; for replicas split into blocks, an update of all blocks counts as one."""
        return self.changes // self._blocks

    def pull(self, now: int, worker: int, replica: int, block: int, step: int, arrival: int, size: int, messages: int) -> Copy:
        """Record that `worker` reads `block` of `replica` at `now`, ns; return the copy.

        It arrives at `arrival`, ns, before the worker's minibatch `step`; the read took `size` bytes in `messages` messages.
        """
        mailbox, clock = self._mailboxes, self.clocks[replica * self._blocks + block]
        self._mailboxes = mailbox + 1
        self._rows += _pack(
            now, _PULL, worker, replica, block, mailbox, NONE, step, clock, 0, now, arrival, size, messages, 1.0, 0.0
        )
        copy = Copy(mailbox, clock, {block: clock} if self._blocks > 1 else NOT_SPLIT)
        if self.listener is not None:
            self._notify()
            self._watch(copy)
        return copy

    def set_arrival(self, row: int, end: int) -> None:
        """Set the arrival, ns, of a read whose row was written before it was known (UNENDING)."""
        _END.pack_into(self._rows, row * _ROW.size + _ROW_END_AT, end)

    def compose(self, now: int, worker: int, copies: Sequence[Copy]) -> Copy:
        """Write `copies` of `worker`, one for each block, into a new mailbox, and return it as a copy of a whole model."""
        mailbox = self._mailboxes
        self._mailboxes = mailbox + 1
        clocks = {block: copy.at(block) for block, copy in enumerate(copies)}
        for block, copy in enumerate(copies):
            self._mix(now, worker, block, mailbox, ((copy, 1.0),))
        return self._watch(Copy(mailbox, min(clocks.values()), clocks))

    def mix(self, now: int, worker: int, parts: Sequence[tuple[Copy, float]], block: int) -> Copy:
        """Write the weighted sum of `parts`, added in this order, into a new mailbox; its clock is that of the first part."""
        mailbox, clock = self._mailboxes, parts[0][0].at(block)
        self._mailboxes = mailbox + 1
        self._mix(now, worker, block, mailbox, parts)
        return self._watch(Copy(mailbox, clock, {block: clock} if self._blocks > 1 else NOT_SPLIT))

    def push(self, now: int, gradient: Gradient, replica: int, block: int, size: int, messages: int) -> None:
        """Record one update of `block` by `gradient`."""
        self._write(_PUSH, now, gradient, replica, block, size, messages)
        self._use(gradient)
        self._count_update(replica * self._blocks + block)
        if self.listener is not None:
            self._notify()

    def add(
        self, now: int, gradient: Gradient, replica: int, block: int, weight: float, size: int, messages: int, counts_as: float
    ) -> None:
        """Record that `gradient` joins the open round of `block`; a mean divides by the sum of what its messages count as."""
        self._write(_ADD, now, gradient, replica, block, size, messages, weight)
        if self.listener is not None:
            self._notify()
        self._rounds[cell := replica * self._blocks + block].append(gradient)
        self._totals[cell] += counts_as

    def commit(self, now: int, replica: int, block: int, weight: float | None) -> None:
        """Record one update of `block`: the sum of its round times `weight` (default: 1 / the sum of what they count as)."""
        cell = replica * self._blocks + block
        members, clock = self._rounds[cell], self.clocks[cell]
        weight = (1.0 / self._totals[cell] if members else 1.0) if weight is None else weight
        self._rows += _pack(now, _COMMIT, NONE, replica, block, NONE, NONE, NONE, clock, 0, now, now, 0, 0, weight, 0.0)
        self._rounds[cell], self._totals[cell] = [], 0.0
        for gradient in members:
            self._use(gradient)
        self._count_update(cell)
        if self.listener is not None:
            self._notify()

    def sync(
        self, now: int, worker: int, replica: int, block: int, copy: Copy, keep: float, weight: float, size: int, messages: int
    ) -> None:
        """Record that `block` of `replica` becomes keep x itself + weight x `copy`."""
        cell = replica * self._blocks + block
        if copy.timestamps:
            copy.at(block)
        clock = self.clocks[cell]
        self._rows += _pack(
            now, _SYNC, worker, replica, block, copy.mailbox, NONE, NONE, clock, 0, now, now, size, messages, weight, keep
        )
        if self.listener is not None:
            self._notify()
        self.clocks[cell] = clock + 1

    def drop(self, now: int, gradient: Gradient, replica: int, block: int, size: int, messages: int) -> None:
        """Record that the message with `gradient` has no effect; a gradient still being computed ends now, unfinished."""
        self._write(_DROP, now, gradient, replica, block, size, messages)
        if self.listener is not None:
            self._notify()

    def record_interval(self, kind: int, begin: int, end: int, row: int = NONE, worker: int = NONE, other: int = NONE) -> None:
        """Record an interval from `begin` to `end`, ns, that has no row of its own; see `Intervals` for the rest."""
        if end > UNENDING:  # NEVER, which has more than 64 bits
            begin, end = min(begin, UNENDING), UNENDING
        self._intervals += _pack_interval(kind, begin, end, row, worker, other)

    def record_trip(self, begin: int, end: int, row: int, worker: int, receiver: int) -> int:
        """Record a model sent by `worker` to `receiver`; return its handle for `set_trip_end` if `end` is UNENDING."""
        self._intervals += _pack_interval(_TRIP, begin, end, row, worker, receiver)
        return len(self._intervals)

    def set_trip_end(self, trip: int, end: int) -> None:
        """Set the `end`, ns, of a `trip`."""
        _END.pack_into(self._intervals, trip - _INTERVAL.size + _END_AT, end)  # the handle is where the interval ends, bytes

    def record_collective(self, begin: int, end: int, worker: int, row: int | None = None) -> None:
        """Mark a row of `worker` as part of a collective operation that moves models from `begin` to `end`, ns.

        Args:
            begin, end: ns.
            worker: its number.
            row: number of the row; default: the next one.
        """
        self.record_interval(_COLLECTIVE, begin, end, len(self._rows) // _ROW.size if row is None else row, worker)

    def stop(self) -> None:
        """End the schedule here."""
        if not self.full:
            self._end, self._remaining = (len(self), len(self._intervals), self.started), self._in_flight()
            self.full = True

    def retain(self, gradient: Gradient) -> None:
        """Store a gradient that still needs rows, although its worker begins another one or never began it."""
        self._unsettled.append(gradient)
        if len(self._unsettled) > self._many_unsettled:
            self._unsettled = [unsettled for unsettled in self._unsettled if unsettled.due > 0]
            self._many_unsettled = _FEW_UNSETTLED + 2 * len(self._unsettled)  # so the cost per gradient stays constant

    def in_flight(self) -> list[Gradient]:
        """Return gradients and pseudo-gradients that are computed, or still need rows, when the schedule ends."""
        return self._remaining if self.full else self._in_flight()

    def _in_flight(self) -> list[Gradient]:
        now, gradients = self.last_ns, (*self._unsettled, *self.latest)
        return [gradient for gradient in gradients if not gradient.dropped and (gradient.due > 0 or gradient.end > now)]

    def statistic(self, replica: int, block: int) -> float:
        """Return the algorithm's statistic of a block's current state, on which timing depends; needs a listener."""
        assert self.listener is not None, "the run was not recognised as one whose timing depends on values"
        return self.listener.statistic(replica * self._blocks + block)

    def loss(self) -> float:
        """Return the loss of the run's current model; needs a listener."""
        assert self.listener is not None, "the run was not recognised as one whose timing depends on values"
        return self.listener.statistic(NONE)

    def watch(self, gradient: Gradient) -> None:
        """Let the listener, if any, store the gradient's value for as long as an object of it lives."""
        if self.listener is not None:
            source = NONE if gradient.source is None else gradient.source.mailbox
            key = message_key(gradient.worker, gradient.step, source, gradient.copy.mailbox)
            self._holders[key] = self._holders.get(key, 0) + 1
            weakref.finalize(gradient, _release, key, self._holders, self.listener).atexit = False  # not when Python ends

    @property
    def last_ns(self) -> int:
        """Return the time of the last row, ns."""
        return int(_ROW.unpack_from(self._rows, len(self._rows) - _ROW.size)[0]) if self._rows else 0

    def schedule(self, end_ns: int, standstill: str = "", extra: Iterable[tuple[int, ...]] = ()) -> Schedule:
        """Return the schedule of everything recorded until the simulation stopped at `end_ns`.

        Raises FredError if a round was never committed.

        `extra` are further intervals, which only the end of the run reveals. Trips end with the run at the latest.
        """
        rows, interval_bytes, started = self._end or (len(self), len(self._intervals), self.started)
        for cell, members in enumerate(self._rounds):
            if len(members) > _MAX_OPEN_ROUND + 10 * self.workers and not self.clocks[cell]:
                raise FredError(
                    f"{len(members):,} gradients were added to a round, and no round was ever committed: "
                    "the protocol must call `commit` when a round is complete"
                )
        columns = _columns(np.frombuffer(self._rows, np.int64).reshape(-1, len(Row._fields))[:rows])
        check_rows(columns, self.layout)  # here, because a comparison in each row costs time
        packed = self._intervals[:interval_bytes]
        for interval in extra:
            packed += _pack_interval(*interval)
        intervals = Intervals.from_table(np.frombuffer(packed, np.int64))
        ends = np.where(intervals.what == _TRIP, np.minimum(intervals.end_ns, end_ns), intervals.end_ns)
        sizes = self.workers, self.layout.replicas, self._blocks
        return Schedule(
            columns, *sizes, started, end_ns, self.layout.on_servers, standstill, intervals=intervals._replace(end_ns=ends)
        )

    def __len__(self) -> int:
        """Return the number of rows written so far."""
        return len(self._rows) // _ROW.size

    def _notify(self) -> None:
        """Pass the last row to the listener, if it belongs to the schedule."""
        if self.listener is not None and (self._end is None or len(self) <= self._end[0]):
            self.listener.execute(Row._make(_ROW.unpack_from(self._rows, len(self._rows) - _ROW.size)))

    def _watch(self, copy: Copy) -> Copy:
        """Let the listener store the mailbox's contents for as long as the copy lives."""
        if self.listener is not None:
            weakref.finalize(copy, self.listener.forget_mailbox, copy.mailbox).atexit = False
        return copy

    def _mix(self, now: int, worker: int, block: int, mailbox: int, parts: Sequence[tuple[Copy, float]]) -> None:
        """Write one MIX row for each source of a mailbox's block."""
        table, listener = self._rows, self.listener
        for copy, weight in parts:
            clock = copy.at(block) if copy.timestamps else copy.timestamp
            table += _pack(now, _MIX, worker, NONE, block, mailbox, copy.mailbox, NONE, clock, 0, now, now, 0, 0, weight, 0.0)
            if listener is not None:
                self._notify()

    def _use(self, gradient: Gradient) -> None:
        """Count the gradient the first time that it takes part in an update."""
        if not gradient.applied and gradient.step != NONE:
            gradient.applied = True
            self.gradients += 1

    def _count_update(self, cell: int) -> None:
        """Count an update of this block, and stop if the schedule is now full."""
        self.clocks[cell] += 1
        self.changes += 1
        if self.gradients >= self._gradient_limit or self.changes >= self._change_limit or len(self._rows) >= self._byte_limit:
            self.stop()

    def _write(
        self, verb: int, now: int, gradient: Gradient, replica: int, block: int, size: int, messages: int, weight: float = 1.0
    ) -> None:
        """Write a row that uses the message of `gradient`, or drops it."""
        source, end = gradient.source, gradient.end
        gradient.due -= 1
        if end > now:
            self.record_interval(What.UNFINISHED, gradient.begin, end, len(self), gradient.worker)
        read_copy = gradient.copy if source is None else source  # local steps start from the source
        clock = read_copy.at(block) if read_copy.timestamps else read_copy.timestamp
        self._rows += _pack(
            now,
            verb,
            gradient.worker,
            replica,
            block,
            gradient.copy.mailbox,
            NONE if source is None else source.mailbox,
            gradient.step,
            clock,
            self.clocks[replica * self._blocks + block] - clock,
            gradient.begin,
            end if end < now else now,  # a dropped gradient, or one sent block by block, may not be finished yet
            size,
            messages,
            weight,
            0.0,
        )


def _as_integer(number: float) -> int:
    """Return the wanted number as an integer, which is faster to compare; a very large one for infinity."""
    return UNENDING if number == math.inf else math.ceil(number)


def _placeholder() -> Gradient:
    """Return a placeholder for the last gradient of a worker that has not begun any."""
    gradient = Gradient(NONE, NONE, Copy(NONE, 0), 0, 0)
    gradient.due = 0
    return gradient


def _columns(table: Ints) -> dict[str, NDArray]:
    """Return the columns of the rows by name, each contiguous in memory."""
    columns = np.empty(table.shape[::-1], np.int64)
    for start in range(0, len(table), _ROWS_AT_ONCE):  # faster than transposing all rows at once
        part = slice(start, start + _ROWS_AT_ONCE)
        columns[:, part] = table[part].T
    return {
        name: column.view(np.float64) if name in SCALES else column for name, column in zip(Row._fields, columns, strict=True)
    }


def _release(key: tuple[int, ...], holders: dict[tuple[int, ...], int], listener: Listener) -> None:
    """Decrement the reference count of a message, and release it at 0; a pseudo-gradient may have several references.

    This function must not refer to the recorder, whose open rounds would keep these gradients alive.
    """
    holders[key] -= 1
    if not holders[key]:
        del holders[key]
        listener.forget_message(key)
