"""Parameters cut into blocks, and values stacked: against NumPy, sizes counted by hand, and plain lists."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fred.base.errors import FredError
from fred.replay.blocks import Blocks
from fred.replay.stack import Stack
from fred.schedule.layout import Layout

SHAPES = st.lists(st.integers(1, 5), max_size=3).map(tuple)
NAMES = st.text("abcde", min_size=1, max_size=2)
LAYERS = st.dictionaries(NAMES, SHAPES | st.dictionaries(NAMES, SHAPES, min_size=1, max_size=3), min_size=1, max_size=7)
TREES = SHAPES | LAYERS | st.lists(SHAPES, min_size=1, max_size=4)


def is_shape(tree: Any) -> bool:
    return isinstance(tree, tuple)


def drawn(shapes: Any) -> Any:
    """Arrays of these shapes, of different numbers, none of them 0."""
    numbers = iter(range(1, 1_000_000))
    return jax.tree.map(
        lambda shape: np.array([next(numbers) for _ in range(math.prod(shape))], "f").reshape(shape), shapes, is_leaf=is_shape
    )


def sizes(tree: Any) -> list[int]:
    return [np.size(leaf) for leaf in jax.tree.leaves(tree)]


def parts(blocks: Blocks, params: Any) -> list[Any]:
    cut = blocks.cut(params)
    assert len(cut) == len(blocks.groups)
    return [blocks.block(cut, number) for number in range(blocks.count)]


def layer_of_each_array(layers: dict) -> list[str]:
    """The first key on the way to each array, in the order of the arrays."""
    return [key for key in sorted(layers) for _ in sizes(drawn(layers[key]))]


def assert_same(found: Any, expected: Any) -> None:
    structures: list[Any] = [jax.tree.structure(each) for each in (found, expected)]
    assert structures[0] == structures[1]
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    assert [leaf.dtype for leaf in jax.tree.leaves(found)] == [leaf.dtype for leaf in jax.tree.leaves(expected)]


class TestEqualParts:
    @given(shapes=TREES, count=st.integers(2, 6))
    def test_they_are_joined_to_what_was_cut(self, shapes, count):
        params = drawn(shapes)
        blocks = Blocks.of(params, Layout.central(count))
        assert_same(blocks.join(parts(blocks, params)), params)

    @given(shapes=TREES, count=st.integers(2, 6))
    def test_each_is_its_run_of_every_array_and_the_last_is_padded_with_zeros(self, shapes, count):
        params = drawn(shapes)
        blocks = Blocks.of(params, Layout.central(count))
        found = [jax.tree.leaves(part) for part in parts(blocks, params)]
        for number, array in enumerate(jax.tree.leaves(params)):
            size = math.ceil(array.size / count)
            every = np.concatenate([part[number] for part in found])
            assert [part[number].shape for part in found] == [(size,)] * count
            assert every[: array.size].tolist() == array.ravel().tolist(), "every number once, in order"
            assert every[array.size :].tolist() == [0] * (size * count - array.size)

    @given(shapes=TREES, count=st.integers(2, 6))
    def test_they_are_one_group_and_share_equally(self, shapes, count):
        params = drawn(shapes)
        blocks = Blocks.of(params, Layout.central(count))
        assert blocks.groups == (count,)
        assert [blocks.place(block) for block in range(count)] == [(0, block) for block in range(count)]
        assert sum(blocks.shares) == pytest.approx(1)
        assert blocks.size == sum(sizes(params))
        for share, part in zip(blocks.shares, parts(blocks, params), strict=True):
            padding = sum(sizes(part)) - share * sum(sizes(params))
            assert -1e-6 <= padding < len(sizes(params)), "less than one number of each array"


class TestWholeLayers:
    @given(layers=LAYERS, count=st.integers(2, 5))
    def test_they_are_joined_to_what_was_cut(self, layers, count):
        assume(len(layers) >= count)
        params = drawn(layers)
        blocks = Blocks.of(params, Layout.central(count, "layers"))
        assert_same(blocks.join(parts(blocks, params)), params)

    @given(layers=LAYERS, count=st.integers(2, 5))
    def test_they_stay_whole_and_next_to_their_neighbours(self, layers, count):
        assume(len(layers) >= count)
        params = drawn(layers)
        blocks = Blocks.of(params, Layout.central(count, "layers"))
        found = parts(blocks, params)
        held = [array.ravel().tolist() for part in found for _, array in sorted(part.items())]
        assert held == [array.ravel().tolist() for array in jax.tree.leaves(params)], "every array once, in order"
        names = iter(layer_of_each_array(layers))
        of_each_block = [{next(names) for _ in part} for part in found]
        assert all(of_each_block), "no block is empty"
        assert sum(map(len, of_each_block)) == len(layers), "no layer is in two"

    @given(layers=LAYERS, count=st.integers(2, 5))
    def test_their_shares_are_their_sizes_and_none_is_much_too_large(self, layers, count):
        assume(len(layers) >= count)
        params = drawn(layers)
        blocks = Blocks.of(params, Layout.central(count, "layers"))
        assert blocks.groups == (1,) * count
        assert [blocks.place(block) for block in range(count)] == [(block, 0) for block in range(count)]
        total, largest = sum(sizes(params)), max(sum(sizes(params[name])) for name in layers)
        own = [sum(sizes(part)) for part in parts(blocks, params)]
        assert sum(blocks.shares) == pytest.approx(1)
        assert blocks.shares == pytest.approx([size / total for size in own])
        assert max(own) <= total / count + largest, "a block ends with the layer that fills it"

    @pytest.mark.parametrize(
        ("layers", "count", "expected"),
        [
            ([2, 2, 2, 2, 2, 2], 3, [[2, 2], [2, 2], [2, 2]]),
            ([9, 1, 1, 1], 2, [[9], [1, 1, 1]]),
            ([9, 1, 1, 1], 3, [[9], [1], [1, 1]]),
            ([1, 1, 1, 9], 2, [[1, 1, 1], [9]]),
            ([1, 1, 1, 9], 4, [[1], [1], [1], [9]]),
            ([5, 1], 2, [[5], [1]]),
        ],
    )
    def test_a_block_is_closed_when_it_is_full_or_the_others_need_the_layers_that_are_left(self, layers, count, expected):
        params = drawn({f"layer{number}": (size,) for number, size in enumerate(layers)})
        blocks = Blocks.of(params, Layout.central(count, "layers"))
        assert [sizes(part) for part in parts(blocks, params)] == expected

    def test_weights_and_biases_alone_are_one_of_them(self):
        linear = {"weights": (4, 3), "biases": (3,)}
        with pytest.raises(
            FredError, match=r"the model's layers \(the only one\) are fewer than 2 servers: cut it into equal parts"
        ):
            Blocks.of(drawn(linear), Layout.central(2, "layers"))
        blocks = Blocks.of(drawn({"first": linear, "second": linear}), Layout.central(2, "layers"))
        assert [sizes(part) for part in parts(blocks, drawn({"first": linear, "second": linear}))] == [[3, 12], [3, 12]]

    @given(layers=LAYERS, more=st.integers(1, 3))
    def test_fewer_of_them_than_blocks_are_refused(self, layers, more):
        count = max(2, len(layers) + more)
        with pytest.raises(FredError, match=rf"fewer than {count} servers: cut it into equal parts"):
            Blocks.of(drawn(layers), Layout.central(count, "layers"))


@given(shapes=TREES, cut=st.sampled_from(["parts", "layers"]))
def test_one_block_is_the_parameters_themselves(shapes, cut):
    params = drawn(shapes)
    blocks = Blocks.of(params, Layout.central(1, cut))
    (part,) = parts(blocks, params)
    assert part is params
    assert blocks.join([part]) is params
    assert (blocks.groups, blocks.shares, blocks.place(0)) == ((1,), (1.0,), (0, 0))


@pytest.mark.parametrize("cut", ["parts", "layers"])
def test_cut_and_join_mean_the_same_in_a_compiled_function(cut):
    params = drawn({"a": {"w": (3, 4), "b": (4,)}, "c": (2, 1, 3), "d": ()})
    blocks = Blocks.of(params, Layout.central(3, cut))
    doubled = jax.jit(lambda params: blocks.join([jax.tree.map(lambda leaf: 2 * leaf, part) for part in parts(blocks, params)]))
    assert_same(doubled(params), jax.tree.map(lambda leaf: 2 * leaf, params))


@given(shapes=TREES, other=TREES, count=st.integers(1, 4))
def test_two_cuts_are_equal_and_hash_alike_exactly_if_the_trees_shapes_are_the_same(shapes, other, count):
    layout = Layout.central(count)
    blocks = Blocks.of(drawn(shapes), layout)
    again = Blocks.of(jax.tree.map(np.negative, drawn(shapes)), layout)
    assert (blocks, hash(blocks)) == (again, hash(again))
    assert (blocks == Blocks.of(drawn(other), layout)) == (shapes == other)
    shaped = jax.tree.map(lambda leaf: leaf.shape, blocks.like)
    assert shaped == jax.tree.map(lambda leaf: leaf.shape, drawn(shapes))


# Stacks hold trees with a matrix, a count and a truth value; `tree(n)` is the n-th.


def tree(number: int) -> dict[str, Any]:
    matrix = np.array([[number, 0.5], [-number, 2 * number]], np.float32)
    return {"inner": {"matrix": matrix}, "count": np.int32(number), "truth": np.bool_(number % 2)}


def stacked(numbers: list[int]) -> Any:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *map(tree, numbers))


ITEM = jax.jit(lambda stack, index: stack.item(index))
PUT = jax.jit(lambda stack, index, item: stack.put(index, item))
NOTHING = jax.jit(lambda stack: stack.nothing())
PROGRAMS = st.lists(st.tuples(st.integers(0, 99), st.integers(-50, 50)), max_size=8)  # where to put which tree


@given(program=PROGRAMS, count=st.sampled_from([1, 2, 5]))
def test_a_stack_is_a_list_of_its_items(program, count):
    plain, stack = list(range(count)), Stack.of([tree(number) for number in range(count)])
    assert stack.alone == (count == 1)
    for place, number in program:
        place %= count
        plain[place], stack = number, PUT(stack, place, tree(number))
    for place, number in enumerate(plain):
        assert_same(ITEM(stack, place), tree(number))
        assert_same(stack.item(place), tree(number))
    for wanted in ([0], list(range(count)), list(reversed(range(count))), [count - 1, 0, count - 1] if count > 1 else [0]):
        assert_same(stack.some(np.array(wanted)), stacked([plain[place] for place in wanted]))
    assert_same(NOTHING(stack), jax.tree.map(np.zeros_like, tree(0)))


@pytest.mark.parametrize("count", [1, 3])
def test_a_stack_may_be_changed_in_a_compiled_loop(count):
    """Item i becomes item i + items (i - 1), again and again around: against a plain loop over a list."""

    @jax.jit
    def around(stack: Stack, steps: int) -> Stack:
        def body(step: jax.Array, stack: Stack) -> Stack:
            here, before = step % count, (step - 1) % count
            return stack.put(here, jax.tree.map(jnp.add, stack.item(here), stack.item(before)))

        return jax.lax.fori_loop(0, steps, body, stack)

    plain = [np.float32(number + 1) for number in range(count)]
    found = around(Stack.of([{"x": jnp.full((2, 3), each)} for each in plain]), 7)
    for step in range(7):
        plain[step % count] = plain[step % count] + plain[(step - 1) % count]
    for number, expected in enumerate(plain):
        np.testing.assert_array_equal(found.item(number)["x"], np.full((2, 3), expected))


@pytest.mark.parametrize(("items", "empty"), [(1, 0), (1, 2), (3, 0), (3, 2)])
def test_items_may_be_followed_by_empty_ones(items, empty):
    stack = Stack.of([tree(number) for number in range(1, items + 1)], empty)
    assert stack.alone == (items + empty == 1)
    for number in range(items + empty):
        expected = tree(number + 1) if number < items else jax.tree.map(np.zeros_like, tree(0))
        assert_same(stack.item(number), expected)


@pytest.mark.parametrize("count", [0, 1, 4])
def test_zeros_are_so_many_items_of_zeros(count):
    shapes = jax.eval_shape(lambda: jax.tree.map(jnp.asarray, tree(3)))
    stack = Stack.zeros(shapes, count)
    nothing = jax.tree.map(np.zeros_like, tree(0))
    assert stack.alone == (count == 1)
    for number in range(count):
        assert_same(stack.item(number), nothing)
    assert_same(stack.nothing(), nothing)
    axes = () if count == 1 else (count,)  # a single one has no axis for it
    assert jax.tree.map(np.shape, stack.values) == jax.tree.map(lambda leaf: (*axes, *leaf.shape), nothing)


@pytest.mark.parametrize("count", [1, 2])
def test_a_stack_given_away_leaves_what_it_was_made_of(count):
    items = [{"x": jnp.arange(5.0) + number} for number in range(count)]
    stack = Stack.of(items)
    jax.jit(lambda stack: stack.put(0, {"x": stack.item(0)["x"] + 1}), donate_argnums=0)(stack)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(stack.values)), "it was given away"
    for number, item in enumerate(items):
        assert item["x"].tolist() == [number + each for each in range(5)]
