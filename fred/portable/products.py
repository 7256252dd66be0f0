"""Matrix products by the one kernel whose order of additions depends on shapes alone; and convolutions, as such products.

The kernel is YNNPACK's "consistent arithmetic", which environment.py turns on. XLA uses it only for products of matrices stored
in rows, so all products are turned into those here.

Long products: if the rows of the right side exceed an assumed cache size, YNNPACK's x86-64 kernels sum up one part at a time.
Then they add the parts. The length of a part follows from the shape, and from the number of rows and columns that the kernel
takes at once. That number differs between the AVX2 and AVX-512 kernels. The arm64 kernel sums up everything in one row. This
module makes the other kernels do what the AVX-512 kernel does. (XNNPACK: ynnpack/subgraph/dot.cc, kernels/dot/schedule.cc;
tests/test_portable.py compares with YNNPACK's results.)

Convolutions of every kind are products of patches and kernels. `lax.conv` inside a compiled loop is many times slower on the
CPU than outside it, and its bits change with the CPU.
"""

import functools
import itertools
import math
import operator
import platform
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.extend.core.primitives import conv_general_dilated_p, dot_general_p
from jax.extend.mlir.dialects import stablehlo
from jax.interpreters import mlir

from fred.portable.barriers import apart
from fred.portable.sums import places_of, strided

_SMALLEST = 8  # XLA does not use YNNPACK if all sides are below this
_CACHE = 1 << 15  # numbers
_STRIP = 64  # most columns in a strip
_COPIED_ROWS = 61  # rows of the left side from which AVX2's kernel, too, copies strips of the right side
AS_ON_X86 = platform.machine() in ("x86_64", "AMD64")


def _dot_general(lhs: jax.Array, rhs: jax.Array, *, dimension_numbers: Any, preferred_element_type: Any, **_: Any) -> jax.Array:
    """Compute `lax.dot_general` as products of matrices."""
    kind = np.dtype(preferred_element_type or jnp.result_type(lhs, rhs))
    (contracted, right_contracted), (batch, right_batch) = dimension_numbers
    left, right = _Operand(lhs, batch, contracted), _Operand(rhs, right_batch, right_contracted)
    shape = (*left.sizes(left.batch), *left.sizes(left.free), *right.sizes(right.free))
    if left.lies_in_columns and right.lies_in_columns and not left.is_cheap_to_turn(right):
        # As it is, `lhs` would be transposed, and JAX would transpose the product, which is the gradient of a weight. The other
        # way round, `rhs` is transposed, and JAX's transposition of the product cancels the one here.
        numbers = (right_contracted, contracted), (right_batch, batch)
        return _products(rhs, lhs, numbers=numbers, kind=kind).swapaxes(-1, -2).reshape(shape)
    return _products(lhs, rhs, numbers=dimension_numbers, kind=kind).reshape(shape)


@apart
def _products(lhs: jax.Array, rhs: jax.Array, *, numbers: Any, kind: Any) -> jax.Array:
    """Return products of matrices, [(batch,) rows, sums] and [(batch,) sums, columns], of this kind."""
    (contracted, right_contracted), (batch, right_batch) = numbers
    lhs, rhs = widened(lhs, kind), widened(rhs, kind)
    left, right = _Operand(lhs, batch, contracted), _Operand(rhs, right_batch, right_contracted)
    transposed = right.lies_in_rows
    return _product(left.in_rows(), right.in_rows() if transposed else right.in_columns(), transposed).astype(kind)


def widened(array: jax.Array, kind: Any) -> jax.Array:
    """Convert to the type of the arithmetic: that of the result, with floats in at least single precision."""
    narrow = jnp.issubdtype(kind, jnp.floating) and jnp.finfo(kind).bits < 32
    return array.astype(jnp.float32 if narrow else kind)


