"""A split function gives what it gave, keeps the least, and its halves give the same bits wherever they are compiled."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fred.learning.loss import Loss
from fred.learning.loss_functions import usual
from fred.learning.models.cnn import CNN
from fred.learning.models.mlp import MLP, SoftmaxRegression
from fred.learning.models.model import Model
from fred.replay.compact import Split, split
from tests import users

SLOTS, STEPS = 3, 5
EXAMPLES, SHAPE = 40, (4, 4, 1)


def shaped(*shape: int, kind: str = "float32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, kind)


def sizes(parts: Split) -> list[int]:
    return sorted(each.size for each in parts.kept)


def words(parts: Split) -> int:
    return sum(-(-each.size * each.dtype.itemsize // 4) for each in parts.kept)


def of_gradient(model: Model, shape: tuple[int, ...], batch: int, classifies: bool = True) -> Split:
    params = jax.eval_shape(lambda: model.init(jax.random.key(0), shape, 10))
    answers = shaped(EXAMPLES, kind="int32") if classifies else shaped(EXAMPLES, 10)
    loss = Loss(model, usual(classifies))
    first = params, shaped(batch, kind="int32")
    return split(
        lambda first, always, _: loss.gradient(first[0], always, first[1]), first, (shaped(EXAMPLES, *shape), answers), ()
    )


def test_of_a_layers_gradient_activations_deltas_and_indices_are_kept():
    parts = of_gradient(MLP(hidden=(200,)), (784,), batch=8)
    # 8 indices; the hidden layer's 8 x 200 activations and as many deltas; 8 x 10 deltas of the outputs
    assert words(parts) == 8 + 2 * 8 * 200 + 8 * 10 == 3_288
    assert sizes(parts) == [8, 80, 1600, 1600]


def test_of_a_larger_minibatchs_gradient_what_makes_its_deltas_is_kept():
    parts = of_gradient(MLP(hidden=(200,)), (784,), batch=32)
    # so many inputs are looked up once; 32 x 10 deltas of the outputs; to make the hidden layer's of them, the second layer's
    # 200 x 10 weights and which of 32 x 200 units are active, 4 to a word; in place of the activations, the second layer's
    # gradient, 200 x 10
    assert words(parts) == 32 * 784 + 320 + 2_000 + 32 * 200 // 4 + 2_000 == 31_008


def test_a_gradient_smaller_than_all_it_is_made_of_is_kept_itself():
    params = jax.eval_shape(lambda: users.Recurrent().init(jax.random.key(0), (8, 8, 1), 10))
    assert sizes(of_gradient(users.Recurrent(), (8, 8, 1), batch=32)) == sorted(leaf.size for leaf in jax.tree.leaves(params))


@pytest.mark.parametrize(
    ("function", "first", "expected"),
    [
        (lambda first, always, later: jnp.outer(jnp.sin(first.sum(1)), jnp.ones(50)), shaped(4, 100), [4]),  # a bottleneck
        (lambda first, always, later: jnp.cos(first) * 2, shaped(4), [4]),  # one size throughout
        (lambda first, always, later: jnp.sin(first).sum(), shaped(9, 9), [1]),  # the result is the smallest
        (lambda first, always, later: first, shaped(3), [3]),  # nothing to compute
        (lambda first, always, later: always, shaped(3), []),  # nothing to keep
        (lambda first, always, later: jnp.float32(3) + 0 * always, shaped(3), []),
        (
            lambda first, always, later: (first[0][:, None] * always, jnp.tile(first[1], 7)),
            (shaped(2), shaped(3)),
            [2, 3],
        ),
    ],
)
def test_the_smallest_values_between_are_kept(function, first, expected):
    parts = split(function, first, shaped(40), ())
    assert sizes(parts) == expected
    first = jax.tree.map(lambda leaf: jnp.arange(leaf.size, dtype=leaf.dtype).reshape(leaf.shape), first)
    always = jnp.arange(40.0)
    found, whole = parts.finish(parts.begin(first, always), always, ()), function(first, always, ())
    jax.tree.map(np.testing.assert_array_equal, found, whole)


@pytest.mark.parametrize(("narrow", "expected"), [(2, [2, 2]), (4, [5])])
def test_both_sides_of_a_diamond_are_kept_or_what_they_come_from_whichever_is_less(narrow, expected):
    def diamond(first, always, later):
        middle = first @ jnp.ones((20, 5))
        left, right = middle[:narrow], jnp.tile(middle, 3)[:narrow]
        return jnp.outer(jnp.sin(left), jnp.ones(90)), jnp.outer(jnp.cos(right), jnp.ones(90))

    assert sizes(split(diamond, shaped(20), (), ())) == expected


def test_what_comes_later_meets_values_as_they_were_kept():
    def function(first, always, later):
        return (first * later).sum() + jnp.tanh(first).sum()

    parts = split(function, shaped(30), (), shaped())
    assert sizes(parts) == [30]
    first, later = jnp.arange(30.0), jnp.float32(3)
    np.testing.assert_allclose(parts.finish(parts.begin(first, ()), (), later), function(first, (), later), rtol=1e-6)
    parts = split(lambda first, always, later: first.sum() * later, shaped(30), (), shaped())
    assert sizes(parts) == [1]


def test_what_follows_from_what_can_always_be_read_is_never_kept():
    def function(first, always, later):
        small = always.sum()
        return (first * small).sum(0) * jnp.sin(small)

    parts = split(function, shaped(20, 10), shaped(1000), ())
    assert sizes(parts) == [10]
    gathered = split(lambda first, always, later: jnp.sin(always[first]), shaped(2, kind="int32"), shaped(1000, 50), ())
    assert sizes(gathered) == [2]


@pytest.mark.parametrize(
    ("compute", "expected"),
    [(jnp.matmul, [1, 30]), (lambda always, first: always[:, 0] * jnp.tile(first, 3), [1, 10])],
    ids=["costly", "cheap"],
)
def test_products_are_not_computed_twice_even_if_less_would_be_kept(compute, expected):
    def function(first, always, later):
        hidden = compute(always, first[0])
        scale = (first[1] * jnp.tanh(hidden).sum()).sum()
        return jnp.outer(hidden, jnp.ones(9)), jnp.outer(scale, jnp.ones(40))

    assert sizes(split(function, (shaped(10), shaped(100)), shaped(30, 10), ())) == expected


def test_functions_compiled_apart_are_cut_through():
    inner = jax.jit(lambda x: jnp.outer(jax.jit(jnp.sum)(x), jnp.ones(30)))
    assert sizes(split(lambda first, always, later: inner(first), shaped(8), (), ())) == [1]


def test_masks_count_by_their_bytes():
    def function(first, always, later):
        return jnp.where(first > 0, always, 0.0)

    parts = split(function, shaped(8), shaped(8), ())
    assert (parts.kept[0].dtype, words(parts)) == (bool, 2)


def test_random_keys_may_be_kept():
    def function(first, always, later):
        one, two = jax.random.split(first[0])
        return jax.random.normal(one, (100,)) * first[1], two, first[0]

    key = jax.random.key(5)
    parts = split(function, (key, shaped()), (), ())
    assert words(parts) == 3
    found = jax.jit(lambda values: parts.finish(values, (), ()))(jax.jit(parts.begin)((key, 2.0), ()))
    whole = jax.jit(function)((key, 2.0), (), ())
    np.testing.assert_array_equal(found[0], whole[0])
    for one, other in zip(found[1:], whole[1:], strict=True):
        np.testing.assert_array_equal(jax.random.key_data(one), jax.random.key_data(other))


def sealed(function):
    return lambda *operands: jax.lax.optimization_barrier(function(*jax.lax.optimization_barrier(operands)))


CASES = {
    "softmax": (SoftmaxRegression(), 32, True),
    "one hidden layer": (MLP(hidden=(20,)), 1, True),
    "two, for values": (MLP(hidden=(20, 12), activation="tanh"), 5, False),
    "convolutions": (CNN(channels=(4,), hidden=8), 4, True),
    "attention": (users.Attention(), 1, True),
    "recurrent": (users.Recurrent(), 1, True),
}


@pytest.mark.slow
@pytest.mark.parametrize(("model", "batch", "classifies"), CASES.values(), ids=CASES)
def test_the_halves_give_the_same_bits_compiled_apart_and_in_loops(model, batch, classifies):
    draw = np.random.default_rng(0)
    inputs = draw.normal(size=(EXAMPLES, *SHAPE)).astype("f")
    examples = inputs, draw.integers(0, 10, EXAMPLES, "i") if classifies else draw.normal(size=(EXAMPLES, 10)).astype("f")
    indices = draw.integers(0, EXAMPLES, (STEPS, batch), "i")
    shapes = jax.eval_shape(lambda: model.init(jax.random.key(0), SHAPE, 10))
    params = jax.tree.map(lambda leaf: 0.3 * draw.normal(size=leaf.shape).astype("f"), shapes)
    parts = of_gradient(model, SHAPE, batch, classifies)
    begin, finish = sealed(parts.begin), sealed(lambda values, examples: parts.finish(values, examples, ()))
    update = sealed(lambda params, grads: jax.tree.map(lambda leaf, grad: leaf - 0.1 * grad, params, grads))

    def apply(step, carry, examples):
        params, store = carry
        row = [jax.lax.dynamic_index_in_dim(each, step % SLOTS, keepdims=False) for each in store]
        return update(params, finish(row, examples)), store

    def compute(step, carry, indices, examples):
        params, store = carry
        values = begin((params, indices[step]), examples)
        put = jax.lax.dynamic_update_index_in_dim
        return params, [put(each, value, step % SLOTS, 0) for each, value in zip(store, values, strict=True)]

    @jax.jit
    def loops(params, indices, examples, offsets):
        def phase(i, carry):
            low, high = offsets[i], offsets[i + 1]
            first = jnp.clip(SLOTS, low, high)
            carry = jax.lax.fori_loop(first, high, lambda step, carry: apply(step, carry, examples), carry)
            return jax.lax.fori_loop(low, high, lambda step, carry: compute(step, carry, indices, examples), carry)

        store = [jnp.zeros((SLOTS, *each.shape), each.dtype) for each in parts.kept]
        return jax.lax.fori_loop(0, len(offsets) - 1, phase, (params, store))[0]

    found = loops(params, indices, examples, np.arange(STEPS + 1))
    begin, finish, update = map(jax.jit, (begin, finish, update))
    store: dict[int, Any] = {}
    expected = params
    for step in range(STEPS):
        if step >= SLOTS:
            expected = update(expected, finish(store[step % SLOTS], examples))
        store[step % SLOTS] = begin((expected, indices[step]), examples)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    whole = jax.jit(Loss(model, usual(classifies)).gradient)(params, examples, indices[0])
    both = finish(begin((params, indices[0]), examples), examples)
    for one, other in zip(jax.tree.leaves(both), map(np.asarray, jax.tree.leaves(whole)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5 * abs(other).max())
