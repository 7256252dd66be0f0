"""The base classes of protocols: of all, and of those with servers.

`Central` is the base of protocols whose workers fetch models from servers and deliver gradients to them [Chen et al. 2017,
section 2].
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from itertools import accumulate
from typing import ClassVar, Literal

import simpy
from pydantic import Field

from fred.cluster.cluster import Cluster
from fred.components.component import Component
from fred.schedule.layout import Cut, Layout
from fred.timing.copies import Copy, Gradient
from fred.timing.loop import Wait
from fred.timing.simulation import Process, Simulation

_FORWARD = 1 / 3  # of a gradient's time: a layer takes one product forwards and two backwards (docs/errata.md, item 18)
Use = Callable[[Gradient, int], object]  # applies a gradient, or a block of it, on arrival at a server


class Protocol(Component):
    """A set of processes that pull, compute and push, and so decide which workers wait for which.

    The server decides what an update does. A custom protocol, in which every worker fetches the next model while its gradient
    is on the way, so that it never waits:

        >>> import fred
        >>> class Ahead(fred.Protocol):
        ...     '''Workers read the next model while their gradients are on the way.'''
        ...     def start(self, sim):
        ...         for worker in range(sim.workers):
        ...             sim.process(self.work(sim, worker))
        ...     def work(self, sim, worker):
        ...         while True:
        ...             gradient = sim.compute(worker, sim.read(worker))
        ...             yield gradient.finished
        ...             sim.process(self.deliver(sim, gradient))
        ...     def deliver(self, sim, gradient):
        ...         yield from sim.send(gradient)
        ...         sim.push(gradient)
        >>> scenario = fred.scenario({
        ...     "cluster": {"workers": 2, "network": {"latency": {"name": "constant", "seconds": 0.25}}},
        ...     "stop": {"updates": 4},
        ...     "protocol": Ahead(),
        ...     "algorithm": {"name": "asgd", "learning_rate": 0.1},
        ... })
        >>> fred.run(scenario).summary[["virtual_seconds", "staleness_mean"]].values.tolist()
        [[2.25, 1.5]]
    """

    name: ClassVar[str] = ""  # in scenarios, of a class in `fred/systems` or `fred/protocols`
    has_clock: ClassVar[bool] = True  # False: no virtual time passes, only the order of events matters
    asks_for: ClassVar[Literal["statistic", "loss"]] = "statistic"  # value on which timing depends, if `needs_values`
    pulls_models: ClassVar[bool] = False  # True: it has the option `pulls`, which `needs_pulls` returns
    has_allreduces: ClassVar[bool] = True  # False: without servers, models travel along the edges of a graph only
    faults: ClassVar[str] = ""  # effect of an offline worker on itself and on the others

    @abstractmethod
    def start(self, sim: Simulation) -> None:
        """Start the processes of every worker and server.

        Args:
            sim: the run, at time 0; `sim.process` and `sim.work` start processes.
        """

    @property
    def follows_collective(self) -> Literal["always", "partly", "never"]:
        """Return how far allreduces follow the network's `collective`."""
        return "always" if self.has_allreduces else "never"

    @property
    def needs_values(self) -> bool:
        """Return True if timing depends on learning, so that simulation and training run together."""
        return False

    @property
    def sends_sums(self) -> bool:
        """Return True if one message may be the sum of several gradients or pseudo-gradients."""
        return False

    @property
    def needs_examples(self) -> bool:
        """Return True if the protocol depends on the number of each worker's examples (`sim.sizes.examples`)."""
        return False

    @property
    def needs_division(self) -> str:
        """Return the option, as messages name it, by which the protocol needs data divided among the workers; else nothing."""
        return ""

    @property
    def needs_plain_steps(self) -> str:
        """Return the option, as messages name it, by which local steps must be plain SGD; else nothing."""
        return ""

    @property
    def needs_pulls(self) -> str:
        """Return the option, as messages name it, by which the algorithm must pull models; else nothing."""
        return ""

    def check(self, cluster: Cluster) -> None:
        """Raise ValueError for a `cluster` on which the protocol cannot run."""

    def doubts(self) -> tuple[str, ...]:
        """Return warnings about components that the protocol names, as sentences; none by default."""
        return ()

    def layout(self, cluster: Cluster) -> Layout:
        """Return the replicas of the parameters on a `cluster`: by default one, on a server."""
        return Layout.central()


