"""The recorder writes the schedule while the simulation runs; what workers hold meanwhile: models and gradients."""

import math
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fred.schedule import COLUMNS, NONE, SCALES, Schedule, Verb

_PULL, _PUSH, _ADD, _COMMIT, _MIX, _SYNC, _DROP = map(int, Verb)  # plain integers: an enum costs time in every row
_MAILBOX = COLUMNS.index("mailbox")


class Model(NamedTuple):
    """Parameters that a worker has read: which mailbox they lie in, and the replica's clock at the time."""

    mailbox: int
    timestamp: int
    params: Any = None  # the parameters themselves, where arithmetic runs inline
    blocks: "tuple[Block, ...]" = ()  # one per server, where several hold blocks of the parameters

    def at(self, replica: int) -> int:
        """The replica's clock when its part was read."""
        return self.blocks[replica].timestamp if self.blocks else self.timestamp


class Block(NamedTuple):
    """One server's block of the parameters, on its way to a worker."""

    replica: int
    timestamp: int
    row: int  # its PULL row
    params: Any = None


class Gradient:
    """A gradient being computed, or computed and not yet used."""

    __slots__ = ("applied", "begin", "end", "finished", "model", "ordinal", "step", "value", "worker")

    def __init__(self, worker: int, step: int, model: Model, begin: int, end: int, finished: Any = None):
        self.worker = worker
        self.step = step  # the worker's own count
        self.model = model  # what it is computed at
        self.begin, self.end = begin, end  # ns
        self.finished = finished  # the event that the protocol waits for
        self.ordinal = NONE  # rank in the order of first use
        self.applied = False  # whether it took part in an update
        self.value: Any = None  # the gradient itself, where arithmetic runs inline


