"""Elementary functions, computed one number at a time by the C library: NumPy's results depend on the instruction set.

Results that are too large become infinity.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray


def _elementwise(function: Callable[..., float], arguments: int) -> Callable[..., NDArray[np.float64]]:
    def or_infinity(*x: float) -> float:
        try:
            return function(*x)
        except OverflowError:
            return math.inf

    vectorized, vectorized_or_infinity = np.frompyfunc(function, arguments, 1), np.frompyfunc(or_infinity, arguments, 1)

    def elementwise(*x: ArrayLike) -> NDArray[np.float64]:
        try:
            return np.asarray(vectorized(*x), np.float64)
        except OverflowError:
            return np.asarray(vectorized_or_infinity(*x), np.float64)  # three times as slow

    return elementwise


cos = _elementwise(math.cos, 1)
exp = _elementwise(math.exp, 1)
log = _elementwise(math.log, 1)
log1p = _elementwise(math.log1p, 1)
power = _elementwise(math.pow, 2)
