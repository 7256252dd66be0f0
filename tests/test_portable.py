"""Products, convolutions and sums are correct, and their bits do not depend on the program around them."""

import itertools
import random
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from fred.components import registry
from fred.learning.data.images import Digits
from fred.learning.data.language import Bigrams
from fred.learning.loss import CrossEntropy, Loss, initial_params, on_device
from fred.learning.models.built_in_models import Transformer
from fred.portable import barriers, products
from tests import users
from tests.worlds import mostly_slow

sizes = st.sampled_from([0, 1, 2, 3, 5, 8, 9, 17, 40])


def numbers(seed: int, *shape: int, kind: str = "float32") -> np.ndarray:
    draw = np.random.default_rng(seed)
    values = draw.normal(size=shape) + (1j * draw.normal(size=shape) if kind == "complex64" else 0)
    return (10 * values).astype(kind) if kind == "int32" else values.astype(kind)


@given(
    batch=st.lists(sizes, max_size=2),
    contracted=st.lists(sizes, max_size=2),
    left=st.lists(sizes, max_size=2),
    right=st.lists(sizes, max_size=1),
    kind=st.sampled_from(["float32", "float32", "bfloat16", "complex64", "int32"]),
    orders=st.randoms(use_true_random=False),
)
def test_products_of_any_axes_are_what_numpy_says(batch, contracted, left, right, kind, orders):
    names = iter("abcdefghij")
    b, k, m, n = ([next(names) for _ in part] for part in (batch, contracted, left, right))
    length = dict(zip((*b, *k, *m, *n), (*batch, *contracted, *left, *right), strict=True))
    left_axes, right_axes = orders.sample([*b, *k, *m], len(b + k + m)), orders.sample([*b, *k, *n], len(b + k + n))
    sample_kind = "float32" if kind == "bfloat16" else kind
    shapes = ([length[name] for name in order] for order in (left_axes, right_axes))
    x, y = (jnp.asarray(numbers(seed, *shape, kind=sample_kind)).astype(kind) for seed, shape in enumerate(shapes))
    axes = lambda order, names: tuple(order.index(name) for name in names)  # noqa: E731
    dimensions = ((axes(left_axes, k), axes(right_axes, k)), (axes(left_axes, b), axes(right_axes, b)))
    product = jax.jit(lambda x, y: lax.dot_general(x, y, dimensions))(x, y)
    wide = {"complex64": "complex128", "int32": "int64"}.get(kind, "float64")
    formula = f"{''.join(left_axes)},{''.join(right_axes)}->{''.join([*b, *(name for name in left_axes if name in m), *n])}"
    expected = np.einsum(formula, np.asarray(x).astype(wide), np.asarray(y).astype(wide))
    assert (product.dtype, product.shape) == (x.dtype, expected.shape)
    tolerance = {"int32": 0.0, "bfloat16": 0.05}.get(kind, 1e-4)
    np.testing.assert_allclose(np.asarray(product).astype(wide), expected, rtol=tolerance, atol=10 * tolerance)


NARROW = [  # left, right, result
    *(("int8", "int8", "int32"), ("bfloat16", "bfloat16", "float32"), ("float16", "float16", "float16")),
    *(("uint8", "uint8", "uint32"), ("int8", "float32", "float32"), ("bfloat16", "float32", "float32")),
]


@pytest.mark.parametrize(("left", "right", "result"), mostly_slow(NARROW, NARROW[:3]))
def test_narrow_numbers_are_multiplied_as_what_the_result_is(left, right, result):
    x, y = (jnp.asarray(np.abs(100 * numbers(n, 9, 40)) % 100).astype(kind) for n, kind in ((1, left), (2, right)))
    product = jax.jit(lambda x, y: lax.dot_general(x, y, (((1,), (1,)), ((), ())), preferred_element_type=result))(x, y)
    image, kernel = x.reshape(1, 1, 9, 40), y[:3, :4].reshape(1, 1, 3, 4).astype(left)
    convolve = lambda x, y: lax.conv_general_dilated(x, y, (1, 1), "VALID", preferred_element_type=result)  # noqa: E731
    convolution = jax.jit(convolve)(image, kernel)
    assert (product.dtype, convolution.dtype) == (result, result)
    left_values, right_values, pixels, window = (
        np.asarray(operand.astype("float32"), float) for operand in (x, y, image, kernel)
    )
    tolerance = 1e-3 if result == "float16" else 1e-5
    with np.errstate(over="ignore"):
        expected = (
            (left_values @ right_values.T).astype(result),
            convolve_directly(pixels, window, (1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1), 1, 1),
        )
    np.testing.assert_allclose(np.asarray(product, float), expected[0].astype(float), rtol=tolerance)
    np.testing.assert_allclose(np.asarray(convolution, float), expected[1], rtol=tolerance)


