"""Birch SGD's methods: workers send sums of gradients, of local steps or at one model.

| name                                           | source                                                     |
|------------------------------------------------|------------------------------------------------------------|
| async-local, async-batch, LocalSums, BatchSums | Birch SGD 2025, arXiv:2505.09218                           |
| birch-local, LocalTotal                        | Birch SGD 2025, arXiv:2505.09218: Local SGD, which adds up |

Nothing is averaged: the server model moves by the sum of all local steps.

Example of the rule: a worker's local steps lead from the server model, 1, to 0.5, and the server applies their sum:
    >>> from fred.learning.server import Moved
    >>> import jax.numpy as jnp
    >>> server = Moved(learning_rate=0.1)
    >>> state = server.init({"w": jnp.array([1.0])}, workers=2)
    >>> server.apply_round(state, {"w": jnp.array([1.0 - 0.5])}, timestamp=0, count=1).params["w"].tolist()
    [0.5]

Example of the protocols: a minute in which three workers take 0.5 s for each gradient, and the fourth 2 s.
    >>> import fred
    >>> settings = {
    ...     "cluster": {"workers": 4, "speeds": [1.0, 1.0, 1.0, 0.25], "compute": {"name": "constant", "seconds": 0.5}},
    ...     "stop": {"seconds": 60.0},
    ...     "algorithm": {"name": "async-local", "learning_rate": 0.1},
    ... }
    >>> def measured(**protocol):
    ...     summary = fred.run(fred.scenario(settings, protocol=protocol)).summary
    ...     return summary[["gradients_applied", "messages_to_servers", "staleness_in_gradients"]].iloc[0].tolist()
    >>> measured(name="local-sums", steps=4)
    [386, 94, 51]
    >>> measured(name="local-sums", steps=4, bound=12)
    [386, 94, 11]
    >>> measured(name="local-total", total=20)
    [340, 68, 19]
"""

from functools import partial
from typing import ClassVar

from pydantic import Field

from fred.cluster.cluster import Cluster
from fred.cluster.network import NOTHING
from fred.components.component import Count
from fred.learning.server import Family, Moved, Server
from fred.protocols.protocol import Protocol
from fred.schedule.layout import Layout
from fred.timing.copies import Copy, Gradient
from fred.timing.simulation import Process, Simulation

_STEPS = Field(default=4, description="M: gradients in each sum")
_BOUND = Field(
    default=None,
    description="B: a sum is dropped if more gradients than that have been applied since its model was read; absent: never",
)


class AsyncLocal(Moved):
    """Asynchronous local SGD: the server applies the sums of workers' M local steps, unless they are too stale."""

    name = "async-local"
    family = Family.AS_THEY_COME
    rule = """\
w_i <- w_i - step(g_i)           (M times, from w on)
w <- w - (w when it was read - w_i)    (unless more than B gradients have been applied since)"""
    protocol = "local-sums"


class AsyncBatch(Server):
    """Asynchronous SGD with sums of M gradients of one worker at one model; sums that are too stale are dropped."""

    name = "async-batch"
    family = Family.AS_THEY_COME
    rule = "w <- w - step(sum of M g at w_read)    (unless more than B gradients have been applied since)"
    protocol = "batch-sums"


class BirchLocal(Moved):
    """Local SGD with sums: workers make B local steps in all, whose sum the server applies to its model."""

    name = "birch-local"
    family = Family.FRESH
    rule = """\
w_i <- w_i - step(g_i)           (from w on, until all together have made B)
w <- w - sum of all w - w_i"""
    protocol = "local-total"


class _Bounded(Protocol):
    """Protocols without waiting, in which a server drops sums that are too stale on arrival."""

    faults: ClassVar[str] = "A returning worker starts from the server model, and its unsent work is lost; no worker waits."

    steps: Count = _STEPS
    bound: Count | None = _BOUND

    def start(self, sim: Simulation) -> None:
        applied = _Applied(self.bound)
        for worker in range(sim.workers):
            sim.work(worker, partial(self._work, sim, worker, applied))

    def _work(self, sim: Simulation, worker: int, applied: "_Applied") -> Process:
        raise NotImplementedError


