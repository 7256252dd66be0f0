"""More contention: noise that persists, the time of day, rare delays, and a job that moves from node to node.

Example: slowdown factors of two workers, each on its own node, at some times in s.
    >>> def measured(regime, times):
    ...     load = regime.start(seed=0, name="contention 0", node_of=np.array([0, 1]))
    ...     return [[round(load.slowdown(worker, time * NANOSECONDS)[0], 2) for worker in (0, 1)] for time in times]
    >>> measured(Diurnal(slowdown=3.0, period=24.0, steps=24), times=(0, 6, 12, 18))
    [[2.99, 2.99], [1.87, 1.87], [1.01, 1.01], [2.13, 2.13]]
    >>> measured(Diurnal(slowdown=3.0, period=24.0, steps=24, shape="linear"), times=(0, 6, 12, 18))
    [[2.92, 2.92], [1.92, 1.92], [1.08, 1.08], [2.08, 2.08]]
    >>> measured(MovingJob(slowdown=2.0, dwell=6.0, rest=3.0), times=(0, 6, 12, 15))
    [[2.0, 1.0], [1.0, 2.0], [1.0, 1.0], [2.0, 1.0]]

    Persistent noise depends on when a computation begins, and rare delays on the worker's step:
    >>> noise = PersistentNoise(deviation=0.1, persistence=0.9).start(0, "contention 0", np.array([0, 1]))
    >>> [round(noise.stretch(0, second * NANOSECONDS), 2) for second in range(6)]
    [0.81, 0.89, 0.9, 0.88, 0.9, 0.96]
    >>> rare = RareDelays(probability=0.25, seconds={"name": "constant", "seconds": 2.0})
    >>> rare = rare.start(0, "contention 0", np.array([0]))
    >>> [rare.delay(0, step) / NANOSECONDS for step in range(8)]
    [0.0, 2.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0]
"""

import math
from array import array
from collections.abc import Callable
from typing import Annotated, Literal

import numpy as np
import scipy
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fred.base import numerics
from fred.base.errors import FredError
from fred.base.numerics import cos, exp
from fred.cluster.contention import FOREVER, Contention, Drawn, Load, NodeOf, Scope, Slowdown, entities
from fred.cluster.durations import check_median
from fred.cluster.latency import AnyLatency
from fred.components.component import NANOSECONDS, Duration, Positive, Time

_MOST_STEPS = 4_000_000  # steps of one entity's noise
Persistence = Annotated[float, Field(ge=0, lt=1)]


class PersistentNoise(Contention):
    """Autoregressive noise: exp(x) multiplies a compute time, with x normal and correlated in time.

    x is constant for `every` seconds, then x := persistence x + sqrt(1 - persistence^2) deviation N(0, 1), started from the
    stationary distribution. A computation uses the x at its beginning, so long computations do not average the noise away.
    """

    deviation: Positive = Field(description="standard deviation of the logarithm of the factor", examples=[0.1])
    persistence: Persistence = Field(description="correlation of the logarithm with that of the next step", examples=[0.9])
    every: Duration = Field(default=1.0, description="length of a step, s")
    of: Scope = Field(default="worker", description="unit that is slow or fast as a whole")

    def start(self, seed: int, name: str, node_of: NodeOf) -> Load:
        return _Noise(self, seed, name, entities(self.of, node_of))


class _Noise(Load):
    def __init__(self, regime: PersistentNoise, seed: int, stream: str, entity_of: list[int]):
        self._regime, self._entity_of = regime, entity_of
        self._step = max(1, round(regime.every * NANOSECONDS))
        self._draw = lambda entity, start, count: scipy.special.ndtri(numerics.uniforms(seed, stream, entity, start, count))
        self._last = dict.fromkeys(entity_of, 0.0)  # x / deviation of each entity in its last drawn step
        self._factors = {entity: array("d") for entity in self._last}

    def stretch(self, worker: int, begin: int) -> float:
        entity = self._entity_of[worker]
        factors, step = self._factors[entity], begin // self._step
        while len(factors) <= step:
            if len(factors) > _MOST_STEPS:
                raise FredError(
                    f"`contention`: more than {_MOST_STEPS:,} steps of noise in the first {begin / NANOSECONDS:g} s; "
                    "give a longer `every`, or stop the run earlier"
                )
            self._extend(entity, factors, min(max(64, len(factors)), 1 << 16))  # doubles the array, within limits
        return factors[step]

    def _extend(self, entity: int, factors: "array[float]", count: int) -> None:
        """Draw the factors of the next steps of an entity."""
        persistence = self._regime.persistence
        innovation_scale = math.sqrt(1 - persistence * persistence)
        x, states = self._last[entity], list[float]()  # in units of the deviation
        for draw in self._draw(entity, len(factors), count).tolist():
            # The very first state is a draw from the stationary distribution.
            x = persistence * x + innovation_scale * draw if factors or states else draw
            states.append(x)
        self._last[entity] = x
        factors.extend(exp(self._regime.deviation * np.array(states)))


