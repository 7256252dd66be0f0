"""Bandwidth-aware gates [Odena 2016, section 2.3, eq. 9]: a message is sent with a probability that follows the gradients."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import ClassVar

from pydantic import Field

from fred import streams
from fred.timing.held import Gradient
from fred.timing.network import NOTHING
from fred.timing.protocol import Protocol
from fred.timing.simulation import Process, Simulation

_BLOCK = 64  # draws made at a time


class Gated(Protocol):
    """As asynchronous, but messages pass with probability 1 / (1 + c / (v + epsilon)), v a statistic of the server's state.

    A fetch that does not pass leaves the worker with the parameters it has. For a gradient that does not pass, the server
    applies the worker's last one again, with its old timestamp. Neither takes time on the network.
    """

    needs_values: ClassVar[bool] = True

    c_push: float = Field(0.0, ge=0, description="how hard pushing is restrained; 0: not at all", examples=[0.01])
    c_fetch: float = Field(0.0, ge=0, description="how hard fetching is restrained; 0: not at all", examples=[0.1])
    epsilon: float = Field(1e-4, gt=0, description="added to the statistic")

    def start(self, sim: Simulation) -> None:
        for worker in range(sim.workers):
            sim.work(worker, partial(self._work, sim, worker))

    def _work(self, sim: Simulation, worker: int) -> Process:
        fetches = self._gate(sim, "fetch gate", worker, self.c_fetch)
        pushes = self._gate(sim, "push gate", worker, self.c_push)
        last: Gradient | None = None
        while True:
            if last is None or fetches():
                model = yield from sim.pull(worker)
            gradient = sim.compute(worker, model)
            yield gradient.finished
            if last is None or pushes():
                yield from sim.send(gradient)
                sim.push(gradient)
                last = gradient
            else:
                sim.drop(gradient, cost=NOTHING)
                sim.push(last, cost=NOTHING)

    def _gate(self, sim: Simulation, purpose: str, worker: int, c: float) -> Callable[[], bool]:
        """Whether the worker's next message of this purpose passes."""
        if c == 0:
            return lambda: True
        draws = _draws(sim.seed, purpose, worker)
        return lambda: next(draws) < 1 / (1 + c / (sim.statistic() + self.epsilon))


def _draws(seed: int, purpose: str, worker: int) -> Iterator[float]:
    position = 0
    while True:
        yield from streams.uniforms(seed, purpose, worker, position, _BLOCK).tolist()
        position += _BLOCK
