"""Values of one kind stacked in arrays, so that a compiled loop reads and replaces any of them by its number."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_FEW_NUMBERS = 1 << 20  # limit for stacks that are larger than necessary


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Stack:
    """Trees of one shape, stacked [items, ...]; a single one is not stacked, since XLA updates it in place more readily."""

    values: Any
    alone: bool = field(metadata={"static": True})

    @classmethod
    def of(cls, items: Sequence[Any], empty: int = 0) -> "Stack":
        """Return a stack of these items, followed by `empty` items of zeros."""
        if len(items) + empty == 1:
            return cls(jax.device_put(items[0], may_alias=False), alone=True)  # a copy: the replay donates its buffers
        if all(item is items[0] for item in items):  # at once, since each operand of a concatenation takes time to compile
            stacked = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], len(items), axis=0), items[0])
        else:
            stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *items)
        if not empty:  # random keys, which an optimizer may hold, cannot be padded
            return cls(stacked, alone=False)
        return cls(jax.tree.map(lambda leaf: jnp.pad(leaf, ((0, empty), *((0, 0),) * (leaf.ndim - 1))), stacked), alone=False)

    @classmethod
    def zeros(cls, like: Any, count: int) -> "Stack":
        """Return a stack of `count` items of zeros, shaped like this."""
        shape = () if count == 1 else (count,)
        return cls(jax.tree.map(lambda leaf: _zeros((*shape, *leaf.shape), leaf.dtype), like), alone=count == 1)

    @property
    def count(self) -> int:
        """Return the number of items; 0 if they hold nothing."""
        leaves = jax.tree.leaves(self.values)
        if not leaves or leaves[0].size == 0:
            return 0
        return 1 if self.alone else leaves[0].shape[0]

    def item(self, index: Any) -> Any:
        """Return one item."""
        if self.alone:
            return self.values
        return jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, index, keepdims=False), self.values)

    def nothing(self) -> Any:
        """Return an item of zeros."""
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape if self.alone else leaf.shape[1:], leaf.dtype), self.values)

    def put(self, index: Any, item: Any) -> "Stack":
        """Return all items with one replaced; names missing from a mapping stay as they are."""
        if isinstance(item, dict) and len(item) < len(self.values):
            some = Stack({name: self.values[name] for name in item}, self.alone).put(index, item)
            return Stack(self.values | some.values, self.alone)
        if self.alone:
            return Stack(item, alone=True)
        update = jax.lax.dynamic_update_index_in_dim
        return Stack(jax.tree.map(lambda leaf, new: update(leaf, new, index, 0), self.values, item), alone=False)

    @jax.jit
    def some(self, indices: np.ndarray) -> Any:
        """Return several items, stacked."""
        return jax.tree.map(lambda leaf: leaf[None] if self.alone else leaf[indices], self.values)


def rounded(count: int, item: Any) -> int:
    """Return the count; for small items the next power of two, so that runs of similar size share compiled code."""
    power = 1 << max(count - 1, 0).bit_length()
    size = sum(leaf.size for leaf in jax.tree.leaves(item))
    return power if count > 0 and power * size <= _FEW_NUMBERS else count


def _zeros(shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """Return an array of zeros without compiling a program, except for random keys."""
    if jnp.issubdtype(dtype, jax.dtypes.extended):
        return jnp.zeros(shape, dtype)
    return jax.device_put(np.zeros(shape, dtype), may_alias=False)
