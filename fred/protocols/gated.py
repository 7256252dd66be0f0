"""Gated pushes and fetches [Odena 2016, section 2.3, eq. 9; Dean et al. 2012]: asynchronous SGD with fewer messages.

Example: a minute in which three workers take 0.5 s for each gradient, and the fourth 2 s.
    >>> import fred
    >>> settings = {
    ...     "cluster": {"workers": 4, "speeds": [1.0, 1.0, 1.0, 0.25], "compute": {"name": "constant", "seconds": 0.5}},
    ...     "stop": {"seconds": 60.0},
    ...     "algorithm": {"name": "asgd", "learning_rate": 0.1},
    ... }
    >>> def measured(**protocol):
    ...     summary = fred.run(fred.scenario(settings, protocol=protocol)).summary
    ...     return summary[["gradients_applied", "messages_to_servers", "messages_to_workers"]].round(2).iloc[0].tolist()
    >>> measured(name="gated")
    [386, 386, 390]
    >>> measured(name="gated", k_push=4)
    [380, 98, 390]
    >>> measured(name="gated", k_fetch=4)
    [386, 386, 98]
"""

from functools import partial
from typing import ClassVar

from fred.cluster.cluster import Cluster
from fred.protocols.central import Central
from fred.protocols.gates import Gates, Outbox, Way
from fred.timing.copies import Copy, Gradient
from fred.timing.simulation import Process, Simulation


class Gated(Gates, Central):
    """Asynchronous SGD whose pushes and fetches pass through gates.

    A worker's first message always passes; its gate decides on the others. A `periodic` gate lets every k-th message pass
    (`k_push`, `k_fetch`). A `statistical` gate lets each message pass with probability 1 / (1 + c / (v + epsilon)), v a
    statistic of the server's state (`c_push`, `c_fetch`). `push_gate` and `fetch_gate` name custom gates.

    A worker whose fetch does not pass continues with its old parameters. Its gradient has their timestamp or, as in the
    paper's published code, that of the parameters that it did not fetch (`stamp`). If a gradient does not pass, the server
    applies the worker's last one again, with its old timestamp. Or the worker stores it, and its next message is the sum, or
    the mean, of all stored gradients (`unsent`). A message that does not pass takes no time on the network.
    """

    name = "gated"
    faults: ClassVar[str] = "A returning worker reads the newest model, and its unsent gradients are lost; no worker waits."

    def check(self, cluster: Cluster) -> None:
        Central.check(self, cluster)

    def start(self, sim: Simulation) -> None:
        for worker in range(sim.workers):
            gates = self.fetches(sim, worker), self.pushes(sim, worker)
            sim.work(worker, partial(self._work, sim, worker, *gates))

    def _work(self, sim: Simulation, worker: int, fetches: Way, outbox: Outbox) -> Process:
        def update(_: Gradient, block: int) -> None:
            outbox.update(message, block)

        outbox.restart()
        model: Copy | None = None
        while True:
            if fetches.passes(model) or model is None:
                model = yield from self.fetch(sim, worker)
            else:
                model = self.unfetched(sim, model)
            gradient = yield from self.compute(sim, worker, model)
            model = gradient.copy
            sends = outbox.sends(gradient)
            if not sends:
                yield gradient.finished
            message = outbox.put(gradient, sends)
            if sends:
                yield from self.deliver(sim, gradient, update)
            else:
                for block in range(sim.blocks):
                    update(gradient, block)
