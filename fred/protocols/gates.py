"""Asynchronous SGD with fewer messages: gates decide which pushes and fetches pass.

| name                  | source                                           |
|-----------------------|--------------------------------------------------|
| gated                 | Odena 2016, section 2.3, eq. 9; Dean et al. 2012 |
| Periodic, Statistical | Odena 2016, sections 2.3 and 3; Dean et al. 2012 |

>>> Periodic(k=3).passes(Offer(worker=0, number=6)), Periodic(k=3).passes(Offer(worker=0, number=7))
(True, False)
>>> [Statistical(c=0.1).passes(Offer(worker=0, number=1, draw=0.5, measured=v)) for v in (0.05, 0.2)]
[False, True]

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
    >>> measured(name="gated", push_gate={"name": "periodic", "k": 4})
    [380, 98, 390]
    >>> measured(name="gated", fetch_gate={"name": "periodic", "k": 4})
    [386, 386, 98]
"""

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from fred.base import numerics
from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.cluster.network import NOTHING
from fred.components import registry
from fred.components.component import NANOSECONDS, Component, Count
from fred.components.one_of import OneOf
from fred.protocols.protocol import Central, Protocol
from fred.timing.copies import Copy, Gradient
from fred.timing.simulation import Process, Simulation

UnsentRule = Literal["apply-again", "sum", "mean"]  # treatment of gradients that do not pass
_MOST_WITHHELD = 100_000  # gradients of a worker in a row: with none applied, a run might never end


class Offer(NamedTuple):
    """A push or a fetch on which a gate decides.

    Args:
        worker: its number, from 0.
        number: number of messages that the worker offered before, from 1; of pushes, since its last crash.
        withheld: number of messages in a row, before this one, that did not pass.
        seconds: virtual time; 0 if the protocol has no clock.
        updates: number of updates that the servers have made.
        staleness: number of updates since the worker's parameters were read, by their timestamp; the largest of all blocks.
        draw: uniform on (0, 1), a function of the seed, the worker and the message.
        measured: the algorithm's statistic; None if the gate does not ask for it.

        >>> import fred
        >>> offer = fred.Offer(worker=3, number=7, staleness=12, draw=0.25)
        >>> offer.draw < 1 / offer.staleness
        False
        >>> offer.statistic
        Traceback (most recent call last):
        fred.FredError: the gate asks for the statistic, which only gates get whose `needs_values` is True
    """

    worker: int
    number: int
    withheld: int = 0
    seconds: float = 0.0
    updates: int = 0
    staleness: int = 0
    draw: float = 0.5
    measured: float | None = None

    @property
    def statistic(self) -> float:
        """Return the algorithm's current statistic (see `Server.statistic`), such as the mean of v of `b-fasgd`."""
        if self.measured is None:
            raise FredError("the gate asks for the statistic, which only gates get whose `needs_values` is True")
        return self.measured


class Gate(Component):
    """A rule that decides which of the workers' pushes or fetches pass.

    Example, a gate that fetches parameters once they are 10 updates old, and by chance before:
        >>> import fred
        >>> class Stale(fred.Gate):
        ...     '''Passes what is too old, and of the rest some by chance.'''
        ...     oldest: int = 10
        ...     by_chance: float = 0.05
        ...     def passes(self, offer):
        ...         return offer.staleness >= self.oldest or offer.draw < self.by_chance
        >>> scenario = fred.scenario({
        ...     "cluster": {"workers": 4},
        ...     "stop": {"updates": 1000},
        ...     "protocol": {"name": "dispatcher", "fetch_gate": Stale()},
        ...     "algorithm": {"name": "asgd", "learning_rate": 0.1},
        ... })
        >>> fred.run(scenario).summary[["copies_fetches", "staleness_mean"]].round(1).values.tolist()
        [[324.0, 6.3]]
    """

    unsent: ClassVar[UnsentRule] = "apply-again"  # default for gradients that do not pass

    @property
    def needs_values(self) -> bool:
        """Return True if the gate asks for the algorithm's statistic, so that timing depends on learning."""
        return False

    @abstractmethod
    def passes(self, offer: Offer) -> bool:
        """Return True if a message passes; FRED asks for each but a worker's first, which always passes.

        The answer may depend on the options and the offer only, so that a repeated run gets the same answers.

        Args:
            offer: the message, and the state of the run at this moment.
        """