LONG = [  # [m, k] x [k, n]: with few rows and many, in one strip of columns and several, the last of one column
    *((2, 5000, 7), (8, 784, 129), (64, 1700, 33), (8, 784, 200), (17, 600, 700)),
    *((50, 1100, 65), (61, 784, 200), (81, 4100, 7), (200, 2100, 9)),
]


def multiply_in_order(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """A product by fused multiply-add, one after the other (rounded twice here, from double precision: last bits may differ)."""
    total = np.zeros((left.shape[0], right.shape[1]), np.float32)
    for column, row in zip(left.T.astype(float), right.astype(float), strict=True):
        total = (np.outer(column, row) + total).astype(np.float32)
    return total


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("m", "k", "n"), mostly_slow(LONG, LONG[:3]))
def test_long_sums_are_added_up_in_the_published_parts_also_where_the_kernel_knows_none(m, k, n, transposed, monkeypatch):
    """The kernel of arm64 knows none."""

    def product() -> Any:
        return jax.jit(lambda x, y: lax.dot_general(x, y, (((1,), (int(transposed),)), ((), ()))))

    left, right = numbers(1, m, k), numbers(2, k, n)
    strips = products.parts(m, k, n, transposed)
    assert [column for strip, _ in strips for column in range(n)[strip]] == list(range(n))
    expected = np.zeros((m, n), np.float32)
    for strip, sums in strips:
        for part in sums:
            expected[:, strip] += multiply_in_order(left[:, part], right[part, strip])
    operands = left, right.T.copy() if transposed else right
    usual = product()(*operands)
    assert (usual == expected).mean() > 0.999
    assert (usual == multiply_in_order(left, right)).mean() < 0.9  # the parts are no detail
    monkeypatch.setattr(products, "AS_ON_X86", False)
    jax.clear_caches()
    unbatched = product()
    assert unbatched.lower(*operands).as_text().count("stablehlo.dot_general") == sum(len(sums) for _, sums in strips) > 1
    np.testing.assert_array_equal(unbatched(*operands), usual)


