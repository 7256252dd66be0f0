"""Gradients of one age, as in pipelines and one-step-late allreduces, and corrections for it.

| name         | source                                                                                  |
|--------------|-----------------------------------------------------------------------------------------|
| extrapolated | "error feedback" of arXiv:2606.30634, 2026, for one step of delay                       |
| pipemare     | Yang, Zhang, Li, Re, Aberger, De Sa 2021, arXiv:1910.05124, technique 1: rates by delay |
| FixedLag     | Chen et al. 2017, section 2.1, appendix A.1; docs/errata.md, item 22                    |

Example: all updates but the first use gradients at parameters that are 20 updates old, always or on average.
    >>> import fred
    >>> settings = {
    ...     "cluster": {"workers": 1},
    ...     "stop": {"updates": 1000},
    ...     "algorithm": {"name": "asgd", "learning_rate": 0.1},
    ... }
    >>> def measured(**protocol):
    ...     summary = fred.run(fred.scenario(settings, protocol={"name": "fixed-lag", "lag": 20, **protocol})).summary
    ...     return summary[["staleness_mean", "staleness_max"]].round(1).iloc[0].tolist()
    >>> measured()
    [19.8, 20.0]
    >>> measured(drawn_from=5)
    [19.8, 60.0]
    >>> measured(drawn_from=21)
    [19.5, 155.0]
    >>> measured(ramp=1000)
    [9.5, 19.0]
"""

from __future__ import annotations

from itertools import count
from typing import Annotated

from pydantic import Field, model_validator

from fred.base import numerics
from fred.base.imports import jax, jnp
from fred.cluster.network import NOTHING
from fred.components.component import Count, Natural
from fred.learning.models.model import Params
from fred.learning.server import Family, Message, Scalar, Server, State
from fred.protocols.protocol import Protocol
from fred.systems.asgd import StalenessAware
from fred.timing.copies import Copy
from fred.timing.simulation import Process, Simulation


