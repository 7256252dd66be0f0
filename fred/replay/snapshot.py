"""Where a run had got to as plain facts and arrays, for memory or a file, and back: the same trees, the same ones shared."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

Leaves = list[int]  # a tree: the number of the array at each of its leaves, in order


class Snapshot(NamedTuple):
    """Where a run had got to, replayed or interpreted, in memory or from a file."""

    facts: dict[str, Any]  # that JSON holds; trees as `Leaves`
    arrays: list[NDArray]  # each once


class Taking:
    """Makes trees plain: arrays that are copies, each of them once."""

    def __init__(self) -> None:
        self.arrays: list[NDArray] = []
        self._numbers: dict[int, int] = {}  # by identity: whoever is taken holds them all

    def leaves(self, tree: Any) -> Leaves:
        """One more tree."""
        parts = jax.tree.leaves(tree)
        for leaf in parts:
            if id(leaf) not in self._numbers:
                self._numbers[id(leaf)] = len(self.arrays)
                self.arrays.append(_plain(leaf))
        return [self._numbers[id(leaf)] for leaf in parts]


class Restoring:
    """Makes trees of what was plain; what was one array is one again."""

    def __init__(self, arrays: Sequence[NDArray]):
        self._arrays = arrays
        self._made: dict[int, jax.Array] = {}

    def tree(self, leaves: Leaves, like: Any) -> Any:
        """A tree like this one. ValueError if the arrays do not fit there."""
        parts, structure = jax.tree.flatten(like)
        return jax.tree.unflatten(structure, [self._leaf(number, each) for number, each in zip(leaves, parts, strict=True)])

    def _leaf(self, number: int, like: Any) -> jax.Array:
        if number not in self._made:
            self._made[number] = _array(self._arrays[number], like)
        return self._made[number]


def _plain(leaf: Any) -> NDArray:
    """A copy as a file holds it: of random keys, their data."""
    leaf = jnp.asarray(leaf)  # a user's own may be a plain number
    return np.array(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _array(found: NDArray, like: Any) -> jax.Array:
    """A copy of the array that was made plain, in the place of one like it. ValueError if it does not fit there."""
    like, given = like if hasattr(like, "dtype") else jnp.asarray(like), jnp.array(found)
    whole = jax.random.wrap_key_data(given, impl=jax.random.key_impl(like)) if _is_key(like) else given
    if (whole.shape, whole.dtype) != (like.shape, like.dtype):
        raise ValueError(f"an array of {whole.dtype} {whole.shape}; expected {like.dtype} {like.shape}")
    return whole


def _is_key(leaf: jax.Array) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