def convolve_directly(image, kernel, strides, padding, lhs_dilation, rhs_dilation, groups, batches) -> np.ndarray:
    """Straight from the definition: image [batch, features, space...], kernel [outputs, features / groups, window...]."""
    rank = image.ndim - 2
    for axis in range(rank):
        length = max(0, (image.shape[2 + axis] - 1) * lhs_dilation[axis] + 1)
        spread = np.zeros((*image.shape[: 2 + axis], length, *image.shape[3 + axis :]))
        spread[(slice(None),) * (2 + axis) + (slice(None, None, lhs_dilation[axis]),)] = image
        image = spread
    image = np.pad(image, [(0, 0), (0, 0), *padding])
    reach = [(kernel.shape[2 + i] - 1) * rhs_dilation[i] + 1 for i in range(rank)]
    places = [max(0, (image.shape[2 + i] - reach[i]) // strides[i] + 1) for i in range(rank)]
    count, outputs = image.shape[0] // batches, kernel.shape[0]
    result = np.zeros((count, outputs, *places))
    for output, place in itertools.product(range(outputs), itertools.product(*map(range, places))):
        corner = [slice(p * s, p * s + offset, d) for p, s, offset, d in zip(place, strides, reach, rhs_dilation, strict=True)]
        rows = slice(output * batches // outputs * count, (output * batches // outputs + 1) * count)
        channels = slice(output * groups // outputs * kernel.shape[1], (output * groups // outputs + 1) * kernel.shape[1])
        at: tuple = (slice(None), output, *place)
        result[at] = (image[(rows, channels, *corner)] * kernel[output]).sum(tuple(range(1, 2 + rank)))
    return result


@pytest.mark.parametrize("seed", mostly_slow(range(10), [0, 5]))
def test_convolutions_of_every_kind_follow_their_definition(seed):
    draw = random.Random(seed)
    rank, (features, batches) = draw.randint(1, 2), draw.choice([(1, 1), (1, 1), (2, 1), (1, 2)])
    several = lambda low, high: tuple(draw.randint(low, high) for _ in range(rank))  # noqa: E731
    image = numbers(1, 2 * batches, 2 * features, *several(4, 7))
    kernel = numbers(2, 2 * features * batches, 2, *several(1, 4))
    strides, padding = several(1, 2), tuple(zip(several(0, 2), several(0, 2), strict=True))
    lhs_dilation, rhs_dilation = several(1, 2), several(1, 2)
    orders = [draw.sample(range(rank + 2), rank + 2) for _ in range(3)]

    def convolution(x, y):
        numbers = lax.ConvDimensionNumbers(*(tuple(np.argsort(order)) for order in orders))
        options: dict[str, Any] = {"feature_group_count": features, "batch_group_count": batches, "dimension_numbers": numbers}
        return lax.conv_general_dilated(x, y, strides, padding, lhs_dilation, rhs_dilation, **options)

    x, y = image.transpose(orders[0]), kernel.transpose(orders[1])
    output = np.asarray(jax.jit(convolution)(x, y))
    expected = convolve_directly(image, kernel, strides, padding, lhs_dilation, rhs_dilation, features, batches)
    np.testing.assert_allclose(output, expected.transpose(orders[2]), atol=1e-4)
    if output.size:  # it is linear in each: a gradient times a direction is the value in that direction
        weights, along_x, along_y = numbers(3, *output.shape), numbers(4, *x.shape), numbers(5, *y.shape)
        by_x, by_y = jax.jit(jax.grad(lambda x, y: (weights * convolution(x, y)).sum(), (0, 1)))(x, y)
        assert np.vdot(by_x, along_x) == pytest.approx(np.vdot(weights, convolution(along_x, y)), abs=1e-2)
        assert np.vdot(by_y, along_y) == pytest.approx(np.vdot(weights, convolution(x, along_y)), abs=1e-2)


@pytest.mark.parametrize("shape", [(9,), (784, 20), (3, 4, 5), (0, 3)], ids=str)
def test_sums_and_products_along_axes(shape):
    values = numbers(0, *shape) / 10 + 1
    choices = [axes for number in range(1, 1 + len(shape)) for axes in itertools.combinations(range(len(shape)), number)]
    reduced = jax.jit(lambda x: [(x.sum(axes), x.prod(axes)) for axes in choices])(values)
    for axes, (total, product) in zip(choices, reduced, strict=True):
        np.testing.assert_allclose(total, values.sum(axes, dtype=float), rtol=1e-5)
        np.testing.assert_allclose(product, values.prod(axes, dtype=float), rtol=1e-3, atol=1e-30)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_sums_of_sliding_windows(padding):
    values = numbers(0, 9, 8)
    sums = jax.jit(lambda x: lax.reduce_window(x, 0.0, lax.add, (3, 2), (2, 3), padding, window_dilation=(1, 2)))(values)
    padded = np.pad(values, ((1, 1), (0, 1)) if padding == "SAME" else 0)
    rows, columns = range(0, padded.shape[0] - 2, 2), range(0, padded.shape[1] - 2, 3)
    expected = [[padded[i : i + 3, j : j + 3 : 2].sum() for j in columns] for i in rows]
    np.testing.assert_allclose(sums, expected, rtol=1e-5, atol=1e-5)


REDUCTIONS = {
    "squares": lambda x: (x * x).sum(),
    "rows": lambda x: (x * x).sum(-1),
    "columns": lambda x: x.mean(0),
    "softmax": lambda x: jax.nn.logsumexp(x, axis=-1),
    "vector": lambda x: x[0] @ x.T,
    "matrix": lambda x: x.T @ jnp.tanh(x),
}
REDUCED = list(itertools.product(REDUCTIONS, [(9, 23), (100, 50), (1, 7)]))


@pytest.mark.parametrize(("name", "shape"), mostly_slow(REDUCED, [("matrix", (9, 23))]))
def test_bits_do_not_depend_on_what_is_computed_around(name, shape):
    """Alone, after an elementwise operation, on a slice, in a loop, and beside something else of the same operand."""
    f, x, y = REDUCTIONS[name], numbers(1, *shape), numbers(2, *shape)
    product = jax.jit(jnp.multiply)(x, y)
    several = jnp.stack([product, product + 1])
    reference = jax.jit(f)(product)
    loop = jax.jit(lambda several, n: lax.fori_loop(0, n, lambda i, _: f(several[i]), jnp.zeros_like(reference)))
    elsewhere = {
        "fused": jax.jit(lambda x, y: f(x * y))(x, y),
        "sliced": jax.jit(lambda several, i: f(several[i]))(several, 0),
        "looped": loop(several, 1),
        "alongside": jax.jit(lambda x: (x / jnp.sqrt((x * x).sum()), f(x)))(product)[1],
    }
    for where, value in elsewhere.items():
        np.testing.assert_array_equal(value, reference, err_msg=where)


MODELS = [
    *(name for name in registry.REGISTRY["model"] if name != "quadratic"),  # which makes no products
    *(f"tests.users:{name}" for name in ("PlainConvolution", "Attention", "Recurrent")),
]
BIGRAMS = Bigrams(vocabulary=10, context=16, examples=64, evaluation=1)
ESCAPES = [(name, batch) for name in MODELS for batch in ((1, 2, 33) if name == "mlp" else (33,))]


@pytest.mark.parametrize(("name", "batch_size"), mostly_slow(ESCAPES, [("mlp", 33)]))
def test_no_product_and_no_sum_escapes(name, batch_size):
    """Every product in the compiled program of a gradient is the portable kernel's, and XLA computes no sums."""
    cls = getattr(users, name.split(":")[1]) if ":" in name else registry.lookup("model", name)
    data = (BIGRAMS if name in ("transformer", "token-scores") else Digits()).load(0)  # which score every token
    loss = Loss(cls.example(), CrossEntropy())
    params, examples = initial_params(loss.model, data, 0), on_device(data.train)
    lowered = jax.jit(loss.gradient).lower(params, examples, jnp.zeros(batch_size, jnp.int32))
    text = lowered.as_text()
    assert "stablehlo.convolution" not in text
    assert "applies stablehlo.add" not in text
    compiled = lowered.compile().as_text()
    assert compiled is not None
    bodies = dict(re.findall(r"^%?(\S+) \(.*?\{\n(.*?)^\}", compiled, re.MULTILINE | re.DOTALL))
    fused = [bodies[name] for name in re.findall(r'calls=%?(\S+?),.*"kind":"__ynn_fusion"', compiled)]
    assert compiled.count(" dot(") == sum(body.count(" dot(") for body in fused) > 0
    assert all(" dot(" in body or "reduce_max" in body for body in fused)  # a maximum is exact in any order


def count_instructions(gradient: Any, *operands: Any) -> int:
    """Return how many operations the compiled gradient has, those inside of fused loops included."""
    return (jax.jit(gradient).lower(*operands).compile().as_text() or "").count(" = f32[")


def test_a_gradient_computes_each_layer_once():
    tokens = jnp.zeros((8, 64), jnp.int32)

    def size(layers: int) -> int:
        model = Transformer(layers=layers, width=32)
        params = model.init(jax.random.key(0), (64,), 8)
        return count_instructions(jax.grad(lambda params: jnp.square(model.apply(params, tokens)).mean()), params)

    two, four, six = map(size, (2, 4, 6))
    assert six - four <= 1.02 * (four - two)


def test_a_transformer_has_forward_derivatives():
    model, tokens = Transformer(layers=1, width=8, heads=2), jnp.zeros((2, 4), jnp.int32)
    params = model.init(jax.random.key(0), (4,), 5)
    direction = jax.tree.map(jnp.ones_like, params)

    def loss(params: Any) -> jax.Array:
        return jnp.square(model.apply(params, tokens) - 1).mean()

    _, forward = jax.jvp(loss, (params,), (direction,))
    backward = sum(leaf.sum() for leaf in jax.tree.leaves(jax.grad(loss)(params)))
    assert float(forward) == pytest.approx(float(backward), rel=1e-4)


def gradient_of_a_tower(params: list[tuple[jax.Array, jax.Array]], inputs: jax.Array) -> Any:
    """Return the gradient of layers as people write them: a normalisation, two products, GELU, a residual connection."""

    def loss(params: Any) -> jax.Array:
        x = inputs
        for widening, narrowing in params:
            centred = x - x.mean(-1, keepdims=True)
            normal = centred * lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5)
            x = x + jax.nn.gelu(normal @ widening) @ narrowing
        return jnp.square(x).mean()

    return jax.grad(loss)(params)


def test_a_gradient_apart_has_the_bits_of_one_that_is_fused(monkeypatch):
    operands = [(numbers(i, 64, 256), numbers(i, 256, 64)) for i in range(2)], numbers(9, 4, 32, 64)
    apart = jax.jit(gradient_of_a_tower)(*operands)
    monkeypatch.setattr(barriers, "_LARGE_OPERAND", np.inf)
    jax.clear_caches()
    fused = jax.jit(gradient_of_a_tower)(*operands)
    for one, other in zip(jax.tree.leaves(apart), jax.tree.leaves(fused), strict=True):
        np.testing.assert_array_equal(one, other)