class Central(Protocol):
    """A protocol whose workers fetch models from servers and deliver gradients to them.

    By default several servers act as one. With `clocks: each`, each holds one block of the model, with a clock of its own.
    Blocks are fetched first layer first and delivered last layer first. A server applies each block on arrival.

    With `overlap`, communication and computation overlap. The forward pass waits for a block only when it reaches it, and
    each block of the gradient is sent as soon as the backward pass has computed it. The forward pass takes a third of a
    gradient's time. In each pass a block takes a share of the time equal to its share of the parameters.

    In each step a worker calls `fetch`, `compute` and `deliver`. Its loop looks these up once, because attributes of pydantic
    objects are slow to look up: a look-up in every step would cost asynchronous runs 5 % of their time.

    A custom protocol decides when a worker begins a step, and what a server does with an arriving gradient:
        >>> import fred
        >>> class OneByOne(fred.Central):
        ...     '''Workers take turns.'''
        ...     def start(self, sim):
        ...         sim.process(self.turns(sim))
        ...     def turns(self, sim):
        ...         while True:
        ...             for worker in range(sim.workers):
        ...                 model = yield from self.fetch(sim, worker)
        ...                 gradient = yield from self.compute(sim, worker, model)
        ...                 yield from self.deliver(sim, gradient, lambda own, block: sim.push(own, block=block))
        >>> scenario = fred.scenario({
        ...     "cluster": {"workers": 3, "servers": 2, "compute": {"name": "constant", "seconds": 0.5}},
        ...     "stop": {"updates": 4},
        ...     "protocol": OneByOne(clocks="each"),
        ...     "algorithm": {"name": "asgd", "learning_rate": 0.1},
        ... })
        >>> fred.run(scenario).summary[["virtual_seconds", "staleness_max"]].values.tolist()
        [[2.0, 0.0]]
    """

    clocks: Literal["one", "each"] = Field(
        default="one", description="whether servers act as one, or each has its own block and clock"
    )
    cut: Cut = Field(default="parts", description="the servers' blocks: equal parts of every array, or whole layers")
    pulls: Literal["in-turn", "at-once"] = Field(
        default="in-turn", description="order of requests: each block when the one before has arrived, or all blocks at once"
    )
    overlap: bool = Field(
        default=False, description="whether blocks are fetched and delivered while the gradient is being computed"
    )

    def layout(self, cluster: Cluster) -> Layout:
        return Layout.central(cluster.servers, self.cut) if self.clocks == "each" else Layout.central()

    def check(self, cluster: Cluster) -> None:
        if self.overlap and (self.clocks, self.cut) != ("each", "layers"):
            raise ValueError("`overlap` needs `clocks: each` and `cut: layers`: it computes one block after the other")

    def fetch(self, sim: Simulation, worker: int) -> Process:
        """Fetch the model and return it on arrival; with `overlap`, return its arriving blocks at once.

        Args:
            sim: the run.
            worker: number of the worker that fetches, from 0.
        """
        return sim.pull(worker) if sim.blocks == 1 else self._fetch(sim, worker)

    def compute(self, sim: Simulation, worker: int, model: "Copy | Arriving") -> Process:
        """Compute a gradient at the model; return it when finished or, with `overlap`, when its backward pass begins.

        Args:
            sim: the run.
            worker: number of the worker that computes, from 0.
            model: the result of `fetch`.
        """
        if sim.blocks > 1 and self.overlap:  # `blocks` first: attributes of pydantic objects are slow to look up
            return (yield from self._compute(sim, worker, model))
        assert isinstance(model, Copy)
        gradient = sim.begin(worker, model)
        yield gradient.end - sim.env._now  # a number takes less time than an event, which `sim.compute` creates
        gradient.finished = sim.env.happened
        return gradient

    def deliver(self, sim: Simulation, gradient: Gradient, use: Use) -> Iterable[Wait]:
        """Send a gradient to the servers, which use each block on arrival; return when all blocks have arrived.

        Args:
            sim: the run.
            gradient: the result of `compute`.
            use: called with the gradient and the number of each block, on the block's arrival (0 if there is one block).
        """
        if sim.blocks > 1:
            return self._deliver(sim, gradient, use)
        if waits := sim.send(gradient):
            return _deliver_block(waits, gradient, 0, use)
        use(gradient, 0)  # it is there: no generator is needed
        return ()

    def _fetch(self, sim: Simulation, worker: int) -> Process:
        arriving = Arriving(sim, worker, at_once=self.pulls == "at-once")
        if self.overlap:
            return arriving
        for block in range(sim.blocks):
            yield from arriving.wait(block)
        return arriving.compose()

    def _compute(self, sim: Simulation, worker: int, model: "Copy | Arriving") -> Process:
        duration, elapsed = sim.duration(worker), 0  # ns, the latter of the forward pass
        for block, share in enumerate(accumulate(sim.shares)):  # of all blocks up to this one
            if isinstance(model, Arriving):
                yield from model.wait(block)
            block_end = round(_FORWARD * duration * min(share, 1.0))  # min: the sum of all shares may be rounded up
            yield sim.env.after(block_end - elapsed)
            elapsed = block_end
        gradient = sim.begin(worker, model if isinstance(model, Copy) else model.compose(), duration, elapsed)
        # share of the backward pass that remains after each block, which goes from the last block to block 0
        remaining_shares = accumulate(sim.shares[:-1], initial=0.0)
        gradient.ready = tuple(gradient.end - round((duration - elapsed) * share) for share in remaining_shares)
        gradient.finished = sim.env.after(gradient.end - sim.now)
        return gradient

    def _deliver(self, sim: Simulation, gradient: Gradient, use: Use) -> Process:
        deliveries = []
        for block in reversed(range(sim.blocks)):
            if gradient.ready_at(block) > sim.now:
                yield sim.env.after(gradient.ready_at(block) - sim.now)
            deliveries.append(sim.process(_deliver_block(sim.send(gradient, block), gradient, block, use), gradient.worker))
        yield from sim.wait(gradient.worker, sim.env.all_of(deliveries), f"its gradient {gradient.step} to arrive")


