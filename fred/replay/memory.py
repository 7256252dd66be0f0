"""The state of an interpreted run (`Memory`), and snapshots of a run, as facts for JSON and arrays, in memory or a file.

A snapshot holds each array once, and a restored state shares arrays as it did before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fred.base.imports import jax, jnp
from fred.learning.loss import Arrays
from fred.learning.models.model import Params
from fred.learning.server import Message, State
from fred.replay.arithmetic import Arithmetic
from fred.schedule.schedule import NONE, Row

Leaves = list[int]  # a tree: the number of the array at each of its leaves, in order


class Snapshot(NamedTuple):
    """The progress of a run, replayed or interpreted, in memory or from a file."""

    facts: dict[str, Any]  # as JSON can hold; trees as `Leaves`
    arrays: list[NDArray]  # each once


class SnapshotWriter:
    """A converter of trees to numbers of arrays; each array is copied once."""

    def __init__(self) -> None:
        self.arrays: list[NDArray] = []
        self._numbers: dict[int, int] = {}  # by identity: the caller keeps the arrays alive

    def leaves(self, tree: Any) -> Leaves:
        """Return the array numbers of one more tree."""
        parts = jax.tree.leaves(tree)
        for leaf in parts:
            if id(leaf) not in self._numbers:
                self._numbers[id(leaf)] = len(self.arrays)
                self.arrays.append(np.array(to_numpy(leaf)))
        return [self._numbers[id(leaf)] for leaf in parts]


class SnapshotReader:
    """A converter of array numbers back to trees; arrays that were shared are shared again."""

    def __init__(self, arrays: Sequence[NDArray]):
        self._arrays = arrays
        self._restored: dict[int, jax.Array] = {}

    def tree(self, leaves: Leaves, like: Any) -> Any:
        """Return a tree with the structure of `like`. Raises ValueError if the arrays do not fit."""
        parts, structure = jax.tree.flatten(like)
        return jax.tree.unflatten(structure, [self._leaf(number, part) for number, part in zip(leaves, parts, strict=True)])

    def _leaf(self, number: int, like: Any) -> jax.Array:
        if number not in self._restored:
            self._restored[number] = array_like(self._arrays[number], like)
        return self._restored[number]


def to_numpy(leaf: Any) -> NDArray:
    """Return an array that a file can hold, perhaps the memory of this one; for random keys, their data."""
    leaf = leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf)  # a user's own leaf may be a plain number
    return np.asarray(data_of(leaf))


def data_of(leaf: jax.Array) -> jax.Array:
    """Return the data of random keys; other arrays as they are."""
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def array_like(array: NDArray, like: Any) -> jax.Array:
    """Return a copy of a stored array, with the type of `like`. Raises ValueError if it does not fit."""
    like = like if hasattr(like, "dtype") else jnp.asarray(like)
    copy = key_like(jax.device_put(np.array(array)), like)
    if (copy.shape, copy.dtype) != (like.shape, like.dtype):
        raise ValueError(f"an array of {copy.dtype} {copy.shape}; expected {like.dtype} {like.shape}")
    return copy


def key_like(data: Any, like: Any) -> Any:
    """Return a random key made of its data, if `like` is one; otherwise the array itself."""
    return jax.random.wrap_key_data(data, impl=jax.random.key_impl(like)) if _is_key(like) else data


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(getattr(leaf, "dtype", np.float32), jax.dtypes.prng_key)


class Contribution(NamedTuple):
    """A contribution to a round: a message, or a gradient that may still be computed in one batch with the others."""

    message: Message | None
    row: Row
    ordinal: int = NONE
    sources: Sequence[Params] = ()

    @property
    def clock(self) -> int:
        """Return the clock at which it joined."""
        return self.row.timestamp + self.row.staleness


@dataclass
class Memory:
    """All values that rows read and write."""

    states: list[State]  # of each block of each replica
    workers: list[Any]  # memory of each worker
    mailboxes: dict[int, dict[int, Params]] = field(default_factory=dict)  # by number and block
    messages: dict[tuple[int, ...], Message] = field(default_factory=dict)  # that may be used again, by key
    rounds: dict[int, list[Contribution]] = field(default_factory=dict)  # open ones, by block of a replica
    ordinals: dict[tuple[int, ...], int] = field(default_factory=dict)  # of messages still in use, by key
    used: int = 0  # number of gradients used
    statistics: list[float] = field(default_factory=list)  # requested by timing
    rows: int = 0  # number of rows executed

    def snapshot(self) -> Snapshot:
        """Return the current state as a snapshot."""
        writer = SnapshotWriter()
        leaves = writer.leaves

        def describe(entry: Contribution) -> dict[str, Any]:
            message = None if entry.message is None else leaves(entry.message)
            sources = [leaves(source) for source in entry.sources]
            return {"message": message, "row": list(entry.row), "ordinal": entry.ordinal, "sources": sources}

        facts = {
            # parameters twice, since those that are one tree here become one tree again (`_MemoryReader`)
            "states": [[leaves(state.params), leaves(state)] for state in self.states],
            "workers": [leaves(worker) for worker in self.workers],
            "mailboxes": [
                [number, [[block, leaves(part)] for block, part in blocks.items()]] for number, blocks in self.mailboxes.items()
            ],
            "messages": [[list(key), leaves(message)] for key, message in self.messages.items()],
            "rounds": [[cell, [describe(entry) for entry in members]] for cell, members in self.rounds.items()],
            "ordinals": [[list(key), ordinal] for key, ordinal in self.ordinals.items()],
            "used": self.used,
            "statistics": [statistic.hex() for statistic in self.statistics],
            "rows": self.rows,
        }
        return Snapshot(facts, writer.arrays)


def restore_memory(snapshot: Snapshot, start: Memory, arithmetic: Arithmetic, examples: Arrays) -> Memory:
    """Return the memory in a snapshot, for an interpreter that begins with `start`. Raises ValueError for another run's."""
    return _MemoryReader(snapshot, start, arithmetic, examples).memory(snapshot.facts)


