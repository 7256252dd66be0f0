"""Ringmaster: asynchronous SGD in which no gradient is R or more updates old.

| name                     | source                                                                   |
|--------------------------|--------------------------------------------------------------------------|
| ringmaster, BoundedDelay | Maranjyan, Tyurin, Richtarik 2025, arXiv:2501.16168, algorithms 4-5      |
| ringmaster-lmo           | arXiv:2605.18174; Muon: Jordan et al. 2024; signs: Bernstein et al. 2018 |

Example: a minute in which three workers take 0.5 s for each gradient, and the fourth 2 s, the time of twelve updates.
    >>> import fred
    >>> settings = {
    ...     "cluster": {"workers": 4, "speeds": [1.0, 1.0, 1.0, 0.25], "compute": {"name": "constant", "seconds": 0.5}},
    ...     "stop": {"seconds": 60.0},
    ...     "algorithm": {"name": "asgd", "learning_rate": 0.1},
    ... }
    >>> def measured(**protocol):
    ...     summary = fred.run(fred.scenario(settings, protocol=protocol)).summary
    ...     return summary[["updates", "staleness_max", "gradients_dropped"]].iloc[0].tolist()
    >>> measured(name="bounded-delay", threshold=13)
    [386, 12, 0]
    >>> measured(name="bounded-delay", threshold=6)
    [357, 2, 59]
    >>> measured(name="bounded-delay", threshold=6, late="finish")
    [357, 2, 29]
"""

from __future__ import annotations

import math
from collections import OrderedDict
from functools import partial
from typing import ClassVar, Literal

import simpy
from pydantic import Field

from fred.components.component import Count
from fred.learning.optimizer import Optimizer, Transformation
from fred.learning.server import Family, Server
from fred.protocols.protocol import Protocol
from fred.timing.copies import Gradient
from fred.timing.simulation import Process, Simulation


class Ringmaster(Server):
    """Asynchronous SGD with bounded delay: workers abort gradients that become R updates stale, and restart."""

    name = "ringmaster"
    family = Family.AS_THEY_COME
    rule = "w <- w - step(g)    (if tau < R)"
    protocol = "bounded-delay"


class RingmasterLMO(Server):
    """Ringmaster with momentum and normalized steps (Muon, sign descent), for gradients less than R updates stale.

    A linear minimisation oracle gives the step: `muon` (approximately the spectral norm of matrices), `signum` (the maximum
    norm), or any other `optimizer` of optax. Muon's moving averages are bias-corrected. Its five Newton-Schulz iterations
    bring singular values between 0.68 and 1.2, not to 1; those below 0.2 % of the matrix's norm stay smaller. For vectors
    it makes the steps of Adam with Nesterov momentum, where the paper has momentum only.

    A gradient with two orthogonal directions, one a hundred times as long; the step is about equally long in both:

        >>> from fred.systems.ringmaster import RingmasterLMO
        >>> import jax.numpy as jnp
        >>> server = RingmasterLMO(learning_rate=0.1)
        >>> state = server.init({"w": jnp.zeros((2, 2))}, workers=2)
        >>> state = server.apply_update(state, {"w": jnp.diag(jnp.array([1.0, 100.0]))}, timestamp=0, worker=0)
        >>> (10 * state.params["w"]).round(0).tolist()
        [[-1.0, 0.0], [0.0, -1.0]]
    """

    name = "ringmaster-lmo"
    family = Family.AS_THEY_COME
    rule = """\
m <- b m + (1 - b) g,  u = b m + (1 - b) g                             (if tau < R)
W <- W - rate sqrt(max(1, outputs / inputs)) U S' V^T, if u = U S V^T   (`muon`, matrices; S' from 0.68 to 1.2)
w <- w - rate u / (sqrt(mean of g^2) + e)                              (`muon`, vectors: Adam with Nesterov's momentum)
w <- w - rate sign(u)                                                  (`signum`, where u = m)"""
    protocol = "bounded-delay"

    optimizer: Optimizer = Field(
        default=(Transformation.unchecked("muon"),),
        description="optax gradient transformation that normalizes steps, or a list",
    )


