"""EASGD and Downpour: local models, which exchange updates with a server model.

| name                   | source                                                                                      |
|------------------------|---------------------------------------------------------------------------------------------|
| easgd, Elastic         | Zhang, Choromanska, LeCun 2015, "Elastic averaging SGD", arXiv:1412.6651, algorithm 1       |
| downpour, Accumulating | Dean et al. 2012, section 4.1; Zhang, Choromanska, LeCun 2015, arXiv:1412.6651, algorithm 3 |

Momentum for EASGD's workers (EAMSGD) is their optimizer's: `{name: sgd, momentum: 0.9, nesterov: true}`.

Example of the rule: with a = 0.25, a worker at 3 that has read a server model of 1 moves it by 0.25 x (3 - 1):
    >>> from fred.learning.server import Moved
    >>> import jax.numpy as jnp
    >>> server = Moved(learning_rate=0.1)
    >>> state = server.init({"w": jnp.array([1.0])}, workers=2)
    >>> server.apply_round(state, {"w": jnp.array([0.25 * (1.0 - 3.0)])}, timestamp=0, count=1).params["w"].tolist()
    [1.5]

Example of the protocols: a minute in which three workers take 0.5 s for each gradient, and the fourth 2 s; no worker waits.
    >>> import fred
    >>> settings = {
    ...     "cluster": {"workers": 4, "speeds": [1.0, 1.0, 1.0, 0.25], "compute": {"name": "constant", "seconds": 0.5}},
    ...     "stop": {"seconds": 60.0},
    ...     "algorithm": {"name": "easgd", "learning_rate": 0.1},
    ... }
    >>> def measured(**protocol):
    ...     summary = fred.run(fred.scenario(settings, protocol=protocol)).summary
    ...     return summary[["gradients_applied", "messages_to_servers", "messages_to_workers"]].iloc[0].tolist()
    >>> measured(name="elastic", period=4)
    [386, 94, 98]
    >>> measured(name="accumulating", n_push=2, n_fetch=4)
    [386, 191, 98]
"""

from itertools import count
from typing import Annotated

from pydantic import Field

from fred.cluster.network import NOTHING
from fred.components.component import Count
from fred.learning.server import Family, Moved
from fred.protocols.buffered import Centred
from fred.timing.copies import Copy, Gradient
from fred.timing.simulation import Process, Simulation

_BETA = 0.9  # all workers together pull so hard at the server model [Zhang et al. 2015, section 5]


class EASGD(Moved):
    """Elastic averaging SGD: every few steps an elastic force pulls a worker's model and the server's together."""

    name = "easgd"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i)
w_i <- w_i - a (w_i - w)    (every H updates; a = 0.9 / workers)
w <- w + a (w_i - w)        (both with w_i and w from before)"""
    protocol = "elastic"


class Downpour(Moved):
    """Downpour SGD: workers step their own models; at intervals they push sums of steps and fetch a new model."""

    name = "downpour"
    family = Family.AS_THEY_COME
    rule = """\
w_i <- w_i - step(g_i)
w <- w - sum of the worker's last n_push steps
w_i <- w    (every n_fetch updates)"""
    protocol = "accumulating"


class Elastic(Centred):
    """Every H steps an elastic force moves a worker's model by -a (x_i - x) and the server model by +a (x_i - x).

    No worker waits. x is the server model that the worker has read; others may move it before the pseudo-gradient arrives. As
    printed in the paper, the next gradient is computed at the worker's model before the exchange.
    """

    name = "elastic"

    period: Count = Field(default=4, description="H: updates of each worker between two exchanges with the server")
    elasticity: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, description="a: share of their difference by which both move; absent: 0.9 / workers"
    )

    def _work(self, sim: Simulation, worker: int) -> Process:
        share = self.elasticity or _BETA / sim.workers
        server = sim.global_replica
        model: Copy = yield from self._fetch(sim, worker)
        while True:
            for _ in range(self.period):
                yield from self._step(sim, worker, model)
                model = sim.own(worker)
            server_model = yield from sim.pull(worker, server)
            # The server model minus the worker's: the commit moves the server model against it, towards the worker. `model`
            # stays the copy from before the SYNC, as the next gradient is computed there.
            pseudo_gradient = sim.pseudo_gradient(worker, server_model, model)
            sim.sync(worker, server_model, keep=1 - share, weight=share)
            yield from sim.send(pseudo_gradient)
            sim.add(pseudo_gradient, server)
            sim.commit(server, weight=share)


class Accumulating(Centred):
    """A worker pushes the change of its last n_push steps, and fetches the server model after each n_fetch.

    No worker waits, and the server adds every change to its model. The steps are those of the worker's optimizer: with SGD,
    learning rate x gradient. With `n_push: 1` and `n_fetch: 1` it is asynchronous SGD.
    """

    name = "accumulating"

    n_push: Count = Field(default=1, description="updates of each worker between two messages to the server")
    n_fetch: Count = Field(default=1, description="updates of each worker between two models from the server")

    @property
    def sends_sums(self) -> bool:
        return True

    def _work(self, sim: Simulation, worker: int) -> Process:
        fetched: Copy = yield from self._fetch(sim, worker)
        start, accrued = fetched, list[Gradient]()  # where the next sum of steps starts; sums that are not yet sent
        for step in count(1):
            yield from self._step(sim, worker, sim.own(worker))
            pushes, fetches = step % self.n_push == 0, step % self.n_fetch == 0
            if pushes or fetches:
                accrued.append(sim.pseudo_gradient(worker, start, sim.own(worker)))
            if pushes:
                yield from self._push(sim, accrued)
            if fetches:
                fetched = start = yield from self._fetch(sim, worker)
            elif pushes:  # from here on, with the age of what was fetched: a mixture is as old as its first part
                start = sim.mix(worker, [(fetched, 0.0), (sim.own(worker), 1.0)])

    def _push(self, sim: Simulation, accrued: list[Gradient]) -> Process:
        """Send the sum of the pseudo-gradients to the server as one message."""
        server = sim.global_replica
        *earlier_sums, last = accrued
        yield from sim.send(last)
        for pseudo_gradient in earlier_sums:
            sim.add(pseudo_gradient, server, NOTHING)
        sim.add(last, server)
        sim.commit(server, weight=1.0)
        accrued.clear()