class Extrapolated(Server):
    """SGD with extrapolated steps, which add their change since the last step to compensate for the gradient's age.

    Steps of 1, 1 and 3; the third is extrapolated to 5:

        >>> from fred.systems.pipelines import Extrapolated
        >>> import jax.numpy as jnp
        >>> server = Extrapolated(learning_rate=1.0)
        >>> state = server.init({"w": jnp.array([10.0])}, workers=1)
        >>> for gradient in (1.0, 1.0, 3.0):
        ...     state = server.apply_update(state, {"w": jnp.array([gradient])}, timestamp=0, worker=0)
        ...     print(state.params["w"].tolist())
        [9.0]
        [8.0]
        [3.0]
    """

    name = "extrapolated"
    family = Family.OF_ONE_AGE
    rule = """\
u <- step(g)
w <- w - u - ahead (u - u_before)    (u_before: of the update before; of the first: u)"""
    protocol = "fixed-lag"

    ahead: Annotated[float, Field(ge=0)] = Field(default=1.0, description="number of steps to extrapolate, such as the lag")

    def init(self, params: Params, /, workers: int) -> State:
        return super().init(params, workers).replace(before=jax.tree.map(jnp.zeros_like, params))

    def apply_update(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> State:
        """Step with the `message`, a gradient, extrapolated."""
        zeros = jax.tree.map(jnp.zeros_like, state.params)  # from which a step leads to -u
        stepped = self.step(state.replace(params=zeros), message, model=state.params)
        last_step = jax.tree.map(
            lambda current, previous: jnp.where(state.clock == 0, current, previous), stepped.params, state.before
        )

        def extrapolate(leaf: jax.Array, current: jax.Array, previous: jax.Array) -> jax.Array:
            return leaf + current + self.ahead * (current - previous)

        params = jax.tree.map(extrapolate, state.params, stepped.params, last_step)
        return stepped.replace(params=params, before=stepped.params)


class PipeMare(StalenessAware):
    """Pipelined SGD with delay-dependent rates: steps are divided by age^p, with p falling from 1 to 0 during a warm-up.

    Factors of a step whose gradient is 4 updates old, at the start of the warm-up, half-way and after it:

        >>> from fred.systems.pipelines import PipeMare
        >>> import jax.numpy as jnp
        >>> server = PipeMare(learning_rate=1.0, warm_up=8)
        >>> state = server.init({"w": jnp.array([0.0])}, workers=1)
        >>> [float(server.weight(4, state.replace(clock=jnp.int32(clock)))) for clock in (0, 4, 8, 100)]
        [0.25, 0.5, 1.0, 1.0]
    """

    name = "pipemare"
    family = Family.OF_ONE_AGE
    rule = "w <- w - step(g) / max(tau, 1)^p    (p = max(0, 1 - updates / warm_up))"
    protocol = "fixed-lag"

    warm_up: Natural = Field(default=1000, description="updates in which the power p falls from 1 to 0", examples=[1000])

    def weight(self, staleness: Scalar, state: State) -> Scalar:
        """Return max(staleness, 1)^-p of a gradient that is `staleness` updates old [], p by the clock of `state`."""
        power = jnp.maximum(0.0, 1 - state.clock / max(1, self.warm_up))
        return jnp.float32(jnp.maximum(staleness, 1)) ** -power


class FixedLag(Protocol):
    """Every update uses a gradient at the parameters of `lag` updates ago, exactly or (`drawn_from`) on average.

    Models wait in a queue of `lag` + 1, the oldest first; each update uses one, and the newest parameters join. By default it
    uses the oldest model, so the lag is constant. With `drawn_from: m` it uses one of the m oldest, each with probability 1/m.
    A gradient's lag is then `lag` + 1 - m + k with probability (1 - 1/m)^k / m, k = 0, 1, ...: the mean is `lag`, the standard
    deviation is the square root of m (m - 1). m = `lag` + 1 gives the geometric distribution of `lag` + 1 asynchronous workers
    that are equally likely to be next. The first models are all the initial parameters.

    During the ramp, update t has lag x t / ramp. Workers read in turn, which only decides whose examples are used; compute
    times and the network are not used. With n workers and a constant lag of n - 1 this is asynchronous SGD in lockstep.
    """

    name = "fixed-lag"

    has_clock = False

    lag: Natural = Field(default=0, description="age of the parameters, updates; with `drawn_from` its mean", examples=[20])
    ramp: Natural = Field(default=0, description="updates over which the lag grows from 0")
    drawn_from: Count = Field(
        default=1,
        description="m: each update draws one of the m oldest waiting gradients; 1: the lag is constant; at most `lag` + 1",
    )

    @model_validator(mode="after")
    def _so_many_wait(self) -> FixedLag:
        if self.drawn_from > self.lag + 1:
            raise ValueError(
                f"`drawn_from` ({self.drawn_from}) must not exceed `lag` + 1 ({self.lag + 1}), as many gradients as wait"
            )
        return self

    def start(self, sim: Simulation) -> None:
        sim.process(self._updates(sim))

    def _updates(self, sim: Simulation) -> Process:
        models = list[tuple[int, Copy]]()  # reader and model of updates to come, the oldest first
        reads = 0  # updates whose models have been read
        oldest, draws = self.drawn_from, numerics.iterate_uniforms(sim.seed, "lag")
        for update in count():
            # An update with lag l reads its model l updates earlier: several may read now, and none while the lag grows.
            while reads - self._lag(reads) == update:
                reader = reads % sim.workers
                models.append((reader, sim.read(reader, sent=False)))
                reads += 1
            worker, model = models.pop(int(next(draws) * min(oldest, len(models))) if oldest > 1 else 0)
            gradient = sim.compute(worker, model, duration=0)
            yield gradient.finished
            sim.push(gradient, cost=NOTHING)

    def _lag(self, update: int) -> int:
        """Return the age of this update's gradient if the lag is constant; it grows by at most 1 per update."""
        grown = self.lag if update >= self.ramp else self.lag * update // self.ramp
        return min(grown, update)
