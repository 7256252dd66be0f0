"""D-PSGD that communicates twice in each iteration [Li et al. 2021, section 5.2]."""

from fred.cluster.network import NOTHING
from fred.protocols.gossip import Gossip, Inbox, Senders
from fred.timing.simulation import Process, Simulation


class GossipTwice(Gossip):
    """Gossip that mixes models twice in each iteration, applying the gradient before both or after both.

    With `order: mix-first` the first exchange takes place while the gradient is being computed.
    """

    def _in_step(
        self, sim: Simulation, worker: int, weights: list[dict[int, float]], senders: Senders, inbox: Inbox
    ) -> Process:
        while True:
            yield from sim.present(worker)
            gradient = sim.compute(worker, sim.own(worker))
            if self.order == "update-first":
                yield gradient.finished
                sim.push(gradient, worker, NOTHING)
            for _ in range(2):
                number, sender_weights = senders.sent[worker], weights[senders.sent[worker] % len(weights)]
                senders.send(worker)
                if not gradient.finished.processed:
                    yield gradient.finished
                yield from inbox.wait(worker, number, len(sender_weights))
                yield from sim.present(worker)
                models = inbox.take(number)
                sim.sync(
                    worker, sim.mix(worker, [(models[sender], sender_weights[sender]) for sender in sorted(sender_weights)])
                )
            if self.order != "update-first":
                sim.push(gradient, worker, NOTHING)
