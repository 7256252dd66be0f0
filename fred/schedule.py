"""The schedule: what happened in which order, one row per verb; all that timing tells arithmetic.

| verb   | meaning                                                                                            |
|--------|----------------------------------------------------------------------------------------------------|
| PULL   | mailbox <- the replica's parameters                                                                |
| PUSH   | replica <- apply_update(replica, gradient at mailbox of the worker's minibatch `step`)             |
| ADD    | the gradient at mailbox joins the replica's open round                                             |
| COMMIT | replica <- apply_round(replica, weight x sum of what joined); a new round opens                    |
| MIX    | mailbox <- mailbox + weight x mailbox `source`; consecutive rows make up one mailbox, from 0       |
| SYNC   | replica <- keep x replica + weight x mailbox                                                       |
| DROP   | a message that had no effect: a gradient used in no other row is never computed in the replay      |

A *replica* is what one clock counts the changes of: the parameter server; each of several servers, which then hold `blocks`
of the parameters; or each worker's own model. Mailboxes are numbered in the order in which they are written, once each. With
blocks, a PULL fills one block of its mailbox (no mailbox: nobody used what was sent); blocks not filled are those of the
worker's mailbox before.
"""

import hashlib
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

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
    MIX = 4
    SYNC = 5
    DROP = 6


NONE = -1  # in a column that does not apply to the row's verb

COLUMNS = (
    "time_ns",  # when the row takes effect on the replica
    "verb",
    "worker",
    "replica",
    "mailbox",  # written by PULL and MIX, read by PUSH, ADD, SYNC, DROP
    "source",  # mailbox that a MIX reads
    "step",  # the worker's own count of gradients: names the minibatch
    "timestamp",  # the replica's clock when the parameters were read, changes
    "staleness",  # clock at time_ns - timestamp, changes
    "begin_ns",  # PULL: sent by the server; PUSH, ADD, DROP: compute started
    "end_ns",  # PULL: arrived at the worker; PUSH, ADD, DROP: compute ended
    "bytes",  # moved over the network for this row
    "messages",  # in which they were moved
)
SCALES = ("weight", "keep")  # columns of numbers that multiply parameters

_FACTS = ("workers", "replicas", "blocks", "started", "end_ns")  # of a schedule, beside its columns


@dataclass(frozen=True)
class Schedule:
    """A finished recording: columns of equal length, in the order in which the rows took effect."""

    columns: dict[str, NDArray]
    workers: int
    replicas: int
    blocks: int  # of the parameters, one per replica; 1: every replica holds them all
    started: int  # gradients whose computation began
    end_ns: int  # when the simulation stopped

    def __len__(self) -> int:
        return len(self.columns["verb"])

    def __getitem__(self, column: str) -> NDArray:
        return self.columns[column]

    def rows(self, *verbs: Verb) -> NDArray[np.intp]:
        """Positions of the rows with one of these verbs."""
        return np.flatnonzero(np.isin(self["verb"], verbs))

    def settled(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The rows that use gradients (PUSH, ADD), and for each the row that makes the update; not of rounds left open."""
        rows = self.rows(Verb.PUSH, Verb.ADD)
        update = np.where(self["verb"][rows] == Verb.PUSH, rows, NONE)
        commits = self.rows(Verb.COMMIT)
        for replica in np.unique(self["replica"][commits]):
            own = commits[self["replica"][commits] == replica]
            mine = np.flatnonzero((update == NONE) & (self["replica"][rows] == replica))
            position = np.searchsorted(own, rows[mine])
            closed = position < len(own)
            update[mine[closed]] = own[position[closed]]
        return rows[update != NONE], update[update != NONE]

    def keys(self, rows: NDArray[np.intp]) -> NDArray[np.int64]:
        """A number for each of these rows' gradients: the same for the same worker and step."""
        return self["worker"][rows] * (int(self["step"].max(initial=0)) + 1) + self["step"][rows]

    def gradients_per_update(self) -> NDArray[np.int64]:
        """How many gradients took part in an update for the first time, for each PUSH and COMMIT."""
        uses, updates = self.settled()
        order = np.argsort(updates, kind="stable")
        _, first = np.unique(self.keys(uses[order]), return_index=True)
        every = self.rows(Verb.PUSH, Verb.COMMIT)
        return np.bincount(np.searchsorted(every, updates[order][first]), minlength=len(every)).astype(np.int64)

    def counts(self) -> dict[str, int]:
        """Updates, and what became of the gradients: applied, dropped, in flight at the end."""
        per_update = self.gradients_per_update()
        used = np.unique(self.keys(self.rows(Verb.PUSH, Verb.ADD)))
        dropped = len(np.setdiff1d(self.keys(self.rows(Verb.DROP)), used))
        applied = int(per_update.sum())
        in_flight = self.started - applied - dropped
        return {"updates": len(per_update) // self.blocks, "gradients": applied, "dropped": dropped, "in_flight": in_flight}

    def digest(self) -> str:
        """SHA-256 of every column's bytes (little-endian) and of the counts: the identity of the timing."""
        sha = hashlib.sha256(f"{self.workers} {self.replicas} {self.blocks} {self.started} {self.end_ns}".encode())
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
        columns = {name: verbs if name == "verb" else frame[name].to_numpy() for name in (*COLUMNS, *SCALES)}
        return cls(columns, **facts)
