"""Blocks of parameters, and stacks of values of one kind.

Parameters are divided into blocks, one on each of several servers, or exchanged by workers in turn (`Blocks`). Values of one
shape are stacked in arrays, so that a compiled loop reads and replaces any of them by its number (`Stack`).
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fred.base.errors import FredError
from fred.learning.models.model import Params
from fred.schedule.layout import Layout, Size

_FEW_NUMBERS = 1 << 20  # limit for stacks that are larger than necessary
_ONE_LAYER = {("weights",), ("biases",)}  # a model without any other array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Stack:
    """Trees of one shape, stacked [items, ...]; a single one is not stacked, since XLA updates it in place more readily."""

    values: Any
    single: bool = field(metadata={"static": True})

    @classmethod
    def from_items(cls, items: Sequence[Any], empty: int = 0) -> "Stack":
        """Return a stack of these items, followed by `empty` items of zeros."""
        if len(items) + empty == 1:
            return cls(jax.device_put(items[0], may_alias=False), single=True)  # a copy: the replay donates its buffers
        if all(item is items[0] for item in items):  # at once, since each operand of a concatenation takes time to compile
            stacked = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], len(items), axis=0), items[0])
        else:
            stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *items)
        if not empty:  # random keys, which an optimizer may hold, cannot be padded
            return cls(stacked, single=False)
        return cls(jax.tree.map(lambda leaf: jnp.pad(leaf, ((0, empty), *((0, 0),) * (leaf.ndim - 1))), stacked), single=False)

    @classmethod
    def zeros(cls, like: Any, count: int) -> "Stack":
        """Return a stack of `count` items of zeros, shaped like this."""
        shape = () if count == 1 else (count,)
        return cls(jax.tree.map(lambda leaf: _zeros((*shape, *leaf.shape), leaf.dtype), like), single=count == 1)

    @property
    def count(self) -> int:
        """Return the number of items; 0 if they hold nothing."""
        leaves = jax.tree.leaves(self.values)
        if not leaves or leaves[0].size == 0:
            return 0
        return 1 if self.single else leaves[0].shape[0]

    def item(self, index: Any) -> Any:
        """Return one item."""
        if self.single:
            return self.values
        return jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, index, keepdims=False), self.values)

    def nothing(self) -> Any:
        """Return an item of zeros."""
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape if self.single else leaf.shape[1:], leaf.dtype), self.values)

    def put(self, index: Any, item: Any) -> "Stack":
        """Return all items with one replaced; names missing from a mapping stay as they are."""
        if isinstance(item, dict) and len(item) < len(self.values):
            subset = Stack({name: self.values[name] for name in item}, self.single).put(index, item)
            return Stack(self.values | subset.values, self.single)
        if self.single:
            return Stack(item, single=True)
        update = jax.lax.dynamic_update_index_in_dim
        return Stack(jax.tree.map(lambda leaf, new: update(leaf, new, index, 0), self.values, item), single=False)

    @jax.jit
    def take(self, indices: np.ndarray) -> Any:
        """Return several items, stacked."""
        return jax.tree.map(lambda leaf: leaf[None] if self.single else leaf[indices], self.values)


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


@dataclass(frozen=True)
class Blocks:
    """A division of a model's parameters; blocks of the same shapes form a group, and are stacked. Hashable."""

    count: int
    structure: Any  # the parameters' tree
    paths: tuple[str, ...]  # of its arrays
    shapes: tuple[tuple[int, ...], ...]
    layers: tuple[tuple[int, ...], ...] = ()  # arrays of each block, if blocks are whole layers

    @classmethod
    def from_layout(cls, params: Params, layout: Layout) -> "Blocks":
        """Return the division of parameters like these. Raises FredError if there are fewer layers than blocks."""
        leaves, structure = jax.tree_util.tree_flatten_with_path(params)
        paths = tuple(jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in leaves)
        shapes = tuple(leaf.shape for _, leaf in leaves)
        by_layer = layout.cut == "layers" and layout.blocks > 1
        layers = _layers(paths, shapes, layout.blocks) if by_layer else ()
        return cls(layout.blocks, structure, paths, shapes, layers)

    @property
    def groups(self) -> tuple[int, ...]:
        """Return the number of blocks in each group."""
        return (1,) * self.count if self.layers else (self.count,)

    @property
    def size(self) -> int:
        """Return the number of parameters."""
        return sum(map(math.prod, self.shapes))

    @property
    def like(self) -> Params:
        """Return the shapes of the parameters."""
        return jax.tree.unflatten(self.structure, [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in self.shapes])

    @property
    def group_of_each(self) -> tuple[int, ...]:
        """Return the group of each block."""
        return tuple(self.place(block)[0] for block in range(self.count))

    def place(self, block: int) -> tuple[int, int]:
        """Return the group of a block, and its number there."""
        return (block, 0) if self.layers else (0, block)

    @property
    def shares(self) -> tuple[float, ...]:
        """Return each block's share of the parameters."""
        sizes = [math.prod(shape) for shape in self.shapes]
        if not self.layers:
            return (1 / self.count,) * self.count
        return tuple(sum(sizes[array] for array in arrays) / sum(sizes) for arrays in self.layers)

    def sizes(self, sent: Any, count: Callable[[Any], int]) -> Size:
        """Return the bytes of a message, which has the parameters' structure if it is split; `count` counts a part's bytes."""
        if not self.layers:
            return Size.from_shares(count(sent), self.shares)
        leaves = jax.tree.leaves(sent)
        blocks = [count({self.paths[array]: leaves[array] for array in arrays}) for arrays in self.layers]
        return Size(count(sent), tuple(blocks))

    def split(self, params: Params) -> tuple[Stack, ...]:
        """Return a stack of blocks for each group; equal parts take consecutive numbers of every array, the last one padded."""
        if self.count == 1:
            return (Stack(params, single=True),)
        if self.layers:
            leaves = jax.tree.leaves(params)
            return tuple(Stack({self.paths[array]: leaves[array] for array in arrays}, single=True) for arrays in self.layers)
        return (Stack(jax.tree.map(self._parts, params), single=False),)

    def block(self, parts: Sequence[Stack], number: int) -> Params:
        """Return one block of parameters that have been split by `split`."""
        group, index = self.place(number)
        return parts[group].item(index)

    def join(self, blocks: Sequence[Params]) -> Params:
        """Reverse `split`: return the parameters made of all blocks in order."""
        if self.count == 1:
            return blocks[0]
        if self.layers:
            named: dict[str, Any] = {}
            for block in blocks:
                named |= block
            return jax.tree.unflatten(self.structure, [named[path] for path in self.paths])
        arrays = zip(*map(jax.tree.leaves, blocks), strict=True)
        restored = [
            jnp.concatenate(parts)[: math.prod(shape)].reshape(shape) for parts, shape in zip(arrays, self.shapes, strict=True)
        ]
        return jax.tree.unflatten(self.structure, restored)

    def _parts(self, array: jax.Array) -> jax.Array:
        """Return an array in equal parts [blocks, size], padded with zeros at the end."""
        size = -(-array.size // self.count)
        return jnp.pad(array.ravel(), (0, self.count * size - array.size)).reshape(self.count, size)


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key by which layer10 comes after layer9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _layers(paths: tuple[str, ...], shapes: tuple[tuple[int, ...], ...], count: int) -> tuple[tuple[int, ...], ...]:
    """Return the arrays of each block: neighbouring layers, so that blocks are about equally large.

    A layer is everything under one key on the path to its arrays. An array without such a key is its own layer, except that one
    layer's weights and biases stay together.
    """
    parts = [path.split("/") for path in paths]
    depth = 0  # first level at which paths differ: Flax puts everything under `params`
    while len({part[depth] for part in parts}) == 1 and min(map(len, parts)) > depth + 2:
        depth += 1
    if {tuple(part[depth:]) for part in parts} == _ONE_LAYER:
        parts, depth = [["the only one"]] * len(parts), 0
    layers: dict[str, list[int]] = {}
    for array in sorted(range(len(paths)), key=lambda array: _natural(parts[array][depth])):
        layers.setdefault(parts[array][depth], []).append(array)
    if len(layers) < count:
        raise FredError(f"the model's layers ({', '.join(layers)}) are fewer than {count} servers: cut it into equal parts")
    sizes = [sum(math.prod(shapes[array]) for array in arrays) for arrays in layers.values()]
    blocks: list[list[int]] = [[]]
    for number, (arrays, before) in enumerate(zip(layers.values(), accumulate(sizes, initial=0), strict=False)):
        layers_left = len(layers) - number
        # a new block begins where the others have their share, and where each layer left is needed for a block of its own
        full = before >= len(blocks) * sum(sizes) / count
        if blocks[-1] and len(blocks) < count and (full or layers_left == count - len(blocks)):
            blocks.append([])
        blocks[-1] += arrays
    return tuple(map(tuple, blocks))
