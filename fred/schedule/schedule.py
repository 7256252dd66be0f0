"""The schedule: all events that affect the arithmetic, in order, one row per verb.

| verb   | meaning                                                                                                |
|--------|--------------------------------------------------------------------------------------------------------|
| PULL   | mailbox <- the replica's parameters                                                                    |
| PUSH   | replica <- apply_update(replica, message)                                                              |
| ADD    | weight x message, as the replica lets it contribute, joins the replica's open round                    |
| COMMIT | replica <- apply_round(replica, weight x sum of what joined); a new round opens                        |
| MIX    | mailbox <- mailbox + weight x mailbox `source`; consecutive rows make up one mailbox, from 0; its      |
|        | clock is that of the first source                                                                      |
| SYNC   | replica <- synchronize(replica, mailbox, keep, weight): keep x replica + weight x mailbox              |
| DROP   | a message that had no effect: a gradient used in no other row is never computed in the replay          |

A *replica* is a copy of the parameters that changes independently: the parameter server's, or each worker's own. It may be
split into *blocks*, each with its own clock, which counts its changes: several servers hold one block each. A row is about one
block of its replica and of its mailboxes. Mailboxes are numbered in the order in which they are written, each once.

A *message* is what a worker sends: the result of `send` for the gradient at `mailbox` of the worker's minibatch `step`.
Without a `step`, it is made of a pseudo-gradient: the model in mailbox `source` minus the model in `mailbox`.

A schedule also has *intervals*: whatever took time without a row of its own (`What`, `Intervals`).
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fred.base.types import Ints

NONE = -1  # in a column that does not apply to the row's verb
WAYS = ("to_workers", "to_servers", "between_workers")  # of messages
UNENDING = 2**63 - 1  # ns: end of a gradient whose worker never rejoined
_METADATA = b"fred"  # key of the facts (JSON) in the Parquet file
_FACTS = ("workers", "replicas", "blocks", "started", "end_ns", "standstill")  # about a schedule, in addition to its columns


class Verb(IntEnum):
    """The verb of a row: its effect.

    >>> import fred
    >>> fred.Verb(1), fred.Verb["SYNC"].value
    (<Verb.PUSH: 1>, 5)
    """

    PULL = 0
    PUSH = 1
    ADD = 2
    COMMIT = 3
    MIX = 4
    SYNC = 5
    DROP = 6


class Row(NamedTuple):
    """One row of the schedule."""

    time_ns: int  # when the row takes effect on the replica
    verb: int
    worker: int
    replica: int
    block: int  # of the replica and of mailboxes
    mailbox: int  # written by PULL and MIX, read by PUSH, ADD, SYNC, DROP
    source: int  # mailbox that a MIX reads; where a pseudo-gradient starts
    step: int  # the worker's count of gradients: identifies the minibatch (see `Schedule.by_minibatch`)
    timestamp: int  # the block's clock (changes) when the parameters were read; of a message, as reported to its server
    staleness: int  # clock at time_ns - timestamp, changes
    begin_ns: int  # PULL: sent by the server; PUSH, ADD, DROP: compute started
    end_ns: int  # PULL: arrived at the worker; PUSH, ADD, DROP: compute ended
    bytes: int  # moved over the network for this row
    messages: int  # in which they were moved
    weight: float  # factor of what is read
    keep: float  # SYNC: factor of the old value


class What(IntEnum):
    """The kind of an interval."""

    UNFINISHED = 0  # a gradient that a row drops, or sends in part, before its end; ends when it would have been finished
    COLLECTIVE = 1  # models in transit in the collective operation that a row is part of, if that takes time
    TRIP = 2  # a model in transit between workers; in sequential exchanges, since the last awaited sender began
    LOST = 3  # an attempt at a gradient that ended when its worker crashed; the gradient is computed again
    AWAY = 4  # a worker is offline
    SERVER_AWAY = 5
    COMPUTING = 6  # until the end of the run or earlier: a gradient without any row yet, or with rows for some blocks only
    SENDING = 7  # a message to servers that never arrives, until the run's end or a crash; or one that `row` uses later
    SAVING = 8  # the whole job stops to make a checkpoint
    UNDONE = 9  # the whole job's work that a failure undid, since the checkpoint to which it went back
    DETECTING = 10  # the job has failed, which is not noticed yet; `worker`: the first one that failed
    REPAIRING = 11  # it waits until all workers have a machine
    LOADING = 12  # machines join and load the checkpoint
    SKIPPED = 13  # at this time, a failure made the worker skip minibatches that it had begun; `other`: their number
    BROKEN = 14  # a worker has no machine: from a failure of the job until its own is repaired, or another one replaces it
    DEFERRED = 15  # at this time, a checkpoint was due that waits until the last one can be used


class Intervals(NamedTuple):
    """Columns of equal length: one interval per entry, in the order in which they became known."""

    what: Ints
    begin_ns: Ints
    end_ns: Ints  # UNENDING: never; of what is in transit at the end of the run: that end
    row: Ints  # UNFINISHED, COLLECTIVE, SENDING: the row concerned; TRIP: row that published the model; NONE: none
    worker: Ints  # TRIP: the sender; NONE: several workers
    other: Ints  # TRIP: the receiver; SERVER_AWAY: the server; SKIPPED: number of minibatches

    @classmethod
    def from_table(cls, table: Ints) -> "Intervals":
        """Return the intervals in a table with these columns: [intervals, 6]."""
        return cls(*np.ascontiguousarray(table.reshape(-1, len(cls._fields)).T))

    def select(self, *kinds: What) -> "Intervals":
        """Return the intervals of some kinds."""
        return Intervals(*(column[np.isin(self.what, kinds)] for column in self))


def exact_sum(numbers: Ints) -> int:
    """Return the sum of integers exactly, even beyond 64 bits."""
    # The upper and the lower 32 bits are summed apart: neither sum overflows for fewer than 2**31 numbers.
    return (int((numbers >> 32).sum()) << 32) + int((numbers & 0xFFFFFFFF).sum())


def message_key(worker: int, step: int, source: int, mailbox: int) -> tuple[int, ...]:
    """Return the identity of a message: worker and step; for a pseudo-gradient, worker and mailboxes."""
    return (worker, step) if step != NONE else (worker, source, mailbox)


COLUMNS, SCALES = Row._fields[:-2], Row._fields[-2:]  # whole numbers; factors of parameters or messages
_NO_INTERVALS = Intervals.from_table(np.zeros(0, np.int64))


@dataclass(frozen=True)
class Ledger:
    """The uses of messages (rows PUSH and ADD), and the gradients, numbered in the order of first use."""

    uses: Ints  # rows, in order
    updates: Ints  # [uses]: row of the update that includes the message; NONE: its round was never committed
    gradients: Ints  # [uses]: number of the gradient in the message; NONE: a pseudo-gradient
    workers: Ints  # [gradients]
    steps: Ints  # [gradients]
    applied: Ints  # [gradients]: row of the first update that includes it; NONE: none
    dropped: int  # gradients that were dropped and never used
    every_update: Ints  # rows PUSH and COMMIT

    @classmethod
    def from_schedule(cls, schedule: "Schedule") -> "Ledger":
        """Return the ledger of a schedule."""
        step, uses = schedule["step"], schedule.rows(Verb.PUSH, Verb.ADD)
        updates = _updates(schedule, uses)
        made_of_gradients = step[uses] != NONE
        drops = schedule.rows(Verb.DROP)
        gradient_uses, gradient_drops = uses[made_of_gradients], drops[step[drops] != NONE]
        keys = _keys(schedule, np.concatenate((gradient_uses, gradient_drops)))
        use_keys, drop_keys = keys[: len(gradient_uses)], keys[len(gradient_uses) :]
        positions = np.arange(len(gradient_uses))
        first_position = np.full(int(keys.max(initial=0)) + 1, NONE, np.int64)  # by key; NONE: never used
        first_position[use_keys[::-1]] = positions[::-1]  # reversed, so that the first use wins
        is_first_use = first_position[use_keys] == positions
        gradients = np.full(len(uses), NONE, np.int64)
        gradients[made_of_gradients] = (np.cumsum(is_first_use) - 1)[first_position[use_keys]]
        applied = np.full(int(is_first_use.sum()), len(schedule), np.int64)  # above any row, for the minimum
        closed = made_of_gradients & (updates != NONE)
        np.minimum.at(applied, gradients[closed], updates[closed])
        applied[applied == len(schedule)] = NONE
        dropped = len(np.unique(drop_keys[first_position[drop_keys] == NONE]))
        first_uses = gradient_uses[is_first_use]
        workers, steps = schedule["worker"][first_uses], step[first_uses]
        return cls(uses, updates, gradients, workers, steps, applied, dropped, schedule.rows(Verb.PUSH, Verb.COMMIT))

    def gradients_per_update(self) -> Ints:
        """Return the number of gradients first applied by each update (PUSH or COMMIT): [updates]."""
        positions = np.searchsorted(self.every_update, self.applied[self.applied != NONE])
        return np.bincount(positions, minlength=len(self.every_update)).astype(np.int64)


@dataclass(frozen=True, eq=False)  # compared by their digests
class Schedule:
    """A finished recording: columns of equal length, in the order in which the rows took effect.

    Args:
        columns: by name, [rows] each; `Row` documents them.
        workers: number of workers.
        replicas: number of replicas of the parameters.
        blocks: number of blocks in each replica; 1: not split.
        started: number of gradients begun.
        end_ns: virtual time at which the simulation stopped, ns.
        on_servers: numbers of the replicas on servers; the others are on workers.
        standstill: the reason if no further event was possible at the end; else empty.
        intervals: whatever took time without a row of its own, [intervals] in each column.

    >>> import fred
    >>> settings = {"cluster": {"workers": 2, "speeds": [1.0, 2.0]}, "stop": {"updates": 3}}
    >>> scenario = fred.scenario(settings, algorithm={"name": "asgd", "learning_rate": 0.1})
    >>> schedule = fred.run(scenario).outcomes[0].schedule
    >>> pushes = schedule.rows(fred.Verb.PUSH)
    >>> schedule["time_ns"][pushes].tolist(), schedule["worker"][pushes].tolist(), schedule["staleness"][pushes].tolist()
    ([500000000, 1000000000, 1000000000], [1, 0, 1], [0, 1, 1])
    >>> schedule.counts()
    {'updates': 3, 'gradients': 3, 'dropped': 0, 'in_flight': 1}
    """

    columns: dict[str, NDArray]
    workers: int
    replicas: int
    blocks: int  # in each replica
    started: int  # gradients whose computation began
    end_ns: int  # virtual time at which the simulation stopped
    on_servers: range = range(0)  # replicas; the others are on workers
    standstill: str = ""  # the reason if no further event was possible at the end
    intervals: Intervals = _NO_INTERVALS

    def __post_init__(self) -> None:
        for column in (*self.columns.values(), *self.intervals):
            column.flags.writeable = False  # runs with the same timing share one schedule

    def __len__(self) -> int:
        return len(self.columns["verb"])

    def __getitem__(self, column: str) -> NDArray:
        return self.columns[column]

    def __iter__(self) -> Iterator[Row]:
        return map(Row._make, zip(*(self[name].tolist() for name in Row._fields), strict=True))

    def rows(self, *verbs: Verb) -> NDArray[np.intp]:
        """Return the positions of the rows with one of these `verbs`, ascending: [n]."""
        verb = self["verb"]
        return np.flatnonzero(np.logical_or.reduce([verb == code for code in map(int, verbs)]))

    @cached_property
    def ledger(self) -> Ledger:
        """Return the uses of all messages, and the fate of each gradient."""
        return Ledger.from_schedule(self)

    def is_on_servers(self, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return True for each of these `rows` (positions [n]) whose replica is on servers: [n]."""
        replica = self["replica"][rows]
        return (replica >= self.on_servers.start) & (replica < self.on_servers.stop)

    def cells(self, rows: NDArray[np.intp]) -> NDArray[np.int64]:
        """Return a number for the replica and block of each of these `rows` (positions [n]): [n]."""
        return self["replica"][rows] * self.blocks + self["block"][rows]

    def read_clocks(self, rows: NDArray[np.intp]) -> Ints:
        """Return the true clock at which each of these messages' parameters were read, whatever timestamp the server received.

        `rows` are positions [n] of PUSH, ADD and DROP. Of the block concerned, for a pseudo-gradient at its start: [n].
        """
        writes = self.rows(Verb.PULL, Verb.MIX)[::-1]  # reversed, so that the first row of a mailbox wins
        clocks = np.zeros((int(self["mailbox"].max(initial=0)) + 1) * self.blocks, np.int64)
        clocks[self["mailbox"][writes] * self.blocks + self["block"][writes]] = self["timestamp"][writes]
        read_mailbox = np.where(self["step"][rows] == NONE, self["source"][rows], self["mailbox"][rows])
        return clocks[read_mailbox * self.blocks + self["block"][rows]]

    def by_minibatch(self) -> "Schedule":
        """Return the schedule with the number of each gradient's minibatch as its `step`, as `batch_indices` needs it.

        The number is the step itself, plus the minibatches that failures made the worker skip before (`What.SKIPPED`). The
        result has no such intervals any more.

        Example: the failure at 2.5 s undoes the gradients 1 and 2.
            >>> import fred
            >>> failures = {"recorded": [[0, 2.5, 4.0]], "checkpoint": {"every_seconds": 1.5}, "minibatches": "next"}
            >>> scenario = fred.scenario(
            ...     cluster={"workers": 1, "compute": {"name": "constant", "seconds": 1.0}, "failures": failures},
            ...     algorithm={"name": "asgd", "learning_rate": 0.1},
            ...     stop={"updates": 4},
            ... )
            >>> schedule = fred.run(scenario).outcomes[0].schedule
            >>> pushes = schedule.rows(fred.Verb.PUSH)
            >>> schedule["step"][pushes].tolist(), schedule.by_minibatch()["step"][pushes].tolist()
            ([0, 1, 2, 3], [0, 1, 3, 4])
        """
        skipped = self.intervals.what == What.SKIPPED
        if not skipped.any():
            return self
        skips, intervals = (Intervals(*(column[mask] for column in self.intervals)) for mask in (skipped, ~skipped))
        step, rows_by_worker = self["step"].copy(), np.argsort(self["worker"], kind="stable")
        for worker in np.unique(skips.worker).tolist():
            first, last = (np.searchsorted(self["worker"], worker, side, sorter=rows_by_worker) for side in ("left", "right"))
            rows, of_worker = rows_by_worker[first:last], skips.worker == worker
            # A gradient that begins at the time of a failure belongs to the work after it.
            skip_count = np.searchsorted(skips.begin_ns[of_worker], self["begin_ns"][rows], side="right")
            skipped_minibatches = np.concatenate(([0], np.cumsum(skips.other[of_worker])))[skip_count]
            step[rows] += np.where(step[rows] == NONE, 0, skipped_minibatches)
        return replace(self, columns={**self.columns, "step": step}, intervals=intervals)

    def counts(self) -> dict[str, int]:
        """Return the number of updates, and of gradients applied, dropped, and in flight at the end."""
        ledger = self.ledger
        applied, dropped = int((ledger.applied != NONE).sum()), ledger.dropped
        in_flight = self.started - applied - dropped
        updates = len(ledger.every_update) // self.blocks
        return {"updates": updates, "gradients": applied, "dropped": dropped, "in_flight": in_flight}

    @property
    def facts(self) -> dict[str, Any]:
        """Return everything about the schedule except rows and intervals."""
        return {name: getattr(self, name) for name in _FACTS} | {"on_servers": [self.on_servers.start, self.on_servers.stop]}

    def digest(self) -> str:
        """Return the SHA-256 of rows, intervals (columns as little-endian bytes) and facts: the timing's identity."""
        sha = hashlib.sha256(json.dumps(self.facts, sort_keys=True).encode())
        for name, column in (*self.columns.items(), *self.intervals._asdict().items()):
            sha.update(f"{name} {len(column)}".encode())
            sha.update(np.ascontiguousarray(column, column.dtype.newbyteorder("<")).tobytes())
        return sha.hexdigest()

    def frame(self) -> pd.DataFrame:
        """Return the rows as a table, with names of verbs."""
        return _with_names(self.columns, "verb", Verb)

    def interval_frame(self) -> pd.DataFrame:
        """Return the intervals as a table, with names of kinds."""
        return _with_names(self.intervals._asdict(), "what", What)

    def save(self, path: Path) -> None:
        """Write two Parquet files, which `load` and any data frame library can read: rows to `path`, intervals next to it.

        Intervals have their own file, not the first one's metadata, so that every program that reads tables can read them.
        """
        rows = pa.Table.from_pandas(self.frame(), preserve_index=False)
        metadata = {**(rows.schema.metadata or {}), _METADATA: json.dumps(self.facts)}
        pq.write_table(rows.replace_schema_metadata(metadata), path)
        self.interval_frame().to_parquet(intervals_path(path), index=False)

    @classmethod
    def load(cls, path: Path) -> "Schedule":
        """Read the schedule that `save` wrote to `path`."""
        rows = pq.read_table(path)
        facts: dict[str, Any] = json.loads(rows.schema.metadata[_METADATA])
        facts["on_servers"] = range(*facts["on_servers"])
        columns = _with_numbers(rows.to_pandas(), "verb", Verb, Row._fields)
        intervals = _with_numbers(pd.read_parquet(intervals_path(path)), "what", What, Intervals._fields)
        return cls(columns, **facts, intervals=Intervals(**intervals))


