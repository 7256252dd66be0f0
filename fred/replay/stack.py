"""Values of one kind in one array each, so that a compiled loop reads and replaces one of them by its number."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_FEW_NUMBERS = 1 << 20  # of a stack that may be larger than it must


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Stack:
    """Trees of one shape, stacked [items, ...]; a single one is kept as it is, which XLA updates in place more readily."""

    values: Any
    alone: bool = field(metadata={"static": True})

    @classmethod
    def of(cls, items: Sequence[Any], empty: int = 0) -> "Stack":
        """These items, and so many of zeros."""
        if len(items) + empty == 1:
            return cls(jax.device_put(items[0], may_alias=False), alone=True)  # a copy: the replay gives its buffers away
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *items)
        if not empty:  # random keys, which an optimizer may remember, cannot be padded
            return cls(stacked, alone=False)
        return cls(jax.tree.map(lambda leaf: jnp.pad(leaf, ((0, empty), *((0, 0),) * (leaf.ndim - 1))), stacked), alone=False)

    @classmethod
    def zeros(cls, like: Any, count: int) -> "Stack":
        """So many items of zeros shaped like this."""
        shape = () if count == 1 else (count,)
        return cls(jax.tree.map(lambda leaf: _zeros((*shape, *leaf.shape), leaf.dtype), like), alone=count == 1)

    def item(self, index: Any) -> Any:
        """One item."""
        if self.alone:
            return self.values
        return jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, index, keepdims=False), self.values)

    def nothing(self) -> Any:
        """An item of zeros."""
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape if self.alone else leaf.shape[1:], leaf.dtype), self.values)

    def put(self, index: Any, item: Any) -> "Stack":
        """All items, this one replaced; of a mapping, what is left out stays as it is."""
        if isinstance(item, dict) and len(item) < len(self.values):
            some = Stack({name: self.values[name] for name in item}, self.alone).put(index, item)
            return Stack(self.values | some.values, self.alone)
        if self.alone:
            return Stack(item, alone=True)
        update = jax.lax.dynamic_update_index_in_dim
        return Stack(jax.tree.map(lambda leaf, new: update(leaf, new, index, 0), self.values, item), alone=False)

    @jax.jit
    def some(self, indices: np.ndarray) -> Any:
        """Several items, stacked."""
        return jax.tree.map(lambda leaf: leaf[None] if self.alone else leaf[indices], self.values)


def rounded(count: int, item: Any) -> int:
    """So many items, or, where they are small, the next power of two: runs with about as many share what is compiled."""
    power = 1 << max(count - 1, 0).bit_length()
    size = sum(leaf.size for leaf in jax.tree.leaves(item))
    return power if count > 0 and power * size <= _FEW_NUMBERS else count


def _zeros(shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """An array of zeros, for which no program is compiled; random keys have one of their own."""
    if jnp.issubdtype(dtype, jax.dtypes.extended):
        return jnp.zeros(shape, dtype)
    return jax.device_put(np.zeros(shape, dtype), may_alias=False)