class Diurnal(Contention):
    """A daily cycle of the whole cluster: slowest once a period, at full speed half a period later, a cosine between.

    Half a period is a drift. With `shape: linear`, the slowdown changes linearly between full speed and the peak.
    """

    slowdown: Slowdown = Field(description="factor on compute times at the worst time of the day", examples=[1.5])
    period: Duration = Field(default=86400.0, description="length of a day, s")
    peak: Time = Field(default=0.0, description="worst time of the first day, s")
    steps: int = Field(default=96, ge=2, le=100_000, description="number of steps of constant speed in a day")
    shape: Literal["cosine", "linear"] = Field(
        default="cosine", description="shape of the cycle between full speed and the peak"
    )

    def start(self, seed: int, name: str, node_of: NodeOf) -> Load:
        return _Day(self)


class _Day(Load):
    def __init__(self, regime: Diurnal):
        # A step lasts 1 ns or more, so that time goes on.
        self._steps, self._period = regime.steps, max(regime.steps, round(regime.period * NANOSECONDS))
        # The middle of each step, in periods after the peak.
        phases = (np.arange(regime.steps) + 0.5) / regime.steps - regime.peak / regime.period
        is_linear = regime.shape == "linear"
        heights = np.abs(1 - 2 * (phases % 1)) if is_linear else (1 + cos(2 * math.pi * phases)) / 2  # from 0 to 1, at the peak
        self._factors = (1 + (regime.slowdown - 1) * heights).tolist()

    def slowdown(self, worker: int, now: int) -> tuple[float, int]:
        day, time = divmod(now, self._period)
        step = time * self._steps // self._period
        step_end = -(-(step + 1) * self._period // self._steps)  # rounded up: the first ns of the next step
        return self._factors[step], day * self._period + step_end


class RareDelays(Contention):
    """Rare random delays of single gradients, as from a lost packet, a restart or a page fault."""

    probability: float = Field(gt=0, le=1, description="probability that a gradient is delayed", examples=[0.01])
    seconds: AnyLatency = Field(description="delay, s", examples=[{"name": "exponential", "scale": 1.0}])

    @model_validator(mode="after")
    def _are_durations(self) -> "RareDelays":
        check_median(self.seconds, 1.0)
        return self

    def start(self, seed: int, name: str, node_of: NodeOf) -> Load:
        return Drawn(seed, name, len(node_of), self.probability, self.seconds)


class MovingJob(Contention):
    """A competing job that slows one node after another down; after the last node it pauses and starts again."""

    slowdown: Slowdown = Field(description="factor on compute times of the node", examples=[2.0])
    dwell: Duration = Field(description="time on each node, s", examples=[6.0])
    rest: Time = Field(default=0.0, description="pause after each round over the nodes, s")
    order: Literal["numbers", "random"] = Field(
        default="numbers", description="order of the nodes in a round; `random`: drawn for each round"
    )

    def start(self, seed: int, name: str, node_of: NodeOf) -> Load:
        return _Moving(self, seed, name, node_of)


class _Moving(Load):
    def __init__(self, job: MovingJob, seed: int, stream: str, node_of: NodeOf):
        self._factor, self._node_of = job.slowdown, node_of.tolist()
        self._nodes = int(node_of.max()) + 1
        self._dwell, rest = max(1, round(job.dwell * NANOSECONDS)), round(job.rest * NANOSECONDS)
        self._round_length = self._nodes * self._dwell + rest
        self._draw_order: Callable[[int], NDArray[np.int64]] | None = None  # None: the order of the nodes' numbers
        self._last_order: tuple[int, list[int]] = (-1, list(range(self._nodes)))  # a round, and its order of nodes
        if job.order == "random":
            nodes = np.arange(self._nodes)
            self._draw_order = lambda round_number: np.argsort(numerics.words(seed, stream, round_number, nodes), kind="stable")

    def slowdown(self, worker: int, now: int) -> tuple[float, int]:
        round_number, time = divmod(now, self._round_length)
        stay = time // self._dwell  # place of the present node in the round's order
        if stay >= self._nodes:
            return 1.0, (round_number + 1) * self._round_length
        is_occupied = self._order_in(round_number)[stay] == self._node_of[worker]
        stay_end = round_number * self._round_length + (stay + 1) * self._dwell
        return (self._factor if is_occupied else 1.0), min(stay_end, FOREVER)

    def _order_in(self, round_number: int) -> list[int]:
        """Return the nodes in the order of a round; the last order drawn is stored, because rounds follow each other."""
        if self._draw_order is not None and self._last_order[0] != round_number:
            self._last_order = round_number, self._draw_order(round_number).tolist()
        return self._last_order[1]