class Recorder:
    """Writes the schedule while the simulation runs, and keeps the clocks and counts that protocols ask for.

    It is `full` once the schedule holds the wanted number of updates, of gradients that took part in one, or of rows. What
    happens after that, at the same moment, is not part of the schedule.
    """

    def __init__(
        self,
        workers: int,
        replicas: int = 1,
        blocks: int = 1,
        *,
        updates: float = math.inf,
        gradients: float = math.inf,
        rows: float = math.inf,
    ):
        self.workers = workers
        self.blocks = blocks
        self.full = False
        self._wanted = updates * blocks, gradients, rows
        self._end: tuple[int, int] | None = None  # rows and gradients begun when it became full
        self.clocks = [0] * replicas  # changes of each replica
        self.changes = 0  # updates, of all replicas
        self.gradients = 0  # that took part in an update
        self.started = 0
        self._used = 0  # distinct gradients
        self._joined: list[list[Gradient]] = [[] for _ in range(replicas)]  # each replica's open round
        self._mailboxes = 0
        self._integers = array("q")
        self._scales = array("d")  # row, weight, keep, of the rows that scale parameters

    @property
    def updates(self) -> int:
        """Updates of the parameters: where servers hold blocks, of all blocks together."""
        return self.changes // self.blocks

    def pull(self, now: int, worker: int, replica: int, step: int, arrival: int, size: int, messages: int) -> Model:
        """The worker reads the replica's parameters now; they arrive at `arrival`."""
        mailbox, clock = self._mailboxes, self.clocks[replica]
        self._mailboxes = mailbox + 1
        self._integers.extend((now, _PULL, worker, replica, mailbox, NONE, step, clock, 0, now, arrival, size, messages))
        return Model(mailbox, clock)

    def pull_block(self, now: int, worker: int, replica: int, step: int, arrival: int, size: int, messages: int) -> Block:
        """A server sends its block to the worker now; `compose` says what the worker used it for."""
        row, clock = self._row(), self.clocks[replica]
        self._integers.extend((now, _PULL, worker, replica, NONE, NONE, step, clock, 0, now, arrival, size, messages))
        return Block(replica, clock, row)

    def compose(self, arrived: Iterable[Block], previous: Model | None) -> Model:
        """A worker's next mailbox: the blocks that arrived, and of the others those it had."""
        blocks = {block.replica: block for block in (previous.blocks if previous else ())}
        for block in arrived:
            self._integers[block.row * len(COLUMNS) + _MAILBOX] = self._mailboxes
            blocks[block.replica] = block
        self._mailboxes += 1
        ordered = tuple(blocks[replica] for replica in range(self.blocks))
        return Model(self._mailboxes - 1, min(block.timestamp for block in ordered), None, ordered)

    def push(self, now: int, gradient: Gradient, replica: int, size: int, messages: int) -> None:
        """The gradient makes one update of the replica."""
        self._write(_PUSH, now, gradient, replica, size, messages)
        self._updated(replica, (gradient,))

    def add(self, now: int, gradient: Gradient, replica: int, size: int, messages: int) -> None:
        """The gradient joins the replica's open round."""
        self._write(_ADD, now, gradient, replica, size, messages)
        self._joined[replica].append(gradient)

    def commit(self, now: int, replica: int) -> None:
        """The mean of the gradients that joined makes one update of the replica."""
        joined, clock = self._joined[replica], self.clocks[replica]
        self._scales.extend((self._row(), 1.0 / len(joined), 0.0))
        self._integers.extend((now, _COMMIT, NONE, replica, NONE, NONE, NONE, clock, 0, now, now, 0, 0))
        self._joined[replica] = []
        self._updated(replica, joined)

    def mix(self, now: int, worker: int, parts: Sequence[tuple[Model, float]]) -> Model:
        """A new mailbox: the weighted sum of others, added up in this order."""
        mailbox = self._mailboxes
        self._mailboxes = mailbox + 1
        for model, weight in parts:
            source = model.mailbox
            self._scales.extend((self._row(), weight, 0.0))
            self._integers.extend((now, _MIX, worker, NONE, mailbox, source, NONE, model.timestamp, 0, now, now, 0, 0))
        return Model(mailbox, parts[0][0].timestamp)

    def sync(self, now: int, worker: int, model: Model, keep: float, weight: float, size: int, messages: int) -> None:
        """The worker's own replica becomes keep x itself + weight x model."""
        clock = self.clocks[worker]
        self._scales.extend((self._row(), weight, keep))
        self._integers.extend((now, _SYNC, worker, worker, model.mailbox, NONE, NONE, clock, 0, now, now, size, messages))
        self.clocks[worker] = clock + 1

    def drop(self, now: int, gradient: Gradient, replica: int, size: int, messages: int) -> None:
        """The message with the gradient has no effect."""
        self._write(_DROP, now, gradient, replica, size, messages)

    def stop(self) -> None:
        """The schedule ends here."""
        if not self.full:
            self.full = True
            self._end = self._row(), self.started

    def statistic(self, replica: int) -> float:
        """What the algorithm lets timing depend on, of a replica's present state: only known where arithmetic runs inline."""
        raise NotImplementedError

    def schedule(self, end_ns: int) -> "Schedule":
        """What has been recorded until the simulation stopped at `end_ns`."""
        rows, started = self._end or (self._row(), self.started)
        table = np.frombuffer(self._integers, np.int64).reshape(-1, len(COLUMNS))[:rows]
        columns: dict[str, NDArray] = {name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(COLUMNS)}
        scales = np.frombuffer(self._scales, np.float64).reshape(-1, 1 + len(SCALES))
        scales = scales[scales[:, 0] < rows]
        for i, (name, usual) in enumerate(zip(SCALES, (1.0, 0.0), strict=True)):
            columns[name] = np.full(len(table), usual)
            columns[name][scales[:, 0].astype(np.int64)] = scales[:, 1 + i]
        return Schedule(columns, self.workers, len(self.clocks), self.blocks, started, end_ns)

    def _row(self) -> int:
        """Number of the row to be written next."""
        return len(self._integers) // len(COLUMNS)

    def _updated(self, replica: int, gradients: Sequence[Gradient]) -> None:
        self.clocks[replica] += 1
        self.changes += 1
        for gradient in gradients:
            if not gradient.applied:
                gradient.applied = True
                self.gradients += 1
        changes, used, rows = self._wanted
        if self.changes >= changes or self.gradients >= used or (rows < math.inf and self._row() >= rows):
            self.stop()

    def _write(self, verb: int, now: int, gradient: Gradient, replica: int, size: int, messages: int) -> None:
        worker, step, begin, end = gradient.worker, gradient.step, gradient.begin, gradient.end
        if gradient.ordinal == NONE and verb != _DROP:
            gradient.ordinal = self._used
            self._used += 1
        model = gradient.model
        mailbox, timestamp = model.mailbox, (model.at(replica) if model.blocks else model.timestamp)
        stale = self.clocks[replica] - timestamp
        self._integers.extend((now, verb, worker, replica, mailbox, NONE, step, timestamp, stale, begin, end, size, messages))