class BoundedDelay(Protocol):
    """Asynchronous updates on arrival, except for gradients that are R or more updates stale.

    As soon as a worker's model is R updates old, the worker aborts its gradient and begins one at the newest model. With
    `late: finish` it finishes the gradient, which is dropped on arrival. With R = 1 only the first gradient at each model is
    used; without a bound this is asynchronous SGD. The best R is ceil(variance of a gradient / wanted accuracy) [theorem 4.2].

    `threshold: sqrt` is one of three parts of the parameter-free method of arXiv:2605.18174. The others are options of the
    algorithm: a rate that falls as (k + 1)^-0.75 (`inverse_power_schedule`), and a momentum whose weight falls as
    (k + 1)^-0.5 (`inverse_power_ema`). Run `parameter-free` of `systems/ringmaster-muon` has all three.
    """

    name = "bounded-delay"
    faults: ClassVar[str] = "A returning worker reads the newest model; no worker waits."

    threshold: Count | Literal["sqrt"] | None = Field(
        default=None,
        description="R, updates; absent: the number of workers; `sqrt`: the square root of the updates so far, at least 1",
        examples=[8],
    )
    late: Literal["interrupt", "finish"] = Field(
        default="interrupt",
        description="what a worker with a model R updates old does with its gradient: abort it, or finish it, to be dropped",
    )

    def start(self, sim: Simulation) -> None:
        server = _Server(sim, self)
        for worker in range(sim.workers):
            sim.work(worker, partial(self._work, sim, server, worker))

    def _work(self, sim: Simulation, server: _Server, worker: int) -> Process:
        pull, send, begin, accept, env = sim.pull, sim.send, sim.begin, server.accept, sim.env
        server.record_read(worker)
        while True:
            gradient = None
            try:
                model = yield from pull(worker)
                gradient = begin(worker, model)
                yield gradient.end - env._now
                yield from send(gradient)
            except simpy.Interrupt:
                if gradient:
                    sim.abort(gradient)
                server.record_read(worker)
                continue
            accept(gradient)
            del model, gradient  # or they would be held until the next ones are there


class _Server:
    """A server that steps with fresh gradients, and interrupts workers whose models are too old."""

    def __init__(self, sim: Simulation, protocol: BoundedDelay):
        self._sim, self._push, self._interrupts = sim, sim.push, protocol.late == "interrupt"
        self._grows = protocol.threshold == "sqrt"
        self._bound: int = 1 if protocol.threshold == "sqrt" else protocol.threshold or sim.workers  # R
        self._clock = 0  # updates
        # Clock of the last read of each worker that is not being interrupted, oldest first.
        self._readers = OrderedDict[int, int]()
        self._oldest = 0  # earliest of these clocks

    def record_read(self, worker: int) -> None:
        """Record that a worker reads the model."""
        self._readers[worker] = self._clock
        self._readers.move_to_end(worker)

    def accept(self, gradient: Gradient) -> None:
        """Accept an arrived gradient, whose worker asks for the model now."""
        clock, readers = self._clock, self._readers
        if clock - gradient.copy.timestamp >= self._bound:
            self._sim.drop(gradient)
        else:
            self._push(gradient)
            self._clock = clock = clock + 1
            if self._grows:
                self._bound = math.isqrt(clock)  # [arXiv:2605.18174]
        if self._interrupts:
            readers[gradient.worker] = clock  # it reads now, so its last model's age must not interrupt it
            readers.move_to_end(gradient.worker)
            if self._oldest <= clock - self._bound:
                self._interrupt(clock - self._bound)

    def _interrupt(self, newest: int) -> None:
        """Interrupt all workers that have read at this clock, or before."""
        # The last reader, whose gradient has just arrived, is never that old: so the loop ends before there is none.
        while (oldest := next(iter(self._readers.values()))) <= newest:
            self._sim.interrupt(self._readers.popitem(last=False)[0])
        self._oldest = oldest