class _Operand:
    """An operand of a product, with batch axes, free axes, and axes that are summed over."""

    def __init__(self, array: jax.Array, batch: Sequence[int], contracted: Sequence[int]):
        self.array, self.batch, self.contracted = array, tuple(batch), tuple(contracted)
        self.free = tuple(axis for axis in range(array.ndim) if axis not in (*batch, *contracted))
        axes = tuple(range(array.ndim))
        self.lies_in_rows = (*self.batch, *self.free, *self.contracted) == axes
        self.lies_in_columns = (*self.batch, *self.contracted, *self.free) == axes and not self.lies_in_rows

    def sizes(self, axes: Sequence[int]) -> tuple[int, ...]:
        """Return the lengths of these axes."""
        return tuple(self.array.shape[axis] for axis in axes)

    def is_cheap_to_turn(self, other: "_Operand") -> bool:
        """Return True if transposing it, and the product as JAX then does, moves fewer numbers than transposing the other."""
        product_size = math.prod((*self.sizes((*self.batch, *self.free)), *other.sizes(other.free)))
        return self.array.size + product_size < other.array.size

    def in_rows(self) -> jax.Array:
        """Return the operand as a matrix [(batch,) free, summed], with a batch axis if there is one."""
        return self._matrix(self.free, self.contracted)

    def in_columns(self) -> jax.Array:
        """Return the operand as a matrix [(batch,) summed, free], with a batch axis if there is one."""
        return self._matrix(self.contracted, self.free)

    def _matrix(self, first: tuple[int, ...], last: tuple[int, ...]) -> jax.Array:
        batch = (math.prod(self.sizes(self.batch)),) if self.batch else ()
        array = self.array.transpose((*self.batch, *first, *last))
        return array.reshape((*batch, math.prod(self.sizes(first)), math.prod(self.sizes(last))))


def _product(left: jax.Array, right: jax.Array, transposed: bool) -> jax.Array:
    """Return [..., m, k] x [..., k, n], or x [..., n, k] if `transposed`."""
    if jnp.issubdtype(left.dtype, jnp.complexfloating):
        real = _product(left.real, right.real, transposed) - _product(left.imag, right.imag, transposed)
        return lax.complex(real, _product(left.real, right.imag, transposed) + _product(left.imag, right.real, transposed))
    m, k, n = *left.shape[-2:], right.shape[-2 if transposed else -1]
    if not left.size or not right.size:
        return jnp.zeros((*left.shape[:-2], m, n), left.dtype)
    if n == 1 and m > 1 and k > 1:  # as the product of one row, which the next case handles
        vector = right if transposed else right.swapaxes(-1, -2)
        return _product(vector, left, transposed=True).swapaxes(-1, -2)
    if m == 1 and k > 1:
        # XLA computes products with vectors itself, in an order that depends on the code around them. A second row, and a
        # second column, make this one of matrices.
        return _product(
            jnp.concatenate([left, jnp.zeros_like(left)], -2),
            right if n > 1 else jnp.concatenate([right, right], -2 if transposed else -1),
            transposed,
        )[..., :1, :n]
    if AS_ON_X86:
        rows, columns = _agreeing_sides(m, k, n, transposed)
        left, right = _lengthened(left, -2, rows), _lengthened(right, -2 if transposed else -1, columns)
        product = _in_one_row(left, right, transposed)
        return product if product.shape[-2:] == (m, n) else product[..., :m, :n]
    return _in_parts(left, right, transposed)


def _in_parts(left: jax.Array, right: jax.Array, transposed: bool) -> jax.Array:
    """Sum over each part of k, and then over the parts."""
    m, k, n = *left.shape[-2:], right.shape[-2 if transposed else -1]
    strip_products = []
    for strip, k_parts in parts(m, k, n, transposed):
        blocks = [right[..., strip, part] if transposed else right[..., part, strip] for part in k_parts]
        products = [_in_one_row(left[..., part], block, transposed) for part, block in zip(k_parts, blocks, strict=True)]
        strip_products.append(functools.reduce(operator.add, products))
    return jnp.concatenate(strip_products, -1) if strip_products else _in_one_row(left, right, transposed)


def _agreeing_sides(m: int, k: int, n: int, transposed: bool) -> tuple[int, int]:
    """Return the least rows and columns of [m, k] x [k, n] with which the AVX2 and AVX-512 kernels split it alike."""
    if not _is_copied(m, n, transposed) or k * max(_strip_width(n), _task_width(m, k, n)) <= _CACHE:
        return m, n  # they differ only in long sums, if the AVX-512 kernel copies
    return m if transposed else max(m, _COPIED_ROWS), max(n, _strip_width(n))  # the AVX2 kernel copies the same strips


