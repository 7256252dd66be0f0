"""Convolutions of every kind as a product of patches and kernels, instead of a library's convolution.

`lax.conv` inside a compiled loop is many times slower on the CPU than outside it, and its bits change with the CPU.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core.primitives import conv_general_dilated_p
from jax.interpreters import mlir

from fred.portable.barriers import apart
from fred.portable.products import widened
from fred.portable.sums import places_of, strided


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
    axes = np.argsort([dimension_numbers.out_spec[0], *dimension_numbers.out_spec[2:], dimension_numbers.out_spec[1]])
    return result.transpose(axes).astype(kind)


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
    """Convolve an image [batch, space..., features] with a kernel [window..., features / groups, outputs]."""
    margins = [(low, high, dilation - 1) for (low, high), dilation in zip(padding, lhs_dilation, strict=True)]
    image = lax.pad(image, jnp.zeros((), image.dtype), [(0, 0, 0), *margins, (0, 0, 0)])
    window, (inputs, outputs) = kernel.shape[:-2], kernel.shape[-2:]
    places = places_of(image.shape[1:-1], window, window_strides, rhs_dilation)
    count = len(image) // batch_group_count
    if not math.prod((*image.shape, *kernel.shape, *places)):
        return jnp.zeros((count, *places, outputs), image.dtype)
    windows = patches(image, places, window, window_strides, rhs_dilation)  # [batch, places, window, features]
    groups = feature_group_count * batch_group_count
    windows = windows.reshape(batch_group_count, count, *windows.shape[1:3], feature_group_count, inputs)
    windows = windows.transpose(0, 4, 1, 2, 3, 5).reshape(groups, count * math.prod(places), math.prod(window) * inputs)
    kernel = kernel.reshape(math.prod(window) * inputs, groups, outputs // groups).swapaxes(0, 1)
    result = (windows @ kernel).reshape(groups, count, *places, outputs // groups)
    return jnp.moveaxis(result, 0, -2).reshape(count, *places, outputs)


def patches(
    image: jax.Array, places: Sequence[int], window: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> jax.Array:
    """Return the inputs of every output place: [batch, places, window, features], sliced by the fewer of places and window."""
    by_place = math.prod(places) < math.prod(window)
    (outer, outer_step), (inner, inner_step) = ((places, strides), (window, dilations))[:: 1 if by_place else -1]
    count, features = image.shape[0], image.shape[-1]
    slices = []
    for position in itertools.product(*map(range, outer)):
        start = [i * width for i, width in zip(position, outer_step, strict=True)]
        part = strided(image, [0, *start, 0], [count, *inner, features], [1, *inner_step, 1])
        slices.append(part.reshape(count, math.prod(inner), features))
    return jnp.stack(slices, axis=1 if by_place else 2)


mlir.register_lowering(conv_general_dilated_p, mlir.lower_fun(_convolution, multiple_results=False), platform="cpu")
