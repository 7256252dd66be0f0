"""Gates, which save messages [Dean et al. 2012; Odena 2016, eq. 9]: what passes, and what becomes of the rest."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from pydantic import Field, model_validator

from fred import streams
from fred.cluster.network import NOTHING
from fred.components.component import Count
from fred.protocols.protocol import Protocol
from fred.timing.copies import Copy, Gradient
from fred.timing.simulation import Simulation


class Gates(Protocol):
    """A protocol whose workers push and fetch through gates: `Gated` says what these do."""

    c_push: float = Field(0.0, ge=0, description="how hard pushing is restrained; 0: not at all", examples=[0.01])
    c_fetch: float = Field(0.0, ge=0, description="how hard fetching is restrained; 0: not at all", examples=[0.1])
    epsilon: float = Field(1e-4, gt=0, description="added to the statistic")
    k_push: Count = Field(1, description="every k-th gradient is pushed, instead of `c_push`")
    k_fetch: Count = Field(1, description="parameters are fetched before every k-th gradient, instead of `c_fetch`")
    unsent: Literal["apply-again", "sum", "mean"] | None = Field(
        None, description="what is done for gradients that are not pushed; absent: `sum` for `k_push`, else `apply-again`"
    )

    stamp: Literal["read", "published"] = Field(
        "read", description="timestamp after a fetch that did not pass: of the parameters in use, or of those not fetched"
    )

    @model_validator(mode="after")
    def _one_gate_each(self) -> "Gates":
        for way in ("push", "fetch"):
            if getattr(self, f"c_{way}") and getattr(self, f"k_{way}") > 1:
                raise ValueError(f"give `c_{way}` or `k_{way}`, not both")
        return self

    @property
    def needs_values(self) -> bool:
        """Where messages pass as the gradients ask for."""
        return bool(self.c_push or self.c_fetch)

    def fetches(self, sim: Simulation, worker: int) -> "Gate":
        """The gate of a worker's fetches."""
        return Gate(sim, "fetch gate", worker, self.k_fetch, self.c_fetch, self.epsilon)

    def unfetched(self, sim: Simulation, copy: Copy) -> Copy:
        """What a worker goes on with when a fetch has not passed."""
        return sim.stamp(copy) if self.stamp == "published" else copy

    def pushes(self, sim: Simulation, worker: int) -> "Outbox":
        """What a worker's gradients go through."""
        gate = Gate(sim, "push gate", worker, self.k_push, self.c_push, self.epsilon)
        return Outbox(sim, gate, self._unsent)

    @property
    def sends_sums(self) -> bool:
        return self._unsent != "apply-again"

    @property
    def _unsent(self) -> str:
        """What is done for gradients that are not pushed."""
        return self.unsent or ("sum" if self.k_push > 1 else "apply-again")


class Gate:
    """Whether a worker's next message passes; the first always does."""

    def __init__(self, sim: Simulation, purpose: str, worker: int, every: int, c: float, epsilon: float):
        self._sim, self._every, self._c, self._epsilon = sim, every, c, epsilon
        self._draws = streams.one_by_one(sim.seed, purpose, worker)
        self._offered = 0  # messages so far

    def passes(self) -> bool:
        """The answer for one more message."""
        number, self._offered = self._offered, self._offered + 1
        if number == 0 or not self._c:
            return number % self._every == 0
        return next(self._draws) < 1 / (1 + self._c / (self._sim.statistic() + self._epsilon))

    def begin_anew(self) -> None:
        """The next message passes."""
        self._offered = 0


class Outgoing(NamedTuple):
    """What a server updates with when a worker has computed one more gradient."""

    gradients: Sequence[Gradient]  # none: with nothing
    sent: bool


class Outbox:
    """A worker's gradients on their way out: sent, kept for later, or replaced by the last that was sent."""

    def __init__(self, sim: Simulation, gate: Gate, unsent: str):
        self._sim, self._gate, self._unsent = sim, gate, unsent
        self._kept: list[Gradient] = []  # the last one sent, or those not yet sent

    def begin_anew(self) -> None:
        """The worker has crashed, and what it kept is lost; its next message passes, as its first one did."""
        self._kept = []
        self._gate.begin_anew()

    def sends(self) -> bool:
        """Whether the worker's next gradient is sent."""
        return self._gate.passes()

    def put(self, gradient: Gradient, sends: bool) -> Outgoing:
        """What comes of a worker's next gradient; one that is not sent must be finished."""
        again = self._unsent == "apply-again"
        if again and not sends:
            self._sim.drop(gradient, cost=NOTHING)
            return Outgoing(self._kept, sent=False)
        gradients = [gradient] if again else [*self._kept, gradient]
        self._kept = gradients if again or not sends else []
        return Outgoing(gradients if sends else (), sends)

    def update(self, message: Outgoing, block: int = 0) -> None:
        """A server's update with a message that has arrived."""
        cost = None if message.sent else NOTHING
        for earlier in message.gradients[:-1]:
            self._sim.add(earlier, cost=NOTHING, block=block)
        if len(message.gradients) == 1:
            self._sim.push(message.gradients[0], cost=cost, block=block)
        elif message.gradients:
            self._sim.add(message.gradients[-1], cost=cost, block=block)
            self._sim.commit(block=block, weight=1.0 if self._unsent == "sum" else None)
