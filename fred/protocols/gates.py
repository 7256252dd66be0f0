"""Pushes and fetches that pass through gates, to save messages [Dean et al. 2012; Odena 2016, sections 2.3 and 3]."""

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from fred.base import streams
from fred.base.errors import FredError
from fred.cluster.durations import NANOSECONDS
from fred.cluster.network import NOTHING
from fred.components import registry
from fred.components.component import Count
from fred.components.one_of import OneOf
from fred.protocols.gate_rules import Gate, Offer, Periodic, Statistical, Unsent
from fred.protocols.protocol import Protocol
from fred.timing.copies import Copy, Gradient
from fred.timing.simulation import Simulation

_MOST_WITHHELD = 100_000  # gradients of a worker in a row: with none applied, a run might never end


class Gates(Protocol):
    """A protocol whose workers push and fetch through gates; `Gated` describes them."""

    push_gate: Annotated[Gate, OneOf("gate")] | None = Field(
        None, description="gate of pushes; absent: the one that `c_push` or `k_push` defines"
    )
    fetch_gate: Annotated[Gate, OneOf("gate")] | None = Field(
        None, description="gate of fetches; absent: the one that `c_fetch` or `k_fetch` defines"
    )
    c_push: float = Field(0.0, ge=0, description="c of a `statistical` gate of pushes; 0: none", examples=[0.01])
    c_fetch: float = Field(0.0, ge=0, description="c of a `statistical` gate of fetches; 0: none", examples=[0.1])
    epsilon: float = Field(1e-4, gt=0, description="added to the statistic, with `c_push` and `c_fetch`")
    k_push: Count = Field(1, description="k of a `periodic` gate of pushes; 1: none")
    k_fetch: Count = Field(1, description="k of a `periodic` gate of fetches; 1: none")
    unsent: Unsent | None = Field(
        None, description="treatment of gradients that are not pushed; absent: `sum` with a `periodic` gate, else `apply-again`"
    )

    stamp: Literal["read", "published"] = Field(
        "read", description="timestamp after a fetch that did not pass: of the parameters in use, or of those not fetched"
    )

    @model_validator(mode="after")
    def _one_gate_each(self) -> "Gates":
        for way in ("push", "fetch"):
            names = (f"{way}_gate", f"c_{way}", f"k_{way}")
            given = [f"`{name}`" for name in names if getattr(self, name) != type(self).model_fields[name].default]
            if len(given) > 1:
                raise ValueError(f"give {' or '.join(given)}, not both")
        return self

    @property
    def needs_values(self) -> bool:
        """Return True if a gate asks for the algorithm's statistic, so that timing depends on learning."""
        return any(gate is not None and gate.needs_values for gate in (self._push_gate, self._fetch_gate))

    def fetches(self, sim: Simulation, worker: int) -> "Way":
        """Return the path of a worker's fetches through its gate."""
        return Way(sim, "fetch gate", worker, self._fetch_gate)

    def unfetched(self, sim: Simulation, copy: Copy) -> Copy:
        """Return the copy with which a worker continues after a fetch that did not pass."""
        return sim.stamp(copy) if self.stamp == "published" else copy

    def pushes(self, sim: Simulation, worker: int) -> "Outbox":
        """Return the outbox through which a worker's gradients pass."""
        return Outbox(sim, Way(sim, "push gate", worker, self._push_gate), self._unsent)

    @property
    def sends_sums(self) -> bool:
        return self._unsent != "apply-again"

    @property
    def _push_gate(self) -> Gate | None:
        return self.push_gate or _gate(self.c_push, self.epsilon, self.k_push)

    @property
    def _fetch_gate(self) -> Gate | None:
        return self.fetch_gate or _gate(self.c_fetch, self.epsilon, self.k_fetch)

    @property
    def _unsent(self) -> Unsent:
        """Return the way to treat gradients that are not pushed."""
        return self.unsent or (self._push_gate or Gate).unsent


def _gate(c: float, epsilon: float, k: int) -> Gate | None:
    """Return the gate that the options c and k define, or None."""
    if c:
        return Statistical(c=c, epsilon=epsilon)
    return Periodic(k=k) if k > 1 else None


class Way:
    """The path of a worker's pushes, or of its fetches, through a gate; without a gate all pass."""

    def __init__(self, sim: Simulation, purpose: str, worker: int, gate: Gate | None):
        self._sim, self._worker, self._gate = sim, worker, gate
        self._needs_values = gate is not None and gate.needs_values
        self._draws = streams.one_by_one(sim.seed, purpose, worker)
        self._offered = 0  # messages so far
        self.withheld = 0  # since the last one that passed

    def passes(self, copy: Copy | None) -> bool:
        """Return True if the next message passes; the first one does, and every fetch of a worker without a copy."""
        number, self._offered = self._offered, self._offered + 1
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
        self._offered = self.withheld = 0

    def _offer(self, number: int, draw: float, copy: Copy) -> Offer:
        sim = self._sim
        if sim.blocks == 1:
            staleness = sim.record.clocks[0] - copy.timestamp
        else:
            staleness = max(sim.clock(block=block) - copy.at(block) for block in range(sim.blocks))
        statistic = sim.statistic() if self._needs_values else None
        seconds, updates = sim.now / NANOSECONDS, sim.record.updates
        return Offer(self._worker, number, self.withheld, seconds, updates, staleness, draw, statistic)


class Outgoing(NamedTuple):
    """The gradients with which a server updates after a worker has computed one more."""

    gradients: Sequence[Gradient]  # empty: no update
    sent: bool


class Outbox:
    """A worker's outgoing gradients: each is sent, stored, or replaced by the last one sent."""

    def __init__(self, sim: Simulation, way: Way, unsent: Unsent):
        self._sim, self._way, self._unsent = sim, way, unsent
        self._kept: list[Gradient] = []  # the last one sent, or those not yet sent

    def restart(self) -> None:
        """Clear the outbox after a crash; the next message passes, like a first one."""
        self._kept = []
        self._way.restart()

    def sends(self, gradient: Gradient) -> bool:
        """Return True if the worker's next gradient is sent. Raise FredError if its last 100,000 were not."""
        if self._way.withheld >= _MOST_WITHHELD:
            raise FredError(
                f"the gate of pushes passed none of worker {gradient.worker}'s last {_MOST_WITHHELD:,} gradients; expected a "
                "gate that opens again"
            )
        return self._way.passes(gradient.copy)

    def put(self, gradient: Gradient, sends: bool) -> Outgoing:
        """Add a worker's next gradient and return the outgoing message; a gradient that is not sent must be finished."""
        again = self._unsent == "apply-again"
        if again and not sends:
            self._sim.drop(gradient, cost=NOTHING)
            return Outgoing(self._kept, sent=False)
        gradients = [gradient] if again else [*self._kept, gradient]
        self._kept = gradients if again or not sends else []
        return Outgoing(gradients if sends else (), sends)

    def update(self, message: Outgoing, block: int = 0) -> None:
        """Update a server with a message that has arrived."""
        cost = None if message.sent else NOTHING
        for earlier in message.gradients[:-1]:
            self._sim.add(earlier, cost=NOTHING, block=block, weight=1.0)  # of one worker
        if len(message.gradients) == 1:
            self._sim.push(message.gradients[0], cost=cost, block=block)
        elif message.gradients:
            self._sim.add(message.gradients[-1], cost=cost, block=block, weight=1.0)
            self._sim.commit(block=block, weight=1.0 if self._unsent == "sum" else None)
