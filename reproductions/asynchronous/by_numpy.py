"""The quadratic by which asynchronous methods are compared, by NumPy: what FRED's numbers are beside, and what cannot be."""

import numpy as np
from numpy.typing import NDArray

_NEAR = 200  # workers: those further away never are among the first few of 6,174
_SEEDS = 200


def slope(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the gradient A x - b [..., d] without noise.

    Args:
        x: where [..., d].
    """
    out = np.zeros_like(x)
    out[..., 0] = 0.25
    return out + x / 2 - (np.roll(x, 1, -1) * (np.arange(x.shape[-1]) > 0) + np.roll(x, -1, -1) * _not_last(x)) / 4


def excess(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return f(x) - min f [...].

    Args:
        x: where [..., d].
    """
    d = x.shape[-1]
    steps = np.diff(x + np.arange(d, 0, -1) / (d + 1), prepend=0.0, append=0.0, axis=-1)
    return np.square(steps).sum(-1) / 8


def rounds(first: float, rate: float, dimension: int = 32, accuracy: float = 1e-3) -> int:
    """Return the steps of gradient descent without noise until the gradient's squared length is at most the accuracy.

    Args:
        first: of the numbers at the start; the others are 0.
        rate: of each step.
        dimension: how many numbers there are.
        accuracy: where it ends.
    """
    x, number = first * np.eye(dimension)[0], 0
    while np.square(slope(x)).sum() > accuracy:
        x, number = x - rate * slope(x), number + 1
    return number


def m_sync(waited_for: int, moments: tuple[float, ...], dimension: int = 1729) -> NDArray[np.float64]:
    """Return f - min f of m-sync at rate 1, with enough seeds to show its distribution [moments, seeds].

    Args:
        waited_for: m, by whose mean gradient each step is made.
        moments: s of virtual time.
        dimension: how many numbers there are.
    """
    rng, i = np.random.default_rng(0), np.arange(_NEAR)
    x = np.zeros((_SEEDS, dimension))
    x[:, 0] = dimension**0.5
    now, excesses = np.zeros(_SEEDS), np.tile(excess(x), (len(moments), 1))
    while now.min() < max(moments):
        durations = 1 + np.sqrt(i) + np.sqrt(i + 1) * np.abs(rng.normal(size=(_SEEDS, _NEAR)))
        now += np.partition(durations, waited_for - 1)[:, waited_for - 1]
        x -= slope(x) + 0.01 * rng.normal(size=(_SEEDS, waited_for)).mean(1)[:, None]
        excesses = np.where(now <= np.array(moments)[:, None], excess(x), excesses)
    return excesses


def _not_last(x: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.arange(x.shape[-1]) < x.shape[-1] - 1