class Periodic(Gate):
    """A gate that lets every k-th message pass."""

    unsent: ClassVar[UnsentRule] = "sum"

    k: Count = Field(description="a worker's first message passes, then every k-th", examples=[4])

    def passes(self, offer: Offer) -> bool:
        return offer.number % self.k == 0


class Statistical(Gate):
    """B-FASGD's gate, eq. 9: a message passes with probability 1 / (1 + c / (v + epsilon)), v the algorithm's statistic."""

    c: float = Field(gt=0, description="strength: with a larger c, fewer messages pass", examples=[0.1])
    epsilon: float = Field(default=1e-4, gt=0, description="added to the statistic")

    @property
    def needs_values(self) -> bool:
        return True

    def passes(self, offer: Offer) -> bool:
        return offer.draw < 1 / (1 + self.c / (offer.statistic + self.epsilon))


class Gates(Protocol):
    """A protocol whose workers push and fetch through gates; `Gated` describes them."""

    push_gate: Annotated[Gate, OneOf("gate")] | None = Field(
        default=None, description="gate of pushes; absent: all pass", examples=[{"name": "periodic", "k": 5}]
    )
    fetch_gate: Annotated[Gate, OneOf("gate")] | None = Field(
        default=None, description="gate of fetches; absent: all pass", examples=[{"name": "statistical", "c": 0.1}]
    )
    unsent: UnsentRule | None = Field(
        default=None,
        description="treatment of gradients that are not pushed; absent: `sum` with a `periodic` gate, else `apply-again`",
    )

    stamp: Literal["read", "published"] = Field(
        default="read",
        description="timestamp after a fetch that did not pass: of the parameters in use, or of those not fetched",
    )

    @property
    def needs_values(self) -> bool:
        """Return True if a gate asks for the algorithm's statistic, so that timing depends on learning."""
        return any(gate is not None and gate.needs_values for gate in (self.push_gate, self.fetch_gate))

    def fetches(self, sim: Simulation, worker: int) -> "GatePath":
        """Return the path of a worker's fetches through its gate."""
        return GatePath(sim, "fetch gate", worker, self.fetch_gate)

    def unfetched(self, sim: Simulation, copy: Copy) -> Copy:
        """Return the copy with which a worker continues after a fetch that did not pass."""
        return sim.stamp(copy) if self.stamp == "published" else copy

    def pushes(self, sim: Simulation, worker: int) -> "Outbox":
        """Return the outbox through which a worker's gradients pass."""
        return Outbox(sim, GatePath(sim, "push gate", worker, self.push_gate), self._unsent_rule)

    @property
    def sends_sums(self) -> bool:
        return self._unsent_rule != "apply-again"

    @property
    def _unsent_rule(self) -> UnsentRule:
        """Return the way to treat gradients that are not pushed."""
        return self.unsent or (self.push_gate or Gate).unsent


class GatePath:
    """The path of a worker's pushes, or of its fetches, through a gate; without a gate all pass."""

    def __init__(self, sim: Simulation, purpose: str, worker: int, gate: Gate | None):
        self._sim, self._worker, self._gate = sim, worker, gate
        self._needs_values = gate is not None and gate.needs_values
        self._draws = numerics.iterate_uniforms(sim.seed, purpose, worker)
        self._offers = 0  # messages so far
        self.withheld = 0  # since the last one that passed

    def passes(self, copy: Copy | None) -> bool:
        """Return True if the next message passes; the first one does, and every fetch of a worker without a copy."""
        number, self._offers = self._offers, self._offers + 1
        if self._gate is None or number == 0:
            return True
        draw = next(self._draws)  # drawn even if the gate is not asked: message n gets draw n
        passes = copy is None or self._gate.passes(self._offer(number, draw, copy))
        if not isinstance(passes, (bool, np.bool_)):
            raise FredError(f"gate `{registry.name_of('gate', self._gate)}` answers {passes!r}; expected True or False")
        self.withheld = 0 if passes else self.withheld + 1
        return bool(passes)

    def restart(self) -> None:
        """Let the next message pass."""
        self._offers = self.withheld = 0

    def _offer(self, number: int, draw: float, copy: Copy) -> Offer:
        sim = self._sim
        if sim.blocks == 1:
            staleness = sim.record.clocks[0] - copy.timestamp  # the general case below, without its look-ups
        else:
            staleness = max(sim.clock(block=block) - copy.at(block) for block in range(sim.blocks))
        statistic = sim.statistic() if self._needs_values else None
        return Offer(
            self._worker,
            number,
            self.withheld,
            seconds=sim.now / NANOSECONDS,
            updates=sim.record.updates,
            staleness=staleness,
            draw=draw,
            measured=statistic,
        )


