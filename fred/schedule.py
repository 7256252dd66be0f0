"""The schedule: what happened in which order, one row per verb; all that timing tells arithmetic.

| verb   | meaning                                                                                            |
|--------|----------------------------------------------------------------------------------------------------|
| PULL   | mailbox <- the replica's parameters; every mailbox number is written once                          |
| PUSH   | replica <- apply_update(replica, gradient at mailbox of the worker's minibatch `step`)             |
| ADD    | the gradient at mailbox joins the replica's open round                                             |
| COMMIT | replica <- apply_round(replica, weight x sum of what joined); a new round opens                    |
| DROP   | a gradient that nobody will use: never computed in the replay                                      |
"""

import hashlib
import math
from array import array
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray


class Verb(IntEnum):
    """What a row does."""

    PULL = 0
    PUSH = 1
    ADD = 2
    COMMIT = 3
    DROP = 4


_PULL, _PUSH, _ADD, _COMMIT, _DROP = (int(verb) for verb in Verb)  # plain integers: an enum costs time in every row

NONE = -1  # in a column that does not apply to the row's verb

COLUMNS = (
    "time_ns",  # when the row takes effect on the replica
    "verb",
    "worker",
    "replica",
    "mailbox",  # written by PULL, read by PUSH, ADD, DROP
    "step",  # the worker's own count of gradients: names the minibatch
    "timestamp",  # the replica's clock when the parameters were read, updates
    "staleness",  # clock at time_ns - timestamp, updates
    "begin_ns",  # PULL: sent by the server; PUSH, ADD, DROP: compute started
    "end_ns",  # PULL: arrived at the worker; PUSH, ADD, DROP: compute ended
    "bytes",  # moved over the network for this row
)


_FACTS = ("workers", "replicas", "started", "end_ns")  # of a schedule, beside its columns


class Model(NamedTuple):
    """Parameters that a worker has read: which mailbox they lie in, and the replica's clock at the time."""

    mailbox: int
    timestamp: int
    params: Any = None  # the parameters themselves, where arithmetic runs inline


class Gradient:
    """A gradient being computed, or computed and not yet used."""

    __slots__ = ("begin", "end", "finished", "model", "ordinal", "step", "value", "worker")

    def __init__(self, worker: int, step: int, model: Model, begin: int, end: int, finished: Any):
        self.worker = worker
        self.step = step  # the worker's own count
        self.model = model  # what it is computed at
        self.begin, self.end = begin, end  # ns
        self.finished = finished  # the event that the protocol waits for
        self.ordinal = NONE  # rank in the order of first use
        self.value: Any = None  # the gradient itself, where arithmetic runs inline


class Recorder:
    """Writes the schedule while the simulation runs, and keeps the clocks and counts that protocols ask for.

    It is `full` once the schedule holds the wanted number of updates or of gradients that took part in one.
    """

    def __init__(self, workers: int, replicas: int = 1, updates: float = math.inf, gradients: float = math.inf):
        self.workers = workers
        self.full = False
        self._wanted = updates, gradients
        self.clocks = [0] * replicas  # updates of each replica
        self.updates = 0  # of all replicas
        self.gradients = 0  # that took part in an update
        self.dropped = 0
        self.started = 0
        self._used = 0  # distinct gradients
        self._joined = [0] * replicas  # gradients in each replica's open round
        self._mailboxes = 0
        self._integers = array("q")
        self._weights = array("d")

    def pull(self, now: int, worker: int, replica: int, step: int, arrival: int, size: int) -> Model:
        """The worker reads the replica's parameters now; they arrive at `arrival`."""
        mailbox, clock = self._mailboxes, self.clocks[replica]
        self._mailboxes += 1
        self._integers.extend((now, _PULL, worker, replica, mailbox, step, clock, 0, now, arrival, size))
        self._weights.append(1.0)
        return Model(mailbox, clock)

    def push(self, now: int, gradient: Gradient, replica: int, size: int) -> None:
        """The gradient makes one update of the replica."""
        self._write(_PUSH, now, gradient, replica, size)
        self._updated(replica, 1)

    def add(self, now: int, gradient: Gradient, replica: int, size: int) -> None:
        """The gradient joins the replica's open round."""
        self._write(_ADD, now, gradient, replica, size)
        self._joined[replica] += 1

    def commit(self, now: int, replica: int) -> None:
        """The mean of the gradients that joined makes one update of the replica."""
        joined, clock = self._joined[replica], self.clocks[replica]
        self._integers.extend((now, _COMMIT, NONE, replica, NONE, NONE, clock, 0, now, now, 0))
        self._weights.append(1.0 / joined)
        self._joined[replica] = 0
        self._updated(replica, joined)

    def drop(self, now: int, gradient: Gradient, replica: int, size: int) -> None:
        """Nobody will use the gradient."""
        self._write(_DROP, now, gradient, replica, size)
        self.dropped += 1

    def schedule(self, end_ns: int) -> "Schedule":
        """What has been recorded until the simulation stopped at `end_ns`."""
        table = np.frombuffer(self._integers, np.int64).reshape(-1, len(COLUMNS))
        columns: dict[str, NDArray] = {name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(COLUMNS)}
        columns["weight"] = np.frombuffer(self._weights, np.float64).copy()
        return Schedule(columns, self.workers, len(self.clocks), self.started, end_ns)

    def _updated(self, replica: int, gradients: int) -> None:
        self.clocks[replica] += 1
        self.updates += 1
        self.gradients += gradients
        self.full = self.updates >= self._wanted[0] or self.gradients >= self._wanted[1]

    def _write(self, verb: int, now: int, gradient: Gradient, replica: int, size: int) -> None:
        worker, step, begin, end = gradient.worker, gradient.step, gradient.begin, gradient.end
        if gradient.ordinal == NONE and verb != _DROP:
            gradient.ordinal = self._used
            self._used += 1
        mailbox, timestamp, _ = gradient.model
        staleness = self.clocks[replica] - timestamp
        self._integers.extend((now, verb, worker, replica, mailbox, step, timestamp, staleness, begin, end, size))
        self._weights.append(1.0)


