"""Ringmaster [Maranjyan, Tyurin, Richtarik 2025, arXiv:2501.16168, algorithms 4-5]: asynchronous, but nothing is older than R.

Example: a minute in which three workers take 0.5 s for each gradient, and the fourth 2 s, in which there are twelve updates.
    >>> import fred
    >>> settings = {
    ...     "cluster": {"workers": 4, "speeds": [1.0, 1.0, 1.0, 0.25], "compute": {"name": "constant", "seconds": 0.5}},
    ...     "stop": {"seconds": 60.0},
    ...     "algorithm": {"name": "asgd", "learning_rate": 0.1},
    ... }
    >>> def told(**protocol):
    ...     summary = fred.run(fred.scenario(settings, protocol=protocol)).summary
    ...     return summary[["updates", "staleness_max", "gradients_dropped"]].iloc[0].tolist()
    >>> told(name="bounded-delay", threshold=13)
    [386, 12, 0]
    >>> told(name="bounded-delay", threshold=6)
    [357, 2, 59]
    >>> told(name="bounded-delay", threshold=6, late="finish")
    [357, 2, 29]
"""

import math
from functools import partial
from typing import ClassVar, Literal

import simpy
from pydantic import Field

from fred.components.component import Count
from fred.protocols.protocol import Protocol
from fred.timing.copies import Gradient
from fred.timing.simulation import Process, Simulation


class BoundedDelay(Protocol):
    """Every gradient makes an update when it arrives, unless R updates or more have been made since its model was read.

    As soon as a worker's model is so old, the worker gives up its gradient and begins one at the newest model; or (`late:
    finish`) it goes on, and what it delivers is dropped. With R = 1 only the first gradient at each model counts; without a
    bound this is asynchronous SGD. R = ceil(variance of a gradient / accuracy that is asked for) is best [theorem 4.2].
    """

    faults: ClassVar[str] = "Who is back reads the newest model; nobody waits."

    threshold: Count | Literal["sqrt"] | None = Field(
        None,
        description="R, updates; absent: as many as there are workers; `sqrt`: the root of how many there were, at least 1",
        examples=[8],
    )
    late: Literal["interrupt", "finish"] = Field(
        "interrupt", description="what a worker does whose model is R updates old: give its gradient up, or deliver it in vain"
    )

    def start(self, sim: Simulation) -> None:
        server = _Server(sim, self)
        for worker in range(sim.workers):
            sim.work(worker, partial(self._work, sim, server, worker))

    def _work(self, sim: Simulation, server: "_Server", worker: int) -> Process:
        pull, send, begin, env = sim.pull, sim.send, sim.begin, sim.env
        while True:
            gradient = None
            server.reads(worker)
            try:
                model = yield from pull(worker)
                gradient = begin(worker, model)
                yield gradient.end - env._now
                yield from send(gradient)
            except simpy.Interrupt:
                if gradient:
                    sim.give_up(gradient)
                continue
            server.accept(gradient)
            del model, gradient  # or they would be held until the next ones are there


class _Server:
    """Steps with what is fresh enough, and tells those whose models have become too old."""

    def __init__(self, sim: Simulation, protocol: BoundedDelay):
        self._sim, self._interrupts = sim, protocol.late == "interrupt"
        self._threshold = protocol.threshold or sim.workers
        self._readers: list[list[int]] = []  # by the clock at which they have read
        self._oldest = 0  # clock of which there are readers left
        self._read_at = [-1] * sim.workers  # the clock at which each has read; -1: it has been told

    def reads(self, worker: int) -> None:
        """A worker asks for the model."""
        clock = self._sim.clock()
        self._readers.extend([] for _ in range(clock + 1 - len(self._readers)))
        self._readers[clock].append(worker)
        self._read_at[worker] = clock

    def accept(self, gradient: Gradient) -> None:
        """A gradient has arrived."""
        clock = self._sim.clock()
        if clock - gradient.copy.timestamp >= self._bound(clock):
            self._sim.drop(gradient)
            return
        self._sim.push(gradient)
        self._read_at[gradient.worker] = -1
        if self._interrupts:
            self._interrupt(clock + 1 - self._bound(clock + 1))

    def _bound(self, updates: int) -> int:
        """R, after so many updates [`sqrt`: arXiv:2605.18174]."""
        return max(1, math.isqrt(updates)) if self._threshold == "sqrt" else self._threshold

    def _interrupt(self, newest: int) -> None:
        """All who have read at this clock, or before."""
        while self._oldest <= newest and self._oldest < len(self._readers):
            readers, self._readers[self._oldest] = self._readers[self._oldest], []
            for worker in readers:
                if self._read_at[worker] == self._oldest:
                    self._read_at[worker] = -1
                    self._sim.interrupt(worker)
            self._oldest += 1
