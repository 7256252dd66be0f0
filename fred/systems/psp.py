"""Stale and partially synchronous parallel SGD.

| name                  | source                                                                                            |
|-----------------------|---------------------------------------------------------------------------------------------------|
| psp-sgd, partial      | PSP-SGD, algorithm 1, extending Pan et al. 2017; docs/errata.md, items 9 and 12                   |
| ssp, StaleSynchronous | Ho et al. 2013, "More effective distributed ML via a stale synchronous parallel parameter server" |

PSP-SGD: four servers hold a block each, and one worker of four is four times slower; in a minute, with c = 4 and 3:
    >>> import fred
    >>> settings = {
    ...     "cluster": {"workers": 4, "servers": 4, "speeds": [1, 1, 1, 0.25], "compute": {"name": "constant", "seconds": 0.5}},
    ...     "stop": {"seconds": 60.0},
    ...     "algorithm": {"name": "asgd", "learning_rate": 0.1},
    ... }
    >>> for gradients in (4, 3):
    ...     scenario = fred.scenario(settings, protocol={"name": "partial", "gradients": gradients})
    ...     print(fred.run(scenario).summary[["updates", "gradients_dropped"]].iloc[0].tolist())
    [29, 0]
    [119, 29]

SSP: a minute in which three workers take 0.5 s for each gradient, and the fourth 2 s.
    >>> import fred
    >>> settings = {
    ...     "cluster": {"workers": 4, "speeds": [1.0, 1.0, 1.0, 0.25], "compute": {"name": "constant", "seconds": 0.5}},
    ...     "stop": {"seconds": 60.0},
    ...     "algorithm": {"name": "asgd", "learning_rate": 0.1},
    ... }
    >>> def measured(**protocol):
    ...     summary = fred.run(fred.scenario(settings, protocol=protocol)).summary
    ...     return summary[["updates", "staleness_mean", "workers_time_waiting"]].round(2).iloc[0].tolist()
    >>> measured(name="stale-synchronous", bound=0)
    [119.0, 1.49, 0.55]
    >>> measured(name="stale-synchronous", bound=8)
    [143.0, 8.31, 0.5]
    >>> measured(name="stale-synchronous", bound=None)
    [386.0, 192.5, 0.0]
"""

import math
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Annotated, ClassVar, Literal

import simpy
from pydantic import Field

from fred.cluster.cluster import Cluster
from fred.components.component import NANOSECONDS, Count, Natural, Time
from fred.learning.server import Family, Scaling, Server
from fred.protocols.protocol import Central, Protocol
from fred.schedule.layout import Layout
from fred.timing.copies import Copy, Gradient
from fred.timing.simulation import Process, Simulation


class PSPSGD(Server):
    """Partially synchronous SGD: each server steps with the mean of the d gradients in time, at d times the rate.

    With `scaling: none` the rate is not multiplied by d.

        >>> from fred.systems.psp import PSPSGD
        >>> [PSPSGD(learning_rate=0.1, **options).scaling for options in ({}, {"scaling": "none"})]
        ['gradients', 'none']
    """

    name = "psp-sgd"
    family = Family.AS_THEY_COME
    rule = "w_k <- w_k - d step(mean of the d g_k)    (the block k of w and of g)"
    protocol = "partial"

    scaling: Scaling = Field(
        default="gradients", description="linear scaling: the rate is multiplied by the d gradients of an update"
    )


class Partial(Protocol):
    """Servers update their blocks with the first c gradients; workers continue with the first b % of the blocks.

    When they have enough, both wait for more until a time-out, or until they have everything. A worker continues with the
    newest version of which it has enough blocks, and its old copies of the other blocks. While it computes at version t, it
    accepts only blocks of version t + 1 or later, so the blocks of a server that is always late are never used. With
    `late_blocks: keep` it accepts every block that is newer than its copy. A server drops gradients of versions older than
    its own. At the start all workers have the initial parameters.
    """

    name = "partial"
    faults: ClassVar[str] = (
        "A returning worker continues with its newest version; with fewer than c workers, or b % of the servers, all wait."
    )

    gradients: Count | None = Field(
        default=None, description="c: number of gradients that a server waits for; absent: all workers'"
    )
    blocks_percent: Annotated[float, Field(gt=0, le=100)] = Field(
        default=100.0, description="b: share of blocks a worker waits for, %"
    )
    late_blocks: Literal["drop", "keep"] = Field(
        default="drop", description="what a worker does with blocks of an older version"
    )
    push_timeout: Time = Field(default=0.0, description="tau_1: time that a server waits for further gradients, s")
    pull_timeout: Time = Field(default=0.0, description="tau_2: time that a worker waits for further blocks, s")

    def layout(self, cluster: Cluster) -> Layout:
        return Layout.central(cluster.servers)

    def check(self, cluster: Cluster) -> None:
        if self.gradients is not None and self.gradients > cluster.size:
            raise ValueError(f"`gradients` ({self.gradients}) must not exceed the number of workers ({cluster.size})")

    def start(self, sim: Simulation) -> None:
        workers = [_Worker(sim, self, number) for number in range(sim.workers)]
        servers = [_Server(sim, self, number, workers) for number in range(sim.servers)]
        for worker in workers:
            sim.work(worker.number, partial(worker.work, servers))
        for server in servers:
            sim.process(server.serve())


