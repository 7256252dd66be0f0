"""The division of parameters into blocks, one on each of several servers, or exchanged by workers in turn."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import jax
import jax.numpy as jnp

from fred.base.errors import FredError
from fred.learning.models.model import Params
from fred.replay.stack import Stack
from fred.schedule.layout import Layout, Size

_ONE_LAYER = {("weights",), ("biases",)}  # a model without any other array


@dataclass(frozen=True)
class Blocks:
    """A division of a model's parameters; blocks of the same shapes form a group, and are stacked. Hashable."""

    count: int
    structure: Any  # the parameters' tree
    paths: tuple[str, ...]  # of its arrays
    shapes: tuple[tuple[int, ...], ...]
    layers: tuple[tuple[int, ...], ...] = ()  # arrays of each block, if blocks are whole layers

    @classmethod
    def of(cls, params: Params, layout: Layout) -> "Blocks":
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
        return tuple(sum(sizes[array] for array in own) / sum(sizes) for own in self.layers)

    def sizes(self, sent: Any, count: Callable[[Any], int]) -> Size:
        """Return the bytes of a message, which has the parameters' structure if it is split; `count` counts a part's bytes."""
        if not self.layers:
            return Size.cut(count(sent), self.shares)
        leaves = jax.tree.leaves(sent)
        blocks = [count({self.paths[array]: leaves[array] for array in own}) for own in self.layers]
        return Size(count(sent), tuple(blocks))

    def cut(self, params: Params) -> tuple[Stack, ...]:
        """Return a stack of blocks for each group; equal parts take consecutive numbers of every array, the last one padded."""
        if self.count == 1:
            return (Stack(params, alone=True),)
        if self.layers:
            leaves = jax.tree.leaves(params)
            return tuple(Stack({self.paths[array]: leaves[array] for array in own}, alone=True) for own in self.layers)
        return (Stack(jax.tree.map(self._parts, params), alone=False),)

    def block(self, cut: Sequence[Stack], number: int) -> Params:
        """Return one block of parameters that have been split by `cut`."""
        group, index = self.place(number)
        return cut[group].item(index)

    def join(self, blocks: Sequence[Params]) -> Params:
        """Reverse `cut`: return the parameters made of all blocks in order."""
        if self.count == 1:
            return blocks[0]
        if self.layers:
            named: dict[str, Any] = {}
            for each in blocks:
                named |= each
            return jax.tree.unflatten(self.structure, [named[path] for path in self.paths])
        arrays = zip(*map(jax.tree.leaves, blocks), strict=True)
        whole = [
            jnp.concatenate(parts)[: math.prod(shape)].reshape(shape) for parts, shape in zip(arrays, self.shapes, strict=True)
        ]
        return jax.tree.unflatten(self.structure, whole)

    def _parts(self, array: jax.Array) -> jax.Array:
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
    sizes = [sum(math.prod(shapes[array]) for array in own) for own in layers.values()]
    blocks: list[list[int]] = [[]]
    for number, (own, before) in enumerate(zip(layers.values(), accumulate(sizes, initial=0), strict=False)):
        left = len(layers) - number
        full = before >= len(blocks) * sum(sizes) / count
        if blocks[-1] and len(blocks) < count and (full or left == count - len(blocks)):
            blocks.append([])
        blocks[-1] += own
    return tuple(map(tuple, blocks))
