"""The laws of paired differences, or of paired ratios: how each is drawn, and its true mean."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, int]], Floats]


class Law(NamedTuple):
    """A law of independent values.

    Args:
        name: as on the page.
        draw: draws values of a shape.
        mean: true mean.
        mean_logarithm: true mean of the logarithm; None if values may be negative.
    """

    name: str
    draw: Draw
    mean: float
    mean_logarithm: float | None = None


def _contaminated(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return rng.normal(size=shape) + 3.0 * (rng.random(shape) < 0.1)


def _ratio(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Draw the ratio of two times, each a sum of four exponential ones; what their seed does to both cancels."""
    return rng.gamma(4.0, size=shape) / rng.gamma(4.0, size=shape)


def _difference(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return rng.lognormal(size=shape) - rng.lognormal(size=shape)


CHOSEN_ON = (
    Law("normal", lambda rng, shape: rng.normal(size=shape), 0.0),
    Law("exponential", lambda rng, shape: rng.exponential(size=shape), 1.0, -float(np.euler_gamma)),
    Law("log-normal, sigma 1", lambda rng, shape: rng.lognormal(size=shape), float(np.exp(0.5)), 0.0),
    Law("Student's t, 3 degrees of freedom", lambda rng, shape: rng.standard_t(3, size=shape), 0.0),
)
JUDGED_ON = (
    Law("normal; one value in ten is 3 deviations higher", _contaminated, 0.3),
    Law("uniform", lambda rng, shape: rng.uniform(-1, 1, size=shape), 0.0),
    Law("gamma, shape 0.5", lambda rng, shape: rng.gamma(0.5, size=shape), 0.5, float(digamma(0.5))),
    Law("difference of two log-normal values, sigma 1", _difference, 0.0),
    Law("ratio of two gamma times, shape 4", _ratio, 4 / 3, 0.0),
)