def _wait_for_quorum(sim: Simulation, arrivals: "_Arrivals", is_quorum: Callable[[], bool], timeout: float) -> Process:
    """Wait until enough messages have arrived, then until all have arrived or the time-out."""
    while not is_quorum():
        yield from arrivals.wait()
    if not timeout or arrivals.is_complete():
        return
    deadline = sim.env.after(round(timeout * NANOSECONDS))
    while not deadline.processed and not arrivals.is_complete():
        yield deadline | arrivals.event


class _Arrivals:
    """The arrivals of messages at a worker or server, which can be waited for."""

    def __init__(self, sim: Simulation, is_complete: Callable[[], bool], waiter: int | str, reason: Callable[[], str]):
        self._sim, self.is_complete, self._waiter, self._reason = sim, is_complete, waiter, reason
        self.event: simpy.Event = sim.env.event()  # the next arrival

    def wait(self) -> Process:
        yield from self._sim.wait(self._waiter, self.event, self._reason())

    def announce(self) -> None:
        """Wake the process that waits for a message."""
        self.event.succeed()
        self.event = self._sim.env.event()


class _Worker:
    def __init__(self, sim: Simulation, protocol: Partial, number: int):
        self._sim, self._protocol, self.number = sim, protocol, number
        self._quorum = math.ceil(protocol.blocks_percent / 100 * sim.servers)
        self._version = 0  # t: of the blocks that it waits for
        self._composed: tuple[list[Copy], Copy] | None = None  # the blocks at the last gradient, and their model
        self._newest: list[Copy] = [sim.read_block(number, server, sent=False)[0] for server in range(sim.servers)]
        self._arrivals = _Arrivals(sim, lambda: self._count_blocks(self._version) == sim.servers, number, self._reason)

    def receive(self, server: int, block: Copy) -> None:
        """Receive a server's block."""
        late = block.timestamp < self._version and self._protocol.late_blocks == "drop"
        if block.timestamp > self._newest[server].timestamp and not late:
            self._newest[server] = block
            self._arrivals.announce()

    def work(self, servers: "list[_Server]") -> Process:
        sim, self._version = self._sim, 0  # a returning worker continues with its newest version
        while True:
            yield from _wait_for_quorum(
                sim, self._arrivals, lambda: self._count_blocks(self._version) >= self._quorum, self._protocol.pull_timeout
            )
            # The newest version of which it has a quorum of blocks.
            version = sorted((block.timestamp for block in self._newest), reverse=True)[self._quorum - 1]
            self._version = version + 1  # what arrives from now on is for the next gradient
            gradient = sim.compute(self.number, self._compose())
            yield gradient.finished
            for server in servers:
                sim.process(server.deliver_block(gradient, version), self.number)

    def _count_blocks(self, version: int) -> int:
        """Return the number of blocks of this version or a later one."""
        return sum(block.timestamp >= version for block in self._newest)

    def _compose(self) -> Copy:
        """Return all newest blocks; without a new one, the model as it was."""
        if self._composed is None or self._composed[0] != self._newest:
            self._composed = list(self._newest), self._sim.compose(self.number, self._newest)
        return self._composed[1]

    def _reason(self) -> str:
        return f"{self._quorum} blocks of version {self._version} (it has {self._count_blocks(self._version)})"


