"""A barrier around functions, across which the compiler optimizes nothing."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import jax

F = TypeVar("F", bound=Callable[..., Any])


def sealed(function: F) -> F:
    """Keep the compiler from optimizing a function together with the code before or after it.

    For example, it would merge two multiplications by constants into one, whose product is rounded once instead of twice.
    """

    @wraps(function)
    def sealed_method(self: Any, *operands: Any, **options: Any) -> Any:
        return jax.lax.optimization_barrier(function(self, *jax.lax.optimization_barrier(operands), **options))

    return sealed_method  # type: ignore[return-value]
