"""Latencies: distributions of a duration in seconds, each a function of one uniform draw.

With one uniform per duration, draws are counter-based, and two distributions under the same seed are comparable draw by
draw.

Example: lower quartile, median and upper quartile of each, and its mean.
    >>> def measured(latency):
    ...     quartiles = latency.sample(np.array([0.25, 0.5, 0.75])).round(2).tolist()
    ...     return quartiles, round(latency.mean, 2)
    >>> measured(Constant(seconds=0.1))
    ([0.1, 0.1, 0.1], 0.1)
    >>> measured(Uniform(low=0.1, high=0.3))
    ([0.15, 0.2, 0.25], 0.2)
    >>> measured(Exponential(scale=1.0))
    ([0.29, 0.69, 1.39], 1.0)
    >>> measured(ShiftedExponential(shift=1.0, scale=1.0))
    ([1.29, 1.69, 2.39], 2.0)
    >>> measured(Normal(mu=1.0, sigma=0.5))
    ([0.69, 1.01, 1.35], 1.03)
    >>> measured(LogNormal(median=1.0, sigma=1.0)), measured(LogNormal(median=1.0, sigma=1.0, longest=1.0))
    (([0.51, 1.0, 1.96], 1.65), ([0.32, 0.51, 0.73], 0.52))
    >>> measured(Gamma(shape=4.0, scale=0.25))
    ([0.63, 0.92, 1.28], 1.0)
    >>> measured(Weibull(shape=0.5, scale=1.0))
    ([0.08, 0.48, 1.92], 2.0)
    >>> measured(Pareto(minimum=1.0, alpha=1.0))
    ([1.33, 2.0, 4.0], inf)
    >>> measured(Bimodal(fast=0.1, slow=1.0, slow_fraction=0.3))
    ([0.1, 0.1, 1.0], 0.37)
    >>> measured(Mixture(components=(Constant(seconds=0.1), Uniform(low=1.0, high=2.0)), weights=(1, 1)))
    ([0.1, 1.0, 1.5], 0.8)
"""

import math
from abc import abstractmethod
from functools import cached_property
from typing import Annotated

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, model_validator

from fred.base import numerics
from fred.base.numerics import exp, log1p, power
from fred.components.component import Component, Fraction, Positive
from fred.components.one_of import OneOf

Uniforms = NDArray[np.float64]  # draws in (0, 1)
Seconds = NDArray[np.float64]
NonNegative = Annotated[float, Field(ge=0)]


class Latency(Component):
    """A distribution of durations, s.

    Example: a triangular distribution, by its quantile function.
        >>> import fred
        >>> import numpy as np
        >>> class Triangular(fred.Latency):
        ...     '''Between 0 and twice the width, most often near the width.'''
        ...     width: float
        ...     def sample(self, u):
        ...         return self.width * np.where(u < 0.5, (2 * u) ** 0.5, 2 - (2 - 2 * u) ** 0.5)
        ...     @property
        ...     def mean(self):
        ...         return self.width
        >>> Triangular(width=1.0).sample(np.array([0.125, 0.5, 0.875]))
        array([0.5, 1. , 1.5])
        >>> cluster = fred.Cluster(workers=2, compute=Triangular(width=0.25))
        >>> cluster.gradients_per_second
        8.0
    """

    @abstractmethod
    def sample(self, u: Uniforms) -> Seconds:
        """Return the durations for uniform draws `u`, s, none negative, of the same shape; usually the quantile function."""

    @property
    @abstractmethod
    def mean(self) -> float:
        """Return the expected duration, s (infinite if the distribution has none)."""

    def of_member(self, rank: int) -> "Latency":
        """Return the distribution of one member's durations, by default the same for all.

        Args:
            rank: index of the member among those with this latency.
        """
        return self

    def draws(self, seed: int, purpose: str, members: ArrayLike, ranks: ArrayLike, position: int, size: int) -> Seconds:
        """Return `size` durations of each member from a position on, s: shape of `members` + [size].

        By default every member draws from its own stream.

        Args:
            seed: seed of the run.
            purpose: use of the durations, which names the streams.
            members: numbers of the entities, any shape.
            ranks: index of each member among those with this latency, same shape.
            position: index of the first duration in each stream, from 0.
            size: number of durations of each member.

        Example: durations do not depend on earlier calls.
            >>> latency = Exponential(scale=1.0)
            >>> first, later = latency.draws(0, "compute", [0, 1], [0, 1], 0, 4), latency.draws(0, "compute", [1], [1], 2, 2)
            >>> first.shape, bool((first[1, 2:] == later[0]).all())
            ((2, 4), True)
        """
        return self.sample(numerics.uniforms(seed, purpose, members, position, size))

    def check(self, members: int) -> None:
        """Raise ValueError if the latency has no durations for this number of `members`."""

    def doubts(self) -> tuple[str, ...]:
        """Return warnings about the durations, as sentences; none by default."""
        return ()


AnyLatency = Annotated[Latency, OneOf("latency")]