@dataclass(frozen=True)
class Schedule:
    """A finished recording: columns of equal length, in the order in which the rows took effect."""

    columns: dict[str, NDArray]
    workers: int
    replicas: int
    started: int  # gradients whose computation began
    end_ns: int  # when the simulation stopped

    def __len__(self) -> int:
        return len(self.columns["verb"])

    def __getitem__(self, column: str) -> NDArray:
        return self.columns[column]

    def rows(self, *verbs: Verb) -> NDArray[np.intp]:
        """Positions of the rows with one of these verbs."""
        return np.flatnonzero(np.isin(self["verb"], verbs))

    def gradients_per_update(self) -> NDArray[np.int64]:
        """How many gradients took part in each update: 1 in a PUSH, those that joined in a COMMIT."""
        return np.rint(1 / self["weight"][self.rows(Verb.PUSH, Verb.COMMIT)]).astype(np.int64)

    def counts(self) -> dict[str, int]:
        """Updates, and what became of the gradients: applied, dropped, in flight at the end."""
        per_update = self.gradients_per_update()
        applied, dropped = int(per_update.sum()), len(self.rows(Verb.DROP))
        in_flight = self.started - applied - dropped
        return {"updates": len(per_update), "gradients": applied, "dropped": dropped, "in_flight": in_flight}

    def digest(self) -> str:
        """SHA-256 of every column's bytes (little-endian) and of the counts: the identity of the timing."""
        sha = hashlib.sha256(f"{self.workers} {self.replicas} {self.started} {self.end_ns}".encode())
        for name, column in self.columns.items():
            sha.update(name.encode())
            sha.update(np.ascontiguousarray(column, column.dtype.newbyteorder("<")).tobytes())
        return sha.hexdigest()

    def frame(self) -> pd.DataFrame:
        """The table, verbs by name."""
        frame = pd.DataFrame(self.columns)
        frame["verb"] = pd.Categorical([Verb(code).name for code in self["verb"]], [verb.name for verb in Verb])
        return frame

    def save(self, path: Path) -> None:
        """Write a Parquet file that `load` and any data frame library read."""
        table = pa.Table.from_pandas(self.frame(), preserve_index=False)
        facts = {name: str(getattr(self, name)) for name in _FACTS}
        pq.write_table(table.replace_schema_metadata({**(table.schema.metadata or {}), **facts}), path)

    @classmethod
    def load(cls, path: Path) -> "Schedule":
        """Read what `save` wrote."""
        table = pq.read_table(path)
        facts = {name: int(table.schema.metadata[name.encode()]) for name in _FACTS}
        frame = table.to_pandas()
        verbs = frame.pop("verb").map(lambda name: Verb[name].value).to_numpy(np.int64)
        columns = {name: verbs if name == "verb" else frame[name].to_numpy() for name in (*COLUMNS, "weight")}
        return cls(columns, **facts)
