"""What protocols with servers share [Chen et al. 2017, section 2]: how models come to workers, and gradients to servers."""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import accumulate
from typing import Literal

import simpy
from pydantic import Field

from fred.cluster.cluster import Cluster
from fred.protocols.protocol import Protocol
from fred.schedule.layout import Cut, Layout
from fred.timing.copies import Copy, Gradient
from fred.timing.loop import Wait
from fred.timing.simulation import Process, Simulation

_FORWARD = 1 / 3  # of a gradient: backwards a layer makes two products, forwards one (docs/errata.md, item 18)

Use = Callable[[Gradient, int], object]  # what a server does with a gradient, or a block of it, that has arrived


class Central(Protocol):
    """Workers fetch models from servers and deliver gradients to them.

    Several servers act as one, or (`clocks: each`) hold a block each, with a clock of its own: blocks are fetched first layer
    first and delivered last layer first, and each takes effect when it arrives. With `overlap` a block has to be there only
    when the forward pass reaches it, which waits if it is late, and is sent as soon as the backward pass has passed it. Of a
    gradient's time a third is the forward pass, and of each pass a block takes the part that it is of the parameters.

    A worker's step is to `fetch`, `compute` and `deliver`. Its loop looks these up once: doing so in every step would cost
    asynchronous runs 5 % of their time, for attributes of pydantic's objects are slow to find.

    A protocol of one's own says when a worker begins a step, and what a server does with what arrives:
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

    clocks: Literal["one", "each"] = Field("one", description="several servers act as one, or each has a block and a clock")
    cut: Cut = Field("parts", description="the servers' blocks: equal parts of every array, or whole layers")
    pulls: Literal["in-turn", "at-once"] = Field(
        "in-turn", description="a block is asked for when the one before has arrived, or all are together"
    )
    overlap: bool = Field(False, description="blocks are fetched and delivered while others are being computed with")

    def layout(self, cluster: Cluster) -> Layout:
        return Layout.central(cluster.servers, self.cut) if self.clocks == "each" else Layout.central()

    def check(self, cluster: Cluster) -> None:
        if self.overlap and (self.clocks, self.cut) != ("each", "layers"):
            raise ValueError("`overlap` needs `clocks: each` and `cut: layers`: one block after the other")

    def fetch(self, sim: Simulation, worker: int) -> Process:
        """Ask for the model; returns it when it has arrived or, with `overlap`, at once what is on its way.

        Args:
            sim: the run.
            worker: who asks, by number, from 0.
        """
        return sim.pull(worker) if sim.blocks == 1 else self._fetch(sim, worker)

    def compute(self, sim: Simulation, worker: int, model: "Copy | Arriving") -> Process:
        """A gradient at the model; returns it when it is finished or, with `overlap`, when its backward pass begins.

        Args:
            sim: the run.
            worker: who computes, by number, from 0.
            model: what `fetch` returned.
        """
        if sim.blocks > 1 and self.overlap:  # in this order: see above
            return (yield from self._compute(sim, worker, model))
        assert isinstance(model, Copy)
        gradient = sim.begin(worker, model)
        yield gradient.end - sim.env._now
        gradient.finished = sim.env.happened
        return gradient

    def deliver(self, sim: Simulation, gradient: Gradient, use: Use) -> Iterable[Wait]:
        """Bring a gradient to the servers, each of which uses its block when it arrives; ends when all have.

        Args:
            sim: the run.
            gradient: what `compute` returned.
            use: called with the gradient and the block that has arrived (0 where there is one), at that moment.
        """
        if sim.blocks > 1:
            return self._deliver(sim, gradient, use)
        if way := sim.send(gradient):
            return _bring(way, gradient, 0, use)
        use(gradient, 0)  # it is there: no generator is needed
        return ()

    def _fetch(self, sim: Simulation, worker: int) -> Process:
        arriving = Arriving(sim, worker, together=self.pulls == "at-once")
        if self.overlap:
            return arriving
        for block in range(sim.blocks):
            yield from arriving.wait(block)
        return arriving.whole()

    def _compute(self, sim: Simulation, worker: int, model: "Copy | Arriving") -> Process:
        whole, done = sim.duration(worker), 0
        for block, share in enumerate(accumulate(sim.shares)):
            if isinstance(model, Arriving):
                yield from model.wait(block)
            reached = round(_FORWARD * whole * min(share, 1.0))
            yield sim.env.after(reached - done)
            done = reached
        gradient = sim.begin(worker, model if isinstance(model, Copy) else model.whole(), whole, done)
        below = accumulate(sim.shares[:-1], initial=0.0)  # what the backward pass comes to after each block
        gradient.ready = tuple(gradient.end - round((whole - done) * share) for share in below)
        gradient.finished = sim.env.after(gradient.end - sim.now)
        return gradient

    def _deliver(self, sim: Simulation, gradient: Gradient, use: Use) -> Process:
        sent = []
        for block in reversed(range(sim.blocks)):
            if gradient.ready_at(block) > sim.now:
                yield sim.env.after(gradient.ready_at(block) - sim.now)
            sent.append(sim.process(_bring(sim.send(gradient, block), gradient, block, use), gradient.worker))
        yield from sim.wait(gradient.worker, sim.env.all_of(sent), f"its gradient {gradient.step} to arrive")


def _bring(way: Iterable[Wait], gradient: Gradient, block: int, use: Use) -> Process:
    yield from way
    use(gradient, block)


class Arriving:
    """The blocks of a model on their way to a worker."""

    def __init__(self, sim: Simulation, worker: int, together: bool):
        self._sim, self._worker, self._together = sim, worker, together
        self._copies: list[Copy] = []
        self._here: list[simpy.Event] = [sim.env.event() for _ in range(sim.blocks)]
        self._ask()

    def wait(self, block: int) -> Process:
        """Until a block has arrived."""
        return self._sim.wait(self._worker, self._here[block], f"block {block}")

    def whole(self) -> Copy:
        """The model that they make up, all of them having arrived."""
        return self._sim.compose(self._worker, self._copies)

    def _ask(self) -> None:
        """For the next block, and for all if they come together."""
        block = len(self._copies)
        copy, arrival = self._sim.read_block(self._worker, block)
        self._copies.append(copy)
        self._sim.later(arrival - self._sim.now, partial(self._arrived, block))
        if self._together and len(self._copies) < len(self._here):
            self._ask()

    def _arrived(self, block: int) -> None:
        self._here[block].succeed()
        if len(self._copies) < len(self._here):
            self._ask()