def _deliver_block(waits: Iterable[Wait], gradient: Gradient, block: int, use: Use) -> Process:
    yield from waits
    use(gradient, block)


class Arriving:
    """The blocks of a model on their way to a worker."""

    def __init__(self, sim: Simulation, worker: int, at_once: bool):
        self._sim, self._worker, self._at_once = sim, worker, at_once
        self._copies: list[Copy] = []
        self._arrivals: list[simpy.Event] = [sim.env.event() for _ in range(sim.blocks)]
        self._request()

    def wait(self, block: int) -> Process:
        """Wait until a block has arrived."""
        return self._sim.wait(self._worker, self._arrivals[block], f"block {block}")

    def compose(self) -> Copy:
        """Return the model composed of the blocks, all of which must have arrived."""
        return self._sim.compose(self._worker, self._copies)

    def _request(self) -> None:
        """Request the next block, or all remaining blocks if they are fetched at once."""
        block = len(self._copies)
        copy, wait = self._sim.read_block(self._worker, block)
        self._copies.append(copy)
        self._sim.later(wait, partial(self._receive, block))
        if self._at_once and len(self._copies) < len(self._arrivals):
            self._request()

    def _receive(self, block: int) -> None:
        self._arrivals[block].succeed()
        if len(self._copies) < len(self._arrivals):
            self._request()