def by_name(codes: Any, names: Sequence[str]) -> "pd.Categorical[str]":
    """Return a column of names from their `codes`, positions in `names`."""
    return pd.Categorical.from_codes(codes, pd.Index(names))


def intervals_path(path: Path) -> Path:
    """Return the file of the intervals that belong to the rows in the file `path`."""
    return path.with_name(f"{path.stem}-intervals{path.suffix}")


def _with_names(columns: dict[str, NDArray], coded: str, names: type[IntEnum]) -> pd.DataFrame:
    """Return a table in which one column has names instead of numbers."""
    frame = pd.DataFrame(columns)
    frame[coded] = by_name(columns[coded], [member.name for member in names])
    return frame


def _with_numbers(frame: pd.DataFrame, coded: str, names: type[IntEnum], columns: tuple[str, ...]) -> dict[str, NDArray]:
    """Return the columns from which `_with_names` made a table."""
    numbers = frame.pop(coded).map(lambda name: names[name].value).to_numpy(np.int64)
    return {name: numbers if name == coded else frame[name].to_numpy() for name in columns}


def _keys(schedule: Schedule, rows: Ints) -> Ints:
    """Return small numbers, equal for gradients of the same worker and step."""
    # The caller indexes an array by key. Sorting for consecutive keys takes longer than a few unused entries.
    worker, step = schedule["worker"][rows], schedule["step"][rows]
    keys = worker * (int(step.max(initial=0)) + 1) + step
    return keys if keys.max(initial=0) < 8 * len(keys) else np.unique(keys, return_inverse=True)[1]


def _updates(schedule: Schedule, uses: Ints) -> Ints:
    """Return the row of the update for each use: the PUSH itself, or the COMMIT that closes its round."""
    # An ADD belongs to the next COMMIT of the same replica and block (a cell). `cell * stride + row` sorts by cell, then by
    # row, so one search finds the next COMMIT of all ADDs at once. If it is of another cell, the round was never committed.
    updates = np.where(schedule["verb"][uses] == Verb.PUSH, uses, NONE)
    commits = schedule.rows(Verb.COMMIT)
    commits = commits[np.argsort(schedule.cells(commits), kind="stable")]  # by cell, then in order
    commit_cells = schedule.cells(commits)
    adds = np.flatnonzero(updates == NONE)
    add_cells = schedule.cells(uses[adds])
    stride = len(schedule) + 1
    position = np.searchsorted(commit_cells * stride + commits, add_cells * stride + uses[adds])
    closed = position < len(commits)
    closed[closed] = commit_cells[position[closed]] == add_cells[closed]
    updates[adds[closed]] = commits[position[closed]]
    return updates