class _MemoryReader:
    """A reader of a memory from a snapshot; parameters that were one tree become one tree again, which rounds rely on."""

    def __init__(self, snapshot: Snapshot, start: Memory, arithmetic: Arithmetic, examples: Arrays):
        self._tree, self._start, self._blocks = SnapshotReader(snapshot.arrays).tree, start, arithmetic.blocks
        # shapes of a message, and of contributions by group: from the model, since states may have more arrays
        _, self._message, self._contributions = arithmetic.shapes(examples)
        self._params: dict[tuple[int, ...], Params] = {}  # by the numbers of their arrays

    def memory(self, facts: dict[str, Any]) -> Memory:
        """Return the restored memory."""
        start = self._start
        return Memory(
            states=[
                self._tree(state, like).replace(params=self._part(cell, params))
                for cell, (like, (params, state)) in enumerate(zip(start.states, facts["states"], strict=True))
            ],
            workers=[self._tree(memory, like) for memory, like in zip(facts["workers"], start.workers, strict=True)],
            mailboxes={
                number: {block: self._part(block, part) for block, part in blocks} for number, blocks in facts["mailboxes"]
            },
            messages={tuple(key): self._tree(message, self._message) for key, message in facts["messages"]},
            rounds={cell: [self._contribution(cell, entry) for entry in members] for cell, members in facts["rounds"]},
            ordinals={tuple(key): ordinal for key, ordinal in facts["ordinals"]},
            used=facts["used"],
            statistics=[float.fromhex(statistic) for statistic in facts["statistics"]],
            rows=facts["rows"],
        )

    def _contribution(self, cell: int, entry: dict[str, Any]) -> Contribution:
        like = self._contributions[self._blocks.place(cell % self._blocks.count)[0]]
        message = None if entry["message"] is None else self._tree(entry["message"], like)
        sources = [self._part(block, source) for block, source in enumerate(entry["sources"])]
        return Contribution(message, Row(*entry["row"]), entry["ordinal"], sources)

    def _part(self, cell: int, leaves: Leaves) -> Params:
        """Return a block of parameters."""
        key = tuple(leaves)
        if key not in self._params:
            self._params[key] = self._tree(leaves, self._start.states[cell % self._blocks.count].params)
        return self._params[key]
