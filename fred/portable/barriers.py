"""Boundaries that the compiler does not optimize across, and calls that it does not inline."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import jax
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

F = TypeVar("F", bound=Callable[..., Any])
_LARGE_OPERAND = 1 << 13  # numbers in an operand; with fewer, to compute it again costs less than to read it from memory


def sealed(function: F) -> F:
    """Keep the compiler from optimizing a function together with the code before or after it.

    For example, it would merge two multiplications by constants into one, whose product is rounded once instead of twice.
    """

    @wraps(function)
    def sealed_method(self: Any, *operands: Any, **options: Any) -> Any:
        return jax.lax.optimization_barrier(function(self, *jax.lax.optimization_barrier(operands), **options))

    return sealed_method  # type: ignore[return-value]


def apart(function: F) -> F:
    """Return the function as one that reads large operands from memory.

    XLA's CPU compiler copies a cheap operation into each operation that reads its result. In a gradient this goes a long way:
    the sums and transpositions of every layer of a transformer computed its residual stream again from the first layer on, and
    a transposition of GELU's output computed GELU in an order that no cache likes. A third to a half of the time went there.
    The barrier of `sealed` does not help, because XLA removes barriers before it fuses. To keep them would be worse: between
    gradient and update it is cheaper to repeat a few operations than to store the model. A call that must not be inlined stays
    a boundary to the end.

    Args:
        function: function of arrays, and of keywords that are no arrays.
    """

    def run(options: tuple[tuple[str, Any], ...], *operands: jax.Array) -> Any:
        with set_xla_metadata(inlineable="true"):  # calls inside, such as that of `jnp.pad`
            return function(*operands, **dict(options))

    run.__name__ = function.__name__  # names the call in the compiled program
    compiled = jax.jit(run, static_argnums=0)

    @wraps(function)
    def call(*operands: jax.Array, **options: Any) -> Any:
        if max(operand.size for operand in operands) < _LARGE_OPERAND:
            return function(*operands, **options)
        with set_xla_metadata(inlineable="false"):
            return compiled(tuple(options.items()), *operands)

    return call  # type: ignore[return-value]


@apart
def _stored(array: jax.Array) -> jax.Array:
    return array


def stored(array: jax.Array) -> jax.Array:
    """Return an array that is computed once, whatever reads it, and so is its gradient.

    Args:
        array: any array. A large one is copied once.
    """
    return _stored_p.bind(array)


_stored_p = Primitive("stored")
_stored_p.def_abstract_eval(lambda array: array)
_stored_p.def_impl(lambda array: array)
ad.deflinear2(_stored_p, lambda gradient, _: [_stored_p.bind(gradient)])
batching.defvectorized(_stored_p)
mlir.register_lowering(_stored_p, mlir.lower_fun(_stored, multiple_results=False), platform="cpu")
