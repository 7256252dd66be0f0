"""Models on their way between workers: the senders, and the inboxes in which models wait."""

from collections import Counter
from typing import Literal

import simpy

from fred.protocols.exchanges import Exchanges
from fred.timing.copies import Copy
from fred.timing.simulation import Process, Simulation

Graph = list[list[int]]  # receivers of each worker


class Inbox:
    """The models that a worker has received, by number and sender; a sender may be iterations ahead.

    Example: worker 1's first model arrives at once, worker 2's never.
        >>> import fred
        >>> from fred.timing.recorder import Recorder
        >>> sim = fred.Simulation(fred.Cluster(workers=3), Recorder(3, fred.Layout.peers(3)), seed=0)
        >>> inbox = Inbox(sim)
        >>> inbox.put(number=0, sender=1, model=sim.own(1))
        >>> [(number, sender) for number, sender, _ in inbox.take_all()]
        [(0, 1)]
        >>> _ = sim.process(inbox.wait(worker=0, number=0, senders=2))
        >>> sim.run()
        Traceback (most recent call last):
        fred.FredError: nothing can happen any more after 0 s: worker 0 waits for models of iteration 0 from its ...
    """

    def __init__(self, sim: Simulation):
        self._sim = sim
        self._models: dict[int, dict[int, Copy]] = {}  # not yet taken
        self._arrived: Counter[int] = Counter()  # taken or not
        self._changed = sim.env.event()

    def expect(self, arrival: simpy.Event, number: int, sender: int, model: Copy) -> None:
        """Put a `model` into the inbox when `arrival` happens. For `number` and `sender` see `put`."""
        assert arrival.callbacks is not None
        arrival.callbacks.append(lambda _: self.put(number, sender, model))

    def put(self, number: int, sender: int, model: Copy) -> None:
        """Store a `model` that has arrived; `number` is its `sender`'s count of models, from 0."""
        self._models.setdefault(number, {})[sender] = model
        self._arrived[number] += 1
        self._changed.succeed()
        self._changed = self._sim.env.event()

    def wait(self, worker: int, number: int, senders: int) -> Process:
        """Let the `worker` wait until models of that `number` have arrived from `senders` workers."""
        while self._arrived[number] < senders:
            yield from self._sim.wait(worker, self._changed, f"models of iteration {number} from its neighbours")
        del self._arrived[number]

    def take(self, number: int) -> dict[int, Copy]:
        """Remove and return the models of one `number`, by sender."""
        return self._models.pop(number)

    def take_all(self) -> list[tuple[int, int, Copy]]:
        """Remove all models and return (number, sender, model) of each, sorted by number and sender."""
        models, self._models = self._models, {}
        return [(number, sender, model) for number, own in sorted(models.items()) for sender, model in sorted(own.items())]


class Senders:
    """The outgoing models of every worker, sent along one graph after the other, cyclically."""

    def __init__(self, sim: Simulation, graphs: list[Graph], exchanges: int | Literal["global"]):
        self._sim, self._graphs = sim, graphs
        self.inboxes = [Inbox(sim) for _ in range(sim.workers)]
        self.sent = [0] * sim.workers  # by each worker
        self._exchanges = None if exchanges == 1 else Exchanges(sim, graphs, exchanges)

    def send(self, worker: int, share: float | None = None) -> None:
        """Send a worker's current model to all its receivers, and put it into the worker's own inbox.

        With `share`, the worker's model is first multiplied by it, and its own inbox holds that part.
        """
        number = self.sent[worker]
        self.sent[worker] += 1
        receivers = self._graphs[number % len(self._graphs)][worker]
        if self._exchanges:
            model = self._sim.publish(worker, len(receivers), self._exchanges.parts)
            self._exchanges.begin(worker, number, model, self.inboxes[worker].put)
            return
        model = self._sim.publish(worker, len(receivers))
        kept = model if share is None else self._sim.mix(worker, [(model, share)])
        if share is not None:
            self._sim.sync(worker, kept)
        self.inboxes[worker].put(number, worker, kept)
        for receiver in receivers:
            self.inboxes[receiver].expect(self._sim.transfer(worker, receiver), number, worker, model)