def draw_positive(quantity: str, law: Latency, u: Uniforms) -> list[float]:
    """Return a draw of some quantity, such as a speed, for each uniform draw.

    Raises ValueError unless all draws are positive and finite.

    Args:
        quantity: name of the option with the distribution.
        law: distribution of the quantity, in the quantity's own unit.
        u: uniform draws in (0, 1).

    >>> draw_positive("speed", Uniform(low=1.0, high=3.0), np.array([0.25, 0.75]))
    [1.5, 2.5]
    """
    draws: list[float] = law.sample(u).tolist()
    if not all(0 < draw < math.inf for draw in draws):
        raise ValueError(f"the distribution of `{quantity}` has draws that are not positive and finite: choose another one")
    return draws


class Constant(Latency):
    """A constant duration."""

    seconds: NonNegative = Field(examples=[0.1], description="duration, s")

    def sample(self, u: Uniforms) -> Seconds:
        return np.full_like(u, self.seconds)

    @property
    def mean(self) -> float:
        return self.seconds


class Uniform(Latency):
    """Any duration between two bounds, equally likely."""

    low: NonNegative = Field(examples=[0.1], description="shortest duration, s")
    high: NonNegative = Field(examples=[0.3], description="longest duration, s")

    @model_validator(mode="after")
    def _ordered(self) -> "Uniform":
        if self.high < self.low:
            raise ValueError(f"`high` ({self.high}) must not be below `low` ({self.low})")
        return self

    def sample(self, u: Uniforms) -> Seconds:
        return self.low + (self.high - self.low) * u

    @property
    def mean(self) -> float:
        return (self.low + self.high) / 2


class Exponential(Latency):
    """An exponential distribution: memoryless durations."""

    scale: Positive = Field(examples=[0.1], description="mean, s")

    def sample(self, u: Uniforms) -> Seconds:
        return -self.scale * log1p(-u)

    @property
    def mean(self) -> float:
        return self.scale


class ShiftedExponential(Latency):
    """A fixed minimum plus an exponential rest: the usual model of a straggler."""

    shift: NonNegative = Field(examples=[0.1], description="shortest duration, s")
    scale: Positive = Field(examples=[0.05], description="mean of the exponential rest, s")

    def sample(self, u: Uniforms) -> Seconds:
        return self.shift - self.scale * log1p(-u)

    @property
    def mean(self) -> float:
        return self.shift + self.scale


class Normal(Latency):
    """A normal distribution truncated below at a positive floor (conditioned on exceeding it, not clipped to it)."""

    mu: Positive = Field(examples=[0.1], description="mean before truncation, s")
    sigma: Positive = Field(examples=[0.02], description="standard deviation before truncation, s")
    floor: Positive = Field(default=1e-3, description="shortest duration, s")

    @model_validator(mode="after")
    def _not_all_cut(self) -> "Normal":
        if self.floor > self.mu + 6 * self.sigma:
            raise ValueError(f"`floor` ({self.floor:g}) is more than 6 `sigma` above `mu` ({self.mu:g}); lower it")
        return self

    @cached_property
    def _share_below(self) -> float:
        """Return the probability below the floor before truncation."""
        return float(scipy.special.ndtr((self.floor - self.mu) / self.sigma))

    def sample(self, u: Uniforms) -> Seconds:
        untruncated_u = self._share_below + (1 - self._share_below) * u  # uniform above the share that is cut
        return np.maximum(self.floor, self.mu + self.sigma * scipy.special.ndtri(untruncated_u))

    @property
    def mean(self) -> float:
        a = (self.floor - self.mu) / self.sigma  # mu + sigma x density(a) / P(Z > a), the mean of a truncated normal
        return self.mu + self.sigma * math.exp(-a * a / 2) / math.sqrt(2 * math.pi) / (1 - self._share_below)


class HalfNormal(Latency):
    """A half-normal distribution: a fixed minimum plus the absolute value of a normal number."""

    shift: NonNegative = Field(default=0.0, description="shortest duration, s")
    scale: Positive = Field(examples=[0.1], description="standard deviation of the normal number, s")

    def sample(self, u: Uniforms) -> Seconds:
        return self.shift - self.scale * scipy.special.ndtri((1 - u) / 2)

    @property
    def mean(self) -> float:
        return self.shift + self.scale * math.sqrt(2 / math.pi)