class LocalSums(_Bounded):
    """Each worker makes M local steps from the server model, and sends their sum, which the server applies.

    With M = 1 it is asynchronous SGD. The age of a sum is counted in gradients.
    """

    name = "local-sums"

    def layout(self, cluster: Cluster) -> Layout:
        return Layout.centred(cluster.size)

    def _work(self, sim: Simulation, worker: int, applied: "_Applied") -> Process:
        while True:
            gradients_at_read = applied.gradients  # before the model is on its way
            start_model: Copy = yield from sim.pull(worker, sim.global_replica)
            sim.sync(worker, start_model)
            yield from sim.local_steps(worker, self.steps)
            pseudo_gradient = sim.pseudo_gradient(worker, start_model, sim.own(worker))
            yield from sim.send(pseudo_gradient)
            if applied.accepts(gradients_at_read, self.steps):
                sim.add(pseudo_gradient, sim.global_replica)
                sim.commit(sim.global_replica, weight=1.0)
            else:
                sim.drop(pseudo_gradient, sim.global_replica)


class BatchSums(_Bounded):
    """Each worker computes M gradients at the server model, and sends their sum for one server step.

    With M = 1 it is asynchronous SGD. The age of a sum is counted in gradients.
    """

    name = "batch-sums"

    @property
    def sends_sums(self) -> bool:
        return self.steps > 1

    def _work(self, sim: Simulation, worker: int, applied: "_Applied") -> Process:
        while True:
            gradients_at_read, gradients = applied.gradients, list[Gradient]()
            model: Copy = yield from sim.pull(worker)
            for _ in range(self.steps):
                gradients.append(sim.compute(worker, model))
                yield gradients[-1].finished
            yield from sim.send(gradients[-1])
            is_accepted = applied.accepts(gradients_at_read, self.steps)
            use = partial(sim.add, weight=1.0) if is_accepted else sim.drop  # 1: their plain sum
            for gradient in gradients[:-1]:
                use(gradient, cost=NOTHING)
            use(gradients[-1])
            if is_accepted:
                sim.commit(weight=1.0)


class _Applied:
    """The number of gradients that the server has applied."""

    def __init__(self, bound: int | None):
        self.gradients, self._bound = 0, bound

    def accepts(self, gradients_at_read: int, gradients: int) -> bool:
        """Return True if the server applies `gradients` more; `gradients_at_read` is its number when their model was read."""
        if self._bound is not None and self.gradients - gradients_at_read > self._bound:
            return False
        self.gradients += gradients
        return True


class LocalTotal(Protocol):
    """Workers make local steps from the server model until there are B in all; then each sends the sum of its steps.

    Unfinished gradients are aborted at that moment. The server adds all sums to its model, and all workers read it.
    """

    name = "local-total"
    faults: ClassVar[str] = (
        "A worker keeps its model, and computes the lost gradient again; the others go on, and wait for its sum."
    )

    total: Count | None = Field(
        default=None, description="B: steps of all workers together; absent: as many as there are workers"
    )

    def layout(self, cluster: Cluster) -> Layout:
        return Layout.centred(cluster.size)

    def start(self, sim: Simulation) -> None:
        sim.process(self._rounds(sim))

    def _rounds(self, sim: Simulation) -> Process:
        while True:
            steps = _Steps(sim, self.total or sim.workers)
            turns = [sim.process(self._turn(sim, worker, steps)) for worker in range(sim.workers)]
            yield from sim.wait("the server", sim.env.all_of(turns), "all workers' sums")
            sim.commit(sim.global_replica, weight=1.0)

    def _turn(self, sim: Simulation, worker: int, steps: "_Steps") -> Process:
        yield from sim.present(worker)
        start_model: Copy = yield from sim.pull(worker, sim.global_replica)
        yield from sim.present(worker)
        sim.sync(worker, start_model)
        steps_made = yield from steps.make(worker)
        yield from sim.present(worker)
        if steps_made:
            pseudo_gradient = sim.pseudo_gradient(worker, start_model, sim.own(worker))
            yield from sim.send(pseudo_gradient)
            sim.add(pseudo_gradient, sim.global_replica)


class _Steps:
    """The local steps of all workers in a round, until there are B in all."""

    def __init__(self, sim: Simulation, number: int):
        self._sim, self._remaining = sim, number
        self._complete = sim.env.event()

    def make(self, worker: int) -> Process:
        """Step a worker's own model until there are enough steps in all; return how many it has made."""
        sim, count = self._sim, 0
        while self._remaining:
            gradient = sim.compute(worker, sim.own(worker))
            yield gradient.finished | self._complete
            if not self._remaining:
                sim.drop(gradient, worker, NOTHING)
                break
            sim.push(gradient, worker, NOTHING)
            count, self._remaining = count + 1, self._remaining - 1
            if not self._remaining:
                self._complete.succeed()
            yield 0  # first comes what else is finished now, which may be enough
        return count
