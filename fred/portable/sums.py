"""Sums in a fixed order: a tree of elementwise additions, which no compiler may reorder.

XLA may reorder the additions of its own reductions, and does so wherever that makes a loop faster.
"""

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core.primitives import reduce_prod_p, reduce_sum_p, reduce_window_sum_p
from jax.interpreters import mlir

from fred.portable.barriers import apart

_FAN_IN = 8  # parts added at a time
_MANY_SUMS = 64  # sums; a few, such as the norm of a matrix, are best added up while their terms are computed

Operation = Callable[[Any, Any], Any]


def _sum(operand: jax.Array, *, axes: Sequence[int], **_: Any) -> jax.Array:
    """Add up along axes; many sums of a large operand, as in a normalisation, apart from the code around them."""
    sum_count = math.prod(size for axis, size in enumerate(operand.shape) if axis not in axes)
    return _many_sums(operand, axes=tuple(axes)) if sum_count >= _MANY_SUMS else _reduce(operand, axes, operator.add, 0)


@apart
def _many_sums(operand: jax.Array, *, axes: Sequence[int]) -> jax.Array:
    return _reduce(operand, axes, operator.add, 0)


def _product(operand: jax.Array, *, axes: Sequence[int]) -> jax.Array:
    return _reduce(operand, axes, operator.mul, 1)


def _reduce(operand: jax.Array, axes: Sequence[int], operation: Operation, neutral: int) -> jax.Array:
    """Reduce one axis after the other."""
    if not jnp.issubdtype(operand.dtype, jnp.inexact):  # exact in any order
        return lax.reduce(operand, operand.dtype.type(neutral), lambda left, right: operation(left, right), tuple(axes))
    for axis in sorted(axes):
        operand = _reduce_axis(operand, axis, operation, neutral)
    return operand.reshape([size for axis, size in enumerate(operand.shape) if axis not in axes])


def _reduce_axis(operand: jax.Array, axis: int, operation: Operation, neutral: int) -> jax.Array:
    """Reduce an axis to length 1: cut it into at most `_FAN_IN` equal parts, combine these elementwise, and repeat."""
    if not operand.shape[axis]:
        return jnp.full([1 if i == axis else size for i, size in enumerate(operand.shape)], neutral, operand.dtype)
    while (length := operand.shape[axis]) > 1:
        part_size = -(-length // _FAN_IN)
        starts = range(0, length, part_size)
        parts = [lax.slice_in_dim(operand, start, min(start + part_size, length), axis=axis) for start in starts]
        missing = [(0, part_size - parts[-1].shape[axis] if i == axis else 0, 0) for i in range(operand.ndim)]
        parts[-1] = lax.pad(parts[-1], operand.dtype.type(neutral), missing)
        operand = _combine(parts, operation)
    return operand


def _window_sum(
    operand: jax.Array,
    *,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    base_dilation: Sequence[int],
    window_dilation: Sequence[int],
) -> jax.Array:
    """Return the sums of sliding windows, by adding shifted arrays."""
    margins = [(low, high, dilation - 1) for (low, high), dilation in zip(padding, base_dilation, strict=True)]
    operand = lax.pad(operand, operand.dtype.type(0), margins)
    places = places_of(operand.shape, window_dimensions, window_strides, window_dilation)
    if 0 in places:
        return jnp.zeros(places, operand.dtype)
    shifted = [  # one array for each position in the window, of its elements at all places
        strided(operand, [i * width for i, width in zip(position, window_dilation, strict=True)], places, window_strides)
        for position in itertools.product(*map(range, window_dimensions))
    ]
    return _combine(shifted, operator.add)


def places_of(shape: Sequence[int], window: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> tuple[int, ...]:
    """Return the number of places of a sliding window along each axis."""
    sizes = zip(shape, window, strides, dilations, strict=True)
    return tuple(max(0, (length - (extent - 1) * dilation - 1) // stride + 1) for length, extent, stride, dilation in sizes)


def strided(array: jax.Array, start: Sequence[int], count: Sequence[int], step: Sequence[int]) -> jax.Array:
    """Return `count` elements along each axis, from `start`, `step` apart."""
    end = [first + (number - 1) * width + 1 for first, number, width in zip(start, count, step, strict=True)]
    return lax.slice(array, start, end, step)


def _combine(parts: Sequence[jax.Array], operation: Operation) -> jax.Array:
    """Combine the parts elementwise, from left to right."""
    total = parts[0]
    for part in parts[1:]:
        total = operation(total, part)
    return total


for _primitive, _rule in ((reduce_sum_p, _sum), (reduce_prod_p, _product), (reduce_window_sum_p, _window_sum)):
    mlir.register_lowering(_primitive, mlir.lower_fun(_rule, multiple_results=False), platform="cpu")
