"""Boundaries around functions, across which the compiler optimizes nothing, or does not even compute together."""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, TypeVar

import jax
from jax.experimental.xla_metadata import set_xla_metadata

F = TypeVar("F", bound=Callable[..., Any])
LARGE = 1 << 13  # numbers in an operand; with fewer, to compute it again costs less than to read it from memory


def sealed(function: F) -> F:
    """Keep the compiler from optimizing a function together with the code before or after it.

    For example, it would merge two multiplications by constants into one, whose product is rounded once instead of twice.
    """

    @wraps(function)
    def sealed_method(self: Any, *operands: Any, **options: Any) -> Any:
        return jax.lax.optimization_barrier(function(self, *jax.lax.optimization_barrier(operands), **options))

    return sealed_method  # type: ignore[return-value]


def compiled_apart(function: F, *static: str) -> F:
    """Return the function as one that reads its operands from memory.

    XLA's CPU compiler copies a cheap operation into each operation that reads its result. In a gradient this goes a long way:
    the sums and transpositions of every layer of a transformer computed its residual stream anew from the first layer on, and a
    transposition of GELU's output computed GELU in an order that no cache likes. A third to a half of the time went there. The
    barrier of `sealed` does not help, since XLA removes barriers before it fuses, and must not: between gradient and update a
    copy of a few operations is cheaper than a copy of the model. A call that must not be inlined stays a boundary to the end.

    Args:
        function: function of arrays.
        static: names of its parameters that are no arrays.
    """

    @partial(jax.jit, static_argnames=static)
    @wraps(function)
    def compiled(*operands: Any, **options: Any) -> Any:
        with set_xla_metadata(inlineable="true"):  # calls inside, such as that of `jnp.pad`
            return function(*operands, **options)

    @wraps(function)
    def call(*operands: Any, **options: Any) -> Any:
        with set_xla_metadata(inlineable="false"):
            return compiled(*operands, **options)

    return call  # type: ignore[return-value]


_stored = compiled_apart(lambda array: array)


@jax.custom_vjp
def stored(array: jax.Array) -> jax.Array:
    """Return an array that is computed once, whatever reads it, and so is its gradient.

    Args:
        array: any array. It is copied once.
    """
    return _stored(array)


stored.defvjp(lambda array: (_stored(array), None), lambda _, gradient: (_stored(gradient),))