class Outgoing(NamedTuple):
    """The gradients with which a server updates after a worker has computed one more."""

    gradients: Sequence[Gradient]  # empty: no update
    sent: bool


class Outbox:
    """A worker's outgoing gradients: each is sent, stored, or replaced by the last one sent."""

    def __init__(self, sim: Simulation, path: GatePath, unsent_rule: UnsentRule):
        self._sim, self._path, self._unsent_rule = sim, path, unsent_rule
        self._gradients: list[Gradient] = []  # the last one sent, or those not yet sent

    def restart(self) -> None:
        """Clear the outbox after a crash; the next message passes, like a first one."""
        self._gradients = []
        self._path.restart()

    def sends(self, gradient: Gradient) -> bool:
        """Return True if the worker's next gradient is sent. Raise FredError if its last 100,000 were not."""
        if self._path.withheld >= _MOST_WITHHELD:
            raise FredError(
                f"the gate of pushes passed none of worker {gradient.worker}'s last {_MOST_WITHHELD:,} gradients; expected a "
                "gate that opens again"
            )
        return self._path.passes(gradient.copy)

    def put(self, gradient: Gradient, is_sent: bool) -> Outgoing:
        """Add a worker's next gradient and return the outgoing message; a gradient that is not sent must be finished."""
        applies_again = self._unsent_rule == "apply-again"
        if applies_again and not is_sent:
            self._sim.drop(gradient, cost=NOTHING)
            return Outgoing(self._gradients, sent=False)  # the last one sent, which the server has
        gradients = [gradient] if applies_again else [*self._gradients, gradient]
        self._gradients = gradients if applies_again or not is_sent else []
        return Outgoing(gradients if is_sent else (), is_sent)

    def update(self, message: Outgoing, block: int = 0) -> None:
        """Update a server with a message that has arrived."""
        cost = None if message.sent else NOTHING
        for gradient in message.gradients[:-1]:  # at no further cost, and of one worker, so all weigh the same
            self._sim.add(gradient, cost=NOTHING, block=block, weight=1.0)
        if len(message.gradients) == 1:
            self._sim.push(message.gradients[0], cost=cost, block=block)
        elif message.gradients:
            self._sim.add(message.gradients[-1], cost=cost, block=block, weight=1.0)
            self._sim.commit(block=block, weight=1.0 if self._unsent_rule == "sum" else None)  # None: the mean


class Gated(Gates, Central):
    """Asynchronous SGD whose pushes and fetches pass through gates.

    A worker's first message always passes; its gate decides on the others. A `periodic` gate lets every k-th message pass.
    A `statistical` gate lets each message pass with probability 1 / (1 + c / (v + epsilon)), v a statistic of the server's
    state.

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
            sim.work(worker, partial(self._work, sim, worker, self.fetches(sim, worker), self.pushes(sim, worker)))

    def _work(self, sim: Simulation, worker: int, fetch_path: GatePath, outbox: Outbox) -> Process:
        def update(_: Gradient, block: int) -> None:
            outbox.update(message, block)

        outbox.restart()
        model: Copy | None = None
        while True:
            if fetch_path.passes(model) or model is None:
                model = yield from self.fetch(sim, worker)
            else:
                model = self.unfetched(sim, model)
            gradient = yield from self.compute(sim, worker, model)
            model = gradient.copy
            is_sent = outbox.sends(gradient)
            if not is_sent:  # otherwise `deliver` waits for its blocks; with `overlap` it is still being computed
                yield gradient.finished
            message = outbox.put(gradient, is_sent)
            if is_sent:
                yield from self.deliver(sim, gradient, update)
            else:
                for block in range(sim.blocks):
                    update(gradient, block)