class LogNormal(Latency):
    """A log-normal distribution above a fixed minimum, as for work that grows with the length of a sentence or an episode."""

    median: Positive = Field(examples=[0.1], description="median of the rest, s")
    sigma: NonNegative = Field(
        examples=[0.3], description="standard deviation of the logarithm of the rest; 0: always the median"
    )
    shift: NonNegative = Field(default=0.0, description="shortest duration, s")
    longest: Positive | None = Field(
        default=None, description="longest duration (conditioned on it, not clipped), s; absent: no limit"
    )

    @model_validator(mode="after")
    def _not_all_cut(self) -> "LogNormal":
        if self._highest < -6:
            raise ValueError(f"`longest` ({self.longest:g}) leaves nothing of the distribution; raise it")
        return self

    @cached_property
    def _highest(self) -> float:
        """Return the longest rest, in standard deviations of its logarithm above the median."""
        if self.longest is None:
            return math.inf
        rest = self.longest - self.shift
        if self.sigma == 0:
            return math.inf if rest >= self.median else -math.inf
        return math.log(rest / self.median) / self.sigma if rest > 0 else -math.inf

    def sample(self, u: Uniforms) -> Seconds:
        if self.sigma == 0:
            return np.full_like(u, self.shift + self.median)
        return self.shift + self.median * exp(self.sigma * scipy.special.ndtri(u * scipy.special.ndtr(self._highest)))

    @property
    def mean(self) -> float:
        # The mean without a limit, times the factor by which conditioning on `longest` lowers it.
        truncation = float(scipy.special.ndtr(self._highest - self.sigma) / scipy.special.ndtr(self._highest))
        return self.shift + self.median * float(exp(self.sigma**2 / 2)) * truncation


class Gamma(Latency):
    """A gamma distribution: the time of several memoryless stages in a row."""

    shape: Positive = Field(examples=[4.0], description="number of stages, not necessarily whole")
    scale: Positive = Field(examples=[0.025], description="mean of one stage, s")

    def sample(self, u: Uniforms) -> Seconds:
        return np.asarray(self.scale * scipy.special.gammaincinv(self.shape, u), np.float64)

    @property
    def mean(self) -> float:
        return self.shape * self.scale


class Weibull(Latency):
    """A Weibull distribution, with a hazard that falls (shape < 1, heavy tail) or rises (shape > 1)."""

    shape: Positive = Field(examples=[1.5], description="exponent of the hazard plus one")
    scale: Positive = Field(examples=[0.1], description="63rd percentile, s")

    def sample(self, u: Uniforms) -> Seconds:
        return self.scale * power(-log1p(-u), 1 / self.shape)

    @property
    def mean(self) -> float:
        return self.scale * float(scipy.special.gamma(1 + 1 / self.shape))


class Pareto(Latency):
    """A Pareto distribution: a power-law tail, with rare durations many times the shortest."""

    minimum: Positive = Field(examples=[0.1], description="shortest duration, s")
    alpha: Positive = Field(examples=[2.5], description="tail exponent; the mean is infinite for alpha <= 1")

    def sample(self, u: Uniforms) -> Seconds:
        return self.minimum * power(1 - u, -1 / self.alpha)

    @property
    def mean(self) -> float:
        return self.minimum * self.alpha / (self.alpha - 1) if self.alpha > 1 else float("inf")


class Bimodal(Latency):
    """A two-point distribution: most durations are fast, some are slow."""

    fast: NonNegative = Field(examples=[0.1], description="usual duration, s")
    slow: NonNegative = Field(examples=[1.0], description="slow duration, s")
    slow_fraction: Fraction = Field(examples=[0.05], description="share of slow durations")

    def sample(self, u: Uniforms) -> Seconds:
        return np.where(u < 1 - self.slow_fraction, self.fast, self.slow)

    @property
    def mean(self) -> float:
        return self.fast + (self.slow - self.fast) * self.slow_fraction


class Mixture(Latency):
    """A mixture: each duration comes from one of several distributions, chosen with given weights."""

    components: tuple[AnyLatency, ...] = Field(
        min_length=1,
        description="distributions",
        examples=[[{"name": "constant", "seconds": 0.1}, {"name": "exponential", "scale": 1.0}]],
    )
    weights: tuple[NonNegative, ...] = Field(examples=[[0.9, 0.1]], description="weight of each component; scaled to sum to 1")

    @model_validator(mode="after")
    def _matched(self) -> "Mixture":
        if len(self.weights) != len(self.components):
            raise ValueError(f"{len(self.components)} components need as many weights, not {len(self.weights)}")
        if not 0 < sum(self.weights) < math.inf:
            raise ValueError("at least one of `weights` must be above zero, and their sum finite")
        return self

    def sample(self, u: Uniforms) -> Seconds:
        # One uniform draw serves twice: it selects the component, and its position in the component's share, stretched to
        # (0, 1), is the component's draw. Given the choice, that position is uniform. So a mixture needs one draw per duration,
        # as all latencies do. Clipping keeps rounding from giving 0 or 1, at which quantile functions may be infinite.
        edges = np.concatenate(([0.0], np.cumsum(self.weights) / sum(self.weights)))
        choice = np.searchsorted(edges[1:-1], u, side="right")
        position = np.clip((u - edges[choice]) / (edges[choice + 1] - edges[choice]), 2.0**-53, 1 - 2.0**-53)
        result = np.empty_like(u)
        for index, component in enumerate(self.components):
            mask = choice == index
            result[mask] = component.sample(position[mask])
        return result

    @property
    def mean(self) -> float:
        pairs = zip(self.components, self.weights, strict=True)  # a weight of 0 skips a mean that may be infinite
        return math.fsum(component.mean * weight for component, weight in pairs if weight) / math.fsum(self.weights)
