"""Parameters cut into blocks, and values stacked: against NumPy, sizes counted by hand, and plain lists."""

import itertools
import math
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fred.base.errors import FredError
from fred.replay.blocks import Blocks
from fred.schedule.layout import Layout

SHAPES = st.lists(st.integers(1, 5), max_size=3).map(tuple)
NAMES = st.text("abcde", min_size=1, max_size=2)
LAYERS = st.dictionaries(NAMES, SHAPES | st.dictionaries(NAMES, SHAPES, min_size=1, max_size=3), min_size=1, max_size=7)
TREES = SHAPES | LAYERS | st.lists(SHAPES, min_size=1, max_size=4)


def draw_params(shapes: Any) -> Any:
    """Arrays of these shapes, of different numbers, none of them 0."""
    numbers = itertools.count(1)
    leaves, structure = jax.tree.flatten(shapes, is_leaf=lambda tree: isinstance(tree, tuple))
    return jax.tree.unflatten(structure, [np.fromiter(numbers, "f", math.prod(shape)).reshape(shape) for shape in leaves])


def sizes(tree: Any) -> list[int]:
    return [np.size(leaf) for leaf in jax.tree.leaves(tree)]


def parts(blocks: Blocks, params: Any) -> list[Any]:
    cut = blocks.split(params)
    assert len(cut) == len(blocks.groups)
    return [blocks.block(cut, number) for number in range(blocks.count)]


def assert_same(value: Any, expected: Any) -> None:
    structures: list[Any] = [jax.tree.structure(tree) for tree in (value, expected)]
    assert structures[0] == structures[1]
    jax.tree.map(np.testing.assert_array_equal, value, expected)
    assert [leaf.dtype for leaf in jax.tree.leaves(value)] == [leaf.dtype for leaf in jax.tree.leaves(expected)]


@settings(max_examples=5)
@given(shapes=TREES, count=st.integers(2, 6))
def test_equal_parts_are_runs_of_every_array_and_the_last_is_padded_with_zeros(shapes, count):
    params = draw_params(shapes)
    blocks = Blocks.from_layout(params, Layout.central(count))
    cut = parts(blocks, params)
    assert_same(blocks.join(cut), params)
    for number, array in enumerate(jax.tree.leaves(params)):
        size, runs = math.ceil(array.size / count), [jax.tree.leaves(part)[number] for part in cut]
        assert [run.shape for run in runs] == [(size,)] * count
        every = np.concatenate(runs)
        assert every[: array.size].tolist() == array.ravel().tolist(), "every number once, in order"
        assert every[array.size :].tolist() == [0] * (size * count - array.size)
    assert blocks.groups == (count,)
    assert [blocks.place(block) for block in range(count)] == [(0, block) for block in range(count)]
    assert sum(blocks.shares) == pytest.approx(1)
    assert blocks.size == sum(sizes(params))
    for share, part in zip(blocks.shares, cut, strict=True):
        padding = sum(sizes(part)) - share * sum(sizes(params))
        assert -1e-6 <= padding < len(sizes(params)), "less than one number of each array"


@given(layers=LAYERS, count=st.integers(2, 5))
def test_layers_stay_whole_and_next_to_their_neighbours(layers, count):
    assume(len(layers) >= count)
    params = draw_params(layers)
    blocks = Blocks.from_layout(params, Layout.central(count, "layers"))
    cut = parts(blocks, params)
    assert_same(blocks.join(cut), params)
    contents = [array.ravel().tolist() for part in cut for _, array in sorted(part.items())]
    assert contents == [array.ravel().tolist() for array in jax.tree.leaves(params)], "every array once, in order"
    assert blocks.groups == (1,) * count
    assert [blocks.place(block) for block in range(count)] == [(block, 0) for block in range(count)]
    total, largest = sum(sizes(params)), max(sum(sizes(params[name])) for name in layers)
    block_sizes = [sum(sizes(part)) for part in cut]
    assert sum(blocks.shares) == pytest.approx(1)
    assert blocks.shares == pytest.approx([size / total for size in block_sizes])
    assert max(block_sizes) <= total / count + largest, "a block ends with the layer that fills it"


def test_a_block_is_closed_when_it_is_full_or_the_others_need_the_layers_that_are_left():
    for layers, expected in (
        ([2, 2, 2, 2, 2, 2], [[2, 2], [2, 2], [2, 2]]),
        ([9, 1, 1, 1], [[9], [1, 1, 1]]),
        ([9, 1, 1, 1], [[9], [1], [1, 1]]),
        ([1, 1, 1, 9], [[1, 1, 1], [9]]),
        ([1, 1, 1, 9], [[1], [1], [1], [9]]),
        ([5, 1], [[5], [1]]),
    ):
        params = draw_params({f"layer{number}": (size,) for number, size in enumerate(layers)})
        blocks = Blocks.from_layout(params, Layout.central(len(expected), "layers"))
        assert [sizes(part) for part in parts(blocks, params)] == expected


def test_fewer_layers_than_blocks_are_refused_and_weights_and_biases_are_one():
    linear = {"weights": (4, 3), "biases": (3,)}
    two = draw_params({"first": linear, "second": linear})
    message = r"the model's layers \(the only one\) are fewer than 2 servers: cut it into equal parts"
    with pytest.raises(FredError, match=message):
        Blocks.from_layout(draw_params(linear), Layout.central(2, "layers"))
    with pytest.raises(FredError, match="fewer than 3 servers: cut it into equal parts"):
        Blocks.from_layout(two, Layout.central(3, "layers"))
    assert [sizes(part) for part in parts(Blocks.from_layout(two, Layout.central(2, "layers")), two)] == [[3, 12], [3, 12]]