class _Server:
    def __init__(self, sim: Simulation, protocol: Partial, number: int, workers: list[_Worker]):
        self._sim, self._protocol, self._number, self._workers = sim, protocol, number, workers
        self._quorum = protocol.gradients or sim.workers
        self._received = 0  # gradients of this round
        self._responded: set[int] = set()  # workers
        self._versions_received: set[tuple[int, int]] = set()  # worker and version of each gradient of this round
        self._arrivals = _Arrivals(sim, self._have_all_responded, f"server {number}", self._reason)

    def deliver_block(self, gradient: Gradient, version: int) -> Process:
        """Send the server its block of a worker's gradient, which joins the round unless it comes too late or twice."""
        yield from self._sim.send(gradient, self._number)
        repeated = (gradient.worker, version) in self._versions_received  # the worker crashed and computed it again
        if repeated or version < self._sim.clock(block=self._number):
            self._sim.drop(gradient, block=self._number)
            return
        self._sim.add(gradient, block=self._number)
        self._versions_received.add((gradient.worker, version))
        self._received += 1
        self._responded.add(gradient.worker)
        self._arrivals.announce()

    def _have_all_responded(self) -> bool:
        return len(self._responded) == self._sim.workers

    def _reason(self) -> str:
        return f"{self._quorum} gradients (it has {self._received})"

    def serve(self) -> Process:
        sim = self._sim
        while True:
            timeout = self._protocol.push_timeout
            yield from _wait_for_quorum(sim, self._arrivals, lambda: self._received >= self._quorum, timeout)
            sim.commit(block=self._number)
            self._received, self._responded, self._versions_received = 0, set(), set()
            for worker in self._workers:
                block, wait = sim.read_block(worker.number, self._number)
                sim.later(wait, partial(worker.receive, self._number, block))


class SSP(Server):
    """Stale synchronous parallel SGD: gradients are applied on arrival; a bound limits how far workers run ahead."""

    name = "ssp"
    family = Family.AS_THEY_COME
    rule = "w <- w - step(g)"
    protocol = "stale-synchronous"


class StaleSynchronous(Central):
    """Asynchronous, but a worker more than `bound` steps ahead of the slowest one waits for it.

    In step c a worker needs parameters that include all workers' updates of steps up to c - bound - 1. With a cache it fetches
    new parameters only when its copy lacks one of these; without a cache it fetches in every step.

    Bound 0 is bulk-synchronous: no worker begins step k before all have finished step k - 1. Without a bound it is asynchronous
    SGD; with a cache as well, all workers use the initial parameters for ever.
    """

    name = "stale-synchronous"
    faults: ClassVar[str] = (
        "A returning worker reads the newest model; the others wait once they are as far ahead as the bound allows."
    )

    bound: Natural | None = Field(default=3, description="s: largest lead over the slowest worker, steps; null: no bound")
    cache: bool = Field(
        default=True, description="whether to use cached parameters again while they are fresh enough, instead of fetching"
    )

    def start(self, sim: Simulation) -> None:
        progress = _Steps(sim)
        for worker in range(sim.workers):
            sim.work(worker, partial(self._work, sim, progress, worker))

    def _work(self, sim: Simulation, progress: "_Steps", worker: int) -> Process:
        def push(gradient: Gradient, block: int) -> None:
            sim.push(gradient, block=block)

        fetch, compute, deliver = self.fetch, self.compute, self.deliver
        model: Copy | None = None  # a process that restarts after a crash has none
        included_steps = 0  # of every worker, that `model` surely includes
        while True:
            step = progress.steps[worker]
            required = 0 if self.bound is None else step - self.bound
            if step == 0 or not self.cache or included_steps < required:
                while progress.slowest < required:
                    yield from sim.wait(worker, progress.advanced, f"all to finish step {progress.slowest}")
                included_steps, model = progress.slowest, None
            if model is None:
                model = yield from fetch(sim, worker)
            gradient = yield from compute(sim, worker, model)
            yield from deliver(sim, gradient, push)
            model = gradient.copy  # composed, also if `fetch` returned blocks on their way
            del gradient  # or it would be held until the next one is there
            progress.finish(worker)


class _Steps:
    """The number of steps that each worker has finished."""

    def __init__(self, sim: Simulation):
        self._sim = sim
        self._finished: Counter[int] = Counter()  # step -> number of workers that have finished it
        self.steps = [0] * sim.workers  # that each worker has finished
        self.slowest = 0  # steps that every worker has finished
        self.advanced = sim.env.event()

    def finish(self, worker: int) -> None:
        """Record that a worker has finished one more step."""
        step = self.steps[worker]
        self.steps[worker] += 1
        self._finished[step] += 1
        if self._finished[step] == self._sim.workers:
            self.slowest += 1
            self.advanced.succeed()
            self.advanced = self._sim.env.event()
