"""Split functions keep their values, store as little as possible, and have the same bits wherever their halves are compiled."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fred.learning.loss import Loss, default_loss
from fred.learning.models.built_in_models import CNN, MLP
from fred.learning.models.model import Model
from fred.replay.compact import Split, split_function
from tests import users

STEPS, EXAMPLES, SHAPE = 3, 40, (4, 4, 1)


def shaped(*shape: int, kind: str = "float32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, kind)


def sizes_of(parts: Split) -> list[int]:
    return sorted(array.size for array in parts.stored)


def words(parts: Split) -> int:
    return sum(-(-array.size * array.dtype.itemsize // 4) for array in parts.stored)


def split_gradient(model: Model, shape: tuple[int, ...], batch: int, classifies: bool = True) -> Split:
    params = jax.eval_shape(lambda: model.init(jax.random.key(0), shape, 10))
    answers = shaped(EXAMPLES, kind="int32") if classifies else shaped(EXAMPLES, 10)
    loss = Loss(model, default_loss(classifies))
    first = params, shaped(batch, kind="int32")
    examples = shaped(EXAMPLES, *shape), answers
    return split_function(lambda first, always, _: loss.gradient(first[0], always, first[1]), first, examples, ())


def test_gradients_keep_activations_or_the_operands_of_deltas_or_themselves():
    parts = split_gradient(MLP(hidden=(200,)), (784,), batch=8)
    # 8 indices; the hidden layer's 8 x 200 activations and as many deltas; 8 x 10 deltas of the outputs
    assert words(parts) == 8 + 2 * 8 * 200 + 8 * 10 == 3_288
    assert sizes_of(parts) == [8, 80, 1600, 1600]
    # inputs, looked up once; 32 x 10 deltas of the outputs; to make the hidden layer's of them, the second layer's 200 x 10
    # weights and which of 32 x 200 units are active, 4 to a word; in place of the activations, the second layer's gradient
    assert (
        words(split_gradient(MLP(hidden=(200,)), (784,), batch=32)) == 32 * 784 + 320 + 2_000 + 32 * 200 // 4 + 2_000 == 31_008
    )
    params = jax.eval_shape(lambda: users.Recurrent().init(jax.random.key(0), (8, 8, 1), 10))
    parts = split_gradient(users.Recurrent(), (8, 8, 1), batch=32)
    assert sizes_of(parts) == sorted(leaf.size for leaf in jax.tree.leaves(params)), "smaller than all its operands"


SMALLEST = [
    (lambda first, always, late: jnp.outer(jnp.sin(first.sum(1)), jnp.ones(50)), shaped(4, 100), [4]),  # a bottleneck
    (lambda first, always, late: jnp.cos(first) * 2, shaped(4), [4]),  # one size throughout
    (lambda first, always, late: jnp.sin(first).sum(), shaped(9, 9), [1]),  # the result is the smallest
    (lambda first, always, late: first, shaped(3), [3]),  # nothing to compute
    (lambda first, always, late: always, shaped(3), []),  # nothing to keep
    (lambda first, always, late: jnp.float32(3) + 0 * always, shaped(3), []),
    (lambda first, always, late: (first[0][:, None] * always, jnp.tile(first[1], 7)), (shaped(2), shaped(3)), [2, 3]),
]


def test_the_smallest_values_between_are_kept_and_masks_count_by_their_bytes():
    for function, shapes, expected in SMALLEST:
        parts = split_function(function, shapes, shaped(40), ())
        assert sizes_of(parts) == expected
        first = jax.tree.map(lambda leaf: jnp.arange(leaf.size, dtype=leaf.dtype).reshape(leaf.shape), shapes)
        always = jnp.arange(40.0)
        result = parts.finish(parts.begin(first, always), always, ())
        jax.tree.map(np.testing.assert_array_equal, result, function(first, always, ()))
    parts = split_function(lambda first, always, late: jnp.where(first > 0, always, 0.0), shaped(8), shaped(8), ())
    assert (parts.stored[0].dtype, words(parts)) == (bool, 2)


def diamond(narrow):
    def function(first, always, late):
        middle = first @ jnp.ones((20, 5))
        left, right = middle[:narrow], jnp.tile(middle, 3)[:narrow]
        return jnp.outer(jnp.sin(left), jnp.ones(90)), jnp.outer(jnp.cos(right), jnp.ones(90))

    return function


def twice(compute):
    def function(first, always, late):
        hidden = compute(always, first[0])
        return jnp.outer(hidden, jnp.ones(9)), jnp.outer((first[1] * jnp.tanh(hidden).sum()).sum(), jnp.ones(40))

    return function


OPERANDS = (shaped(10), shaped(100)), shaped(30, 10), ()
SPLITS: dict[str, tuple] = {  # a function, the shapes of its operands, and the sizes that are kept
    "both sides of a diamond": (diamond(2), shaped(20), (), (), [2, 2]),
    "the source of both sides": (diamond(4), shaped(20), (), (), [5]),
    "what meets a later value": (
        lambda first, _, late: (first * late).sum() + jnp.tanh(first).sum(),
        shaped(30),
        (),
        shaped(),
        [30],
    ),
    "a sum that meets it": (lambda first, _, late: first.sum() * late, shaped(30), (), shaped(), [1]),
    "no function of what is always there": (
        *(lambda first, always, _: (first * always.sum()).sum(0) * jnp.sin(always.sum()), shaped(20, 10)),
        *(shaped(1000), (), [10]),
    ),
    "indices": (lambda first, always, _: jnp.sin(always[first]), shaped(2, kind="int32"), shaped(1000, 50), (), [2]),
    "products, which are not computed twice": (twice(jnp.matmul), *OPERANDS, [1, 30]),
    "less, if that is cheap": (twice(lambda always, first: always[:, 0] * jnp.tile(first, 3)), *OPERANDS, [1, 10]),
    "sums in functions compiled apart": (
        *(jax.jit(lambda x, *_: jnp.outer(jax.jit(jnp.sum)(x), jnp.ones(30))), shaped(8), (), (), [1]),
    ),
}


@pytest.mark.parametrize(("function", "first", "always", "late", "expected"), SPLITS.values(), ids=SPLITS)
def test_what_is_kept_is(function, first, always, late, expected):
    parts = split_function(function, first, always, late)
    assert sizes_of(parts) == expected
    operands = jax.tree.map(lambda leaf: jnp.ones(leaf.shape, leaf.dtype), (first, always, late))
    result = parts.finish(parts.begin(*operands[:2]), *operands[1:])
    jax.tree.map(lambda actual, expected: np.testing.assert_allclose(actual, expected, rtol=1e-6), result, function(*operands))


def test_random_keys_may_be_kept():
    def function(first, always, late):
        key, other_key = jax.random.split(first[0])
        return jax.random.normal(key, (100,)) * first[1], other_key, first[0]

    key = jax.random.key(5)
    parts = split_function(function, (key, shaped()), (), ())
    assert words(parts) == 3
    result = jax.jit(lambda values: parts.finish(values, (), ()))(jax.jit(parts.begin)((key, 2.0), ()))
    expected = jax.jit(function)((key, 2.0), (), ())
    np.testing.assert_array_equal(result[0], expected[0])
    for actual, reference in zip(result[1:], expected[1:], strict=True):
        np.testing.assert_array_equal(jax.random.key_data(actual), jax.random.key_data(reference))


def seal(function):
    return lambda *operands: jax.lax.optimization_barrier(function(*jax.lax.optimization_barrier(operands)))


CASES = {
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
    parts = split_gradient(model, SHAPE, batch, classifies)
    begin, finish = seal(parts.begin), seal(lambda values, examples: parts.finish(values, examples, ()))

    @jax.jit
    def loops(params, indices, examples):
        values = jax.lax.map(lambda arrays: begin((params, arrays), examples), indices)
        return jax.lax.map(lambda arrays: finish(arrays, examples), values)

    in_loops = loops(params, indices, examples)
    begin, finish = jax.jit(begin), jax.jit(finish)
    separate = [finish(begin((params, rows), examples), examples) for rows in indices]
    jax.tree.map(np.testing.assert_array_equal, in_loops, jax.tree.map(lambda *leaves: np.stack(leaves), *separate))
    reference = jax.jit(Loss(model, default_loss(classifies)).gradient)(params, examples, indices[0])
    for actual, full in zip(jax.tree.leaves(separate[0]), map(np.asarray, jax.tree.leaves(reference)), strict=True):
        np.testing.assert_allclose(actual, full, rtol=1e-5, atol=1e-5 * abs(full).max())
