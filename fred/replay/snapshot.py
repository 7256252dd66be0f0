"""Snapshots of a run as JSON facts and arrays, in memory or a file; restored trees share arrays as they did before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fred.base.later import jax, jnp

Leaves = list[int]  # a tree: the number of the array at each of its leaves, in order


class Snapshot(NamedTuple):
    """The progress of a run, replayed or interpreted, in memory or from a file."""

    facts: dict[str, Any]  # as JSON can hold; trees as `Leaves`
    arrays: list[NDArray]  # each once


class Taking:
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
                self.arrays.append(np.array(plain(leaf)))
        return [self._numbers[id(leaf)] for leaf in parts]


class Restoring:
    """A converter of array numbers back to trees; arrays that were shared are shared again."""

    def __init__(self, arrays: Sequence[NDArray]):
        self._arrays = arrays
        self._made: dict[int, jax.Array] = {}

    def tree(self, leaves: Leaves, like: Any) -> Any:
        """Return a tree with the structure of `like`. Raises ValueError if the arrays do not fit."""
        parts, structure = jax.tree.flatten(like)
        return jax.tree.unflatten(structure, [self._leaf(number, each) for number, each in zip(leaves, parts, strict=True)])

    def _leaf(self, number: int, like: Any) -> jax.Array:
        if number not in self._made:
            self._made[number] = array_like(self._arrays[number], like)
        return self._made[number]


def plain(leaf: Any) -> NDArray:
    """Return an array that a file can hold, perhaps the memory of this one; for random keys, their data."""
    leaf = leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf)  # a user's own leaf may be a plain number
    return np.asarray(data_of(leaf))


def data_of(leaf: jax.Array) -> jax.Array:
    """Return the data of random keys; other arrays as they are."""
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def array_like(found: NDArray, like: Any) -> jax.Array:
    """Return a copy of a stored array, with the type of `like`. Raises ValueError if it does not fit."""
    like = like if hasattr(like, "dtype") else jnp.asarray(like)
    whole = key_like(jax.device_put(np.array(found)), like)
    if (whole.shape, whole.dtype) != (like.shape, like.dtype):
        raise ValueError(f"an array of {whole.dtype} {whole.shape}; expected {like.dtype} {like.shape}")
    return whole


def key_like(found: Any, like: Any) -> Any:
    """Return a random key made of its data, if `like` is one; otherwise the array itself."""
    return jax.random.wrap_key_data(found, impl=jax.random.key_impl(like)) if _is_key(like) else found


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(getattr(leaf, "dtype", np.float32), jax.dtypes.prng_key)
