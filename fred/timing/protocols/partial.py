"""Partially synchronous parallelism [PSP-SGD, algorithm 1; docs/errata.md, items 9 and 12]: who waits for a part only."""

import math
from collections.abc import Callable
from typing import Annotated, ClassVar

import simpy
from pydantic import Field

from fred.timing.cluster import Cluster
from fred.timing.durations import NANOSECONDS
from fred.timing.protocol import Protocol
from fred.timing.recorder import Block, Gradient, Model
from fred.timing.simulation import Process, Simulation

Seconds = Annotated[float, Field(ge=0)]


class Partial(Protocol):
    """Each server updates its block with the first c gradients; each worker goes on with the first b % of the blocks.

    Both wait a time-out longer, counted from the moment at which they have enough, or until they have everything. A worker
    goes on with the newest version of which it has enough blocks; for the others it keeps what it had. A server drops
    gradients of versions older than its own. At the start everybody has the initial parameters.
    """

    sharded: ClassVar[bool] = True

    gradients: int | None = Field(None, ge=1, description="c: gradients that a server waits for; absent: all workers'")
    blocks_percent: Annotated[float, Field(gt=0, le=100)] = Field(100.0, description="b: share of blocks a worker waits for, %")
    push_timeout: Seconds = Field(0.0, description="tau_1: for how long a server waits for further gradients, s")
    pull_timeout: Seconds = Field(0.0, description="tau_2: for how long a worker waits for further blocks, s")

    def check(self, cluster: Cluster) -> None:
        if self.gradients is not None and self.gradients > cluster.size:
            raise ValueError(f"`gradients` ({self.gradients}) must not exceed the number of workers ({cluster.size})")

    def start(self, sim: Simulation) -> None:
        workers = [_Worker(sim, self, number) for number in range(sim.workers)]
        servers = [_Server(sim, self, number, workers) for number in range(sim.servers)]
        for worker in workers:
            sim.process(worker.work(servers))
        for server in servers:
            sim.process(server.serve())


def _enough_then_all(sim: Simulation, arrivals: "_Arrivals", enough: Callable[[], bool], timeout: float) -> Process:
    """Wait until there is enough, then until there is everything or the time is out."""
    while not enough():
        yield from arrivals.next()
    if arrivals.complete():
        return
    deadline = sim.env.timeout(round(timeout * NANOSECONDS)) if timeout else None
    while deadline is not None and not deadline.processed and not arrivals.complete():
        yield deadline | arrivals.event


class _Arrivals:
    """Something to wait for whenever a message arrives."""

    def __init__(self, sim: Simulation, complete: Callable[[], bool], waiter: int | str, reason: Callable[[], str]):
        self._sim, self.complete, self._waiter, self._reason = sim, complete, waiter, reason
        self.event: simpy.Event = sim.env.event()

    def next(self) -> Process:
        yield from self._sim.wait(self._waiter, self.event, self._reason())

    def announce(self) -> None:
        """A message has arrived."""
        self.event.succeed()
        self.event = self._sim.env.event()


class _Worker:
    def __init__(self, sim: Simulation, protocol: Partial, number: int):
        self._sim, self._protocol, self.number = sim, protocol, number
        self._needed = math.ceil(protocol.blocks_percent / 100 * sim.servers)
        self._version = 0  # t
        self._newest: list[Block] = [sim.initial_block(number, server) for server in range(sim.servers)]
        self._arrivals = _Arrivals(sim, lambda: self._having(self._version) == sim.servers, number, self._reason)

    def receive(self, block: Block) -> None:
        """A server's block has arrived."""
        if block.timestamp > self._newest[block.replica].timestamp:
            self._newest[block.replica] = block
            self._arrivals.announce()

    def work(self, servers: "list[_Server]") -> Process:
        sim, model = self._sim, None
        while True:
            yield from _enough_then_all(
                sim, self._arrivals, lambda: self._having(self._version) >= self._needed, self._protocol.pull_timeout
            )
            self._version = sorted((block.timestamp for block in self._newest), reverse=True)[self._needed - 1]
            model = self._compose(model)
            gradient = sim.compute(self.number, model)
            yield gradient.finished
            for server in servers:
                sim.process(server.bring(gradient, self._version))
            self._version += 1

    def _having(self, version: int) -> int:
        return sum(block.timestamp >= version for block in self._newest)

    def _compose(self, before: Model | None) -> Model:
        new = [block for block in self._newest if before is None or block is not before.blocks[block.replica]]
        return self._sim.record.compose(new, before) if new or before is None else before

    def _reason(self) -> str:
        return f"{self._needed} blocks of version {self._version} (it has {self._having(self._version)})"


class _Server:
    def __init__(self, sim: Simulation, protocol: Partial, number: int, workers: list[_Worker]):
        self._sim, self._protocol, self._number, self._workers = sim, protocol, number, workers
        self._needed = protocol.gradients or sim.workers
        self._received = 0  # gradients of this round
        self._responded: set[int] = set()  # workers
        self._arrivals = _Arrivals(sim, self._complete, f"server {number}", self._reason)

    def bring(self, gradient: Gradient, version: int) -> Process:
        """A worker sends its gradient's block."""
        yield from self._sim.send(gradient, self._number)
        if version < self._sim.record.clocks[self._number]:
            self._sim.drop(gradient, self._number)
            return
        self._sim.add(gradient, self._number)
        self._received += 1
        self._responded.add(gradient.worker)
        self._arrivals.announce()

    def _complete(self) -> bool:
        return len(self._responded) == self._sim.workers

    def _reason(self) -> str:
        return f"{self._needed} gradients (it has {self._received})"

    def serve(self) -> Process:
        sim = self._sim
        while True:
            timeout = self._protocol.push_timeout
            yield from _enough_then_all(sim, self._arrivals, lambda: self._received >= self._needed, timeout)
            sim.commit(self._number)
            self._received, self._responded = 0, set()
            for worker in self._workers:
                block, arrival = sim.read_block(worker.number, self._number)
                sim.later(arrival - sim.now, lambda worker=worker, block=block: worker.receive(block))  # type: ignore[misc]