def parts(m: int, k: int, n: int, transposed: bool) -> list[tuple[slice, list[slice]]]:
    """Return strips of columns of [m, k] x [k, n], and the parts of k that each sums up; empty if no sum has several parts."""
    if _is_copied(m, n, transposed):
        strips = [(slice(0, n), list(_slices(k, _CACHE // _strip_width(n))))]  # the same parts in all strips
    else:
        column_slices = _slices(n, _task_width(m, k, n))
        strips = [(strip, list(_slices(k, _CACHE // (strip.stop - strip.start)))) for strip in column_slices]
    return strips if any(len(k_parts) > 1 for _, k_parts in strips) else []


def _is_copied(m: int, n: int, transposed: bool) -> bool:
    """Return True if AVX-512's kernel copies strips of the right side: it is transposed, or read more than ten times."""
    rows_at_once = 5 if n > 8 else 8
    return transposed or m > 10 * rows_at_once


def _strip_width(n: int) -> int:
    """Return the number of columns in the strips that AVX-512's kernel copies: 8, or up to four vectors of 16."""
    return 8 if n <= 8 else min(_STRIP, -(-n // 16) * 16)


def _task_width(m: int, k: int, n: int) -> int:
    """Return the number of columns that YNNPACK computes in one task: it doubles sides until the task costs enough."""
    rows, columns = min(m, 16), min(n, _STRIP)
    least_results, depth = min(m, 64) * min(n, 64), min(k, 1024)
    # Enough are `least_results`, and 65,536 numbers that the task reads or computes.
    while rows * columns < least_results or ((rows + columns) * depth < 1 << 16 and rows * columns < 1 << 16):
        if columns < n and (4 * columns < rows or rows >= m):
            columns *= 2
        elif rows < m and (rows < 4 * columns or columns >= n):
            rows *= 2
        else:
            break
    return min(columns, n)


def _slices(length: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, length)) for start in range(0, length, step))


def _in_one_row(left: jax.Array, right: jax.Array, transposed: bool) -> jax.Array:
    """Multiply by YNNPACK's kernel, with sides padded to the length that it needs."""
    m, k, n = *left.shape[-2:], right.shape[-2 if transposed else -1]
    if k == 1:  # nothing to add up
        return left * (right.swapaxes(-1, -2) if transposed else right)
    if n == 1:  # a second column, because XLA computes products with vectors itself
        return _in_one_row(left, _lengthened(right, -2 if transposed else -1, 2), transposed)[..., :1]
    if max(m, k, n) < _SMALLEST:
        left, right = _lengthened(left, -1, _SMALLEST), _lengthened(right, -1 if transposed else -2, _SMALLEST)
    # The barriers keep XLA from fusing transpositions into the product, which would then use another kernel.
    left, right = lax.optimization_barrier((left, right))
    return lax.optimization_barrier(_kernel_p.bind(left, right, transposed=transposed))


def _lengthened(array: jax.Array, axis: int, length: int) -> jax.Array:
    """Pad an axis with zeros, up to this length."""
    if array.shape[axis] >= length:
        return array
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, length - array.shape[axis])
    return jnp.pad(array, widths)


def _kernel_shape(left: ShapedArray, right: ShapedArray, *, transposed: bool) -> ShapedArray:
    return ShapedArray((*left.shape[:-1], right.shape[-2 if transposed else -1]), left.dtype)


def _kernel(context: Any, left: Any, right: Any, *, transposed: bool) -> list[Any]:
    """Emit a plain product, which XLA passes to YNNPACK."""
    rank = len(context.avals_in[0].shape)
    batch = list(range(rank - 2))
    numbers = stablehlo.DotDimensionNumbers.get(
        lhs_batching_dimensions=batch,
        rhs_batching_dimensions=batch,
        lhs_contracting_dimensions=[rank - 1],
        rhs_contracting_dimensions=[rank - 1 if transposed else rank - 2],
    )
    return [stablehlo.dot_general(mlir.aval_to_ir_type(context.module_context, context.avals_out[0]), left, right, numbers)]


@apart
def _convolution(
    lhs: jax.Array, rhs: jax.Array, *, dimension_numbers: Any, preferred_element_type: Any, **options: Any
) -> jax.Array:
    """Compute `lax.conv_general_dilated`, with axes moved to the order batch, space..., features, and back."""
    batch, feature, *space = dimension_numbers.lhs_spec
    outputs, inputs, *window = dimension_numbers.rhs_spec
    kind = preferred_element_type or jnp.result_type(lhs, rhs)
    lhs, rhs = widened(lhs, kind), widened(rhs, kind)
    result = _channels_last(lhs.transpose(batch, *space, feature), rhs.transpose(*window, inputs, outputs), **options)
    out_batch, out_feature, *out_space = dimension_numbers.out_spec
    inverse = np.argsort([out_batch, *out_space, out_feature])  # for each axis of the output, the axis of `result`
    return result.transpose(inverse).astype(kind)


def _channels_last(
    image: jax.Array,
    kernel: jax.Array,
    *,
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int],
    rhs_dilation: Sequence[int],
    feature_group_count: int,
    batch_group_count: int,
    **_: Any,
) -> jax.Array:
    """Convolve an image [batch, space..., features] with a kernel [window..., features / groups, outputs].

    `features / groups` are the `inputs` of an output. At most one of the two group counts is above 1.
    """
    margins = [(low, high, dilation - 1) for (low, high), dilation in zip(padding, lhs_dilation, strict=True)]
    image = lax.pad(image, jnp.zeros((), image.dtype), [(0, 0, 0), *margins, (0, 0, 0)])
    window, (inputs, outputs) = kernel.shape[:-2], kernel.shape[-2:]
    places = places_of(image.shape[1:-1], window, window_strides, rhs_dilation)
    count = len(image) // batch_group_count  # images in the result
    if not math.prod((*image.shape, *kernel.shape, *places)):
        return jnp.zeros((count, *places, outputs), image.dtype)
    windows = patches(image, places, window, window_strides, rhs_dilation)  # [batch, places, window, features]
    groups = feature_group_count * batch_group_count
    windows = windows.reshape(batch_group_count, count, *windows.shape[1:3], feature_group_count, inputs)
    # For each group, a matrix product: [images x places, window x inputs] x [window x inputs, outputs of the group].
    windows = windows.transpose(0, 4, 1, 2, 3, 5).reshape(groups, count * math.prod(places), math.prod(window) * inputs)
    kernel = kernel.reshape(math.prod(window) * inputs, groups, outputs // groups).swapaxes(0, 1)
    result = (windows @ kernel).reshape(groups, count, *places, outputs // groups)
    return jnp.moveaxis(result, 0, -2).reshape(count, *places, outputs)


def patches(
    image: jax.Array, places: Sequence[int], window: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> jax.Array:
    """Return the inputs of every output place: [batch, places, window, features], sliced by the fewer of places and window."""
    by_place = math.prod(places) < math.prod(window)
    if by_place:  # a slice for each place holds its whole window
        outer, outer_step, inner, inner_step = places, strides, window, dilations
    else:  # a slice for each position in the window holds it for all places
        outer, outer_step, inner, inner_step = window, dilations, places, strides
    count, features = image.shape[0], image.shape[-1]
    slices = []
    for position in itertools.product(*map(range, outer)):
        start = [i * width for i, width in zip(position, outer_step, strict=True)]
        part = strided(image, [0, *start, 0], [count, *inner, features], [1, *inner_step, 1])
        slices.append(part.reshape(count, math.prod(inner), features))
    return jnp.stack(slices, axis=1 if by_place else 2)


_kernel_p = Primitive("product")
_kernel_p.def_abstract_eval(_kernel_shape)
mlir.register_lowering(_kernel_p, _kernel, platform="cpu")
mlir.register_lowering(dot_general_p, mlir.lower_fun(_dot_general, multiple_results=False), platform="cpu")
mlir.register_lowering(conv_general_dilated_p, mlir.lower_fun(_convolution, multiple_results=False), platform="cpu")
