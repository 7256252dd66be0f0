"""An interpreter's memory as plain facts and arrays, for a file, and back: the same trees, and the same ones shared."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fred.learning.models.model import Params
from fred.learning.problem import Arrays
from fred.replay.arithmetic import Arithmetic
from fred.replay.memory import Joined, Memory
from fred.schedule import Row

Leaves = list[int]  # a tree: the number of the array at each of its leaves, in order


def plain(leaf: Any) -> NDArray:
    """An array as a file holds it: of random keys, their data."""
    leaf = jnp.asarray(leaf)  # a user's own may be a plain number
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def array(found: NDArray, like: Any) -> jax.Array:
    """The array that was made plain, in the place of one like it. ValueError if it does not fit there."""
    like, given = like if hasattr(like, "dtype") else jnp.asarray(like), jnp.asarray(found)
    whole = jax.random.wrap_key_data(given, impl=jax.random.key_impl(like)) if _is_key(like) else given
    if (whole.shape, whole.dtype) != (like.shape, like.dtype):
        raise ValueError(f"an array of {whole.dtype} {whole.shape}; expected {like.dtype} {like.shape}")
    return whole


def _is_key(leaf: jax.Array) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def taken(memory: Memory) -> tuple[dict[str, Any], list[NDArray]]:
    """What JSON holds, and every array once."""
    arrays: list[NDArray] = []
    numbers: dict[int, int] = {}  # by identity: the memory holds them all

    def leaves(tree: Any) -> Leaves:
        for leaf in jax.tree.leaves(tree):
            if id(leaf) not in numbers:
                numbers[id(leaf)] = len(arrays)
                arrays.append(plain(leaf))
        return [numbers[id(leaf)] for leaf in jax.tree.leaves(tree)]

    def joined(each: Joined) -> dict[str, Any]:
        message = None if each.message is None else leaves(each.message)
        sources = [leaves(source) for source in each.sources]
        return {"message": message, "row": list(each.row), "ordinal": each.ordinal, "sources": sources}

    facts = {
        "states": [[leaves(state.params), leaves(state)] for state in memory.states],
        "workers": [leaves(worker) for worker in memory.workers],
        "mailboxes": [
            [number, [[block, leaves(part)] for block, part in blocks.items()]] for number, blocks in memory.mailboxes.items()
        ],
        "messages": [[list(key), leaves(message)] for key, message in memory.messages.items()],
        "rounds": [[cell, [joined(each) for each in members]] for cell, members in memory.rounds.items()],
        "ordinals": [[list(key), ordinal] for key, ordinal in memory.ordinals.items()],
        "used": memory.used,
        "statistics": [statistic.hex() for statistic in memory.statistics],
        "rows": memory.rows,
    }
    return facts, arrays


def restored(facts: dict[str, Any], arrays: Sequence[NDArray], start: Memory, do: Arithmetic, examples: Arrays) -> Memory:
    """The memory that was taken, of an interpreter that began with `start`. ValueError if it was another one's."""
    return _Restoring(arrays, start, do, examples).memory(facts)


class _Restoring:
    """Trees from the numbers of their leaves. Parameters that were one tree are one again: rounds ask whether they are."""

    def __init__(self, arrays: Sequence[NDArray], start: Memory, do: Arithmetic, examples: Arrays):
        self._arrays, self._start, self._blocks = arrays, start, do.blocks
        _, self._message, self._joining = do.shapes(do.blocks.like, examples)  # of a model: states may add to theirs
        self._params: dict[tuple[int, ...], Params] = {}
        self._made: dict[int, jax.Array] = {}

    def memory(self, facts: dict[str, Any]) -> Memory:
        """All of it."""
        start = self._start
        return Memory(
            states=[
                self._tree(whole, like).replace(params=self._part(cell, params))
                for cell, (like, (params, whole)) in enumerate(zip(start.states, facts["states"], strict=True))
            ],
            workers=[self._tree(own, like) for own, like in zip(facts["workers"], start.workers, strict=True)],
            mailboxes={
                number: {block: self._part(block, part) for block, part in blocks} for number, blocks in facts["mailboxes"]
            },
            messages={tuple(key): self._tree(message, self._message) for key, message in facts["messages"]},
            rounds={cell: [self._joined(cell, each) for each in members] for cell, members in facts["rounds"]},
            ordinals={tuple(key): ordinal for key, ordinal in facts["ordinals"]},
            used=facts["used"],
            statistics=[float.fromhex(statistic) for statistic in facts["statistics"]],
            rows=facts["rows"],
        )

    def _joined(self, cell: int, each: dict[str, Any]) -> Joined:
        like = self._joining[self._blocks.place(cell % self._blocks.count)[0]]
        message = None if each["message"] is None else self._tree(each["message"], like)
        sources = [self._part(block, source) for block, source in enumerate(each["sources"])]
        return Joined(message, Row(*each["row"]), each["ordinal"], sources)

    def _part(self, cell: int, leaves: Leaves) -> Params:
        """A block of parameters."""
        key = tuple(leaves)
        if key not in self._params:
            self._params[key] = self._tree(leaves, self._start.states[cell % self._blocks.count].params)
        return self._params[key]

    def _tree(self, leaves: Leaves, like: Any) -> Any:
        parts, structure = jax.tree.flatten(like)
        return jax.tree.unflatten(structure, [self._leaf(number, each) for number, each in zip(leaves, parts, strict=True)])

    def _leaf(self, number: int, like: Any) -> jax.Array:
        if number not in self._made:
            self._made[number] = array(self._arrays[number], like)
        return self._made[number]
