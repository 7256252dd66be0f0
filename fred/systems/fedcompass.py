"""FedCompass: clients take as many local steps as let groups of them arrive together.

| name                      | source                                                                                    |
|---------------------------|-------------------------------------------------------------------------------------------|
| fedcompass, ArrivalGroups | Li et al. 2024, "FedCompass", arXiv:2309.14675, and its published code, APPFL's scheduler |

Example: a minute in which three clients take 0.5 s for each gradient, and the fourth 2 s. After 10 s all arrive together every
4 s: the fast ones make 8 steps, the slow one makes 2.
    >>> import fred
    >>> settings = {
    ...     "cluster": {"workers": 4, "speeds": [1.0, 1.0, 1.0, 0.25], "compute": {"name": "constant", "seconds": 0.5}},
    ...     "stop": {"seconds": 60.0},
    ...     "algorithm": {"name": "fedcompass", "learning_rate": 0.1},
    ... }
    >>> def measured(**protocol):
    ...     outcome = fred.run(fred.scenario(settings, protocol=protocol)).outcomes[0]
    ...     return outcome.schedule.counts()["gradients"], len(outcome.schedule.rows(fred.Verb.COMMIT))
    >>> measured(name="arrival-groups", period=8, least=2)
    (377, 19)
    >>> measured(name="client-rounds", period=8)
    (120, 3)
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from fred.base.imports import jax
from fred.cluster.cluster import Cluster
from fred.components.component import NANOSECONDS, Count
from fred.learning.server import Decay, Family, Message, Scalar, State
from fred.protocols.client_rounds import relative
from fred.protocols.protocol import Protocol
from fred.schedule.layout import Layout
from fred.schedule.schedule import What
from fred.systems.fedavg import FedAvg
from fred.timing.copies import Gradient
from fred.timing.simulation import Process, Simulation

_STEPS, _SERVER = 0, 1  # replicas
_ROUNDING = 1e-6  # of a step: a whole number of steps may miss a time by the rounding to nanoseconds


class FedCompass(FedAvg):
    """Semi-asynchronous federated averaging: pseudo-gradients of a group of clients, weighted by staleness, move the model.

    Weights p_i of all clients sum to 1, so a few clients move the model less. The published code multiplies each
    pseudo-gradient by 0.9, too (`server_rate`).

    Two of two clients, whose pseudo-gradients of 1 are 0 and 3 updates stale:

        >>> from fred.systems.fedcompass import FedCompass
        >>> import jax.numpy as jnp
        >>> server = FedCompass(learning_rate=0.1)
        >>> state = server.init({"w": jnp.array([1.0])}, workers=2).replace(clock=jnp.int32(3))
        >>> parts = [server.contribute(state, {"w": jnp.array([1.0])}, timestamp, worker=0)["w"] for timestamp in (3, 0)]
        >>> server.apply_round(state, {"w": (parts[0] + parts[1]) / 2}, timestamp=3, count=2).params["w"].tolist()
        [0.25]
    """

    name = "fedcompass"
    family = Family.ANSWERED
    rule = """\
w_i <- w_i - step(g_i)    (H_i times, from w on; H_i such that a group of clients arrives together)
w <- w - server_rate x sum of p_i (w when it was read - w_i) / (1 + tau)^exponent    (of a group)"""
    protocol = "arrival-groups"
    protocol_options = {"weights": "size"}

    exponent: Annotated[float, Field(ge=0)] = Field(
        default=0.5, description="exponent of the weight's decay with staleness; 0: constant weight"
    )

    def contribute(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> Message:
        """Return the `message`, a pseudo-gradient, weighted by its staleness."""
        weight = (1.0 + state.clock - timestamp) ** -self.exponent
        return jax.tree.map(lambda leaf: weight * leaf, message)


class ArrivalGroups(Protocol):
    """The server asks each client for as many local steps as let it arrive together with others, in an arrival group.

    From earlier tasks, the server estimates each client's time per local step, messages included. A client joins the open group
    until whose expected arrival it has time for the most steps, from Q_min to Q_max. If there is none, it opens a group. For
    each open group there is a time at which its fastest client could be back: Q_max steps after the group's latest arrival.
    The client makes as many steps as it has time for until then: the largest such number up to Q_max, and at least Q_min. If
    all are above Q_max, it makes Q_max steps. The latest arrival is `lateness` times as far away as the expected one.

    A group ends when all its clients have arrived, or else after its latest arrival. The server then applies the
    pseudo-gradients that have arrived, and gives their clients new tasks, the fastest first. A late client gets a new task at
    once; its pseudo-gradient is applied with the next group. First tasks belong to no group, and are applied on arrival.

    FRED follows the published code, with a few choices:

    - First tasks have `first` steps, by default Q_min. The code expects Q_max.
    - Staleness is the number of updates until a pseudo-gradient is applied, not until it arrives.
    - If a client is late twice before the next update, both pseudo-gradients count. The code overwrites the first one.
    - A group of which no client arrives in time makes no update, not even with late pseudo-gradients.
    - With `speeds: known` there are no first tasks: the server knows mean compute times, and all begin in groups.

    The server holds a model for each pseudo-gradient that waits for its group.
    """

    name = "arrival-groups"
    faults: ClassVar[str] = (
        "A client that goes offline computes the lost gradient again when it rejoins. Its group waits for it until the "
        "group's latest arrival; then its pseudo-gradient counts as late."
    )

    period: Count = Field(default=10, description="Q_max: most local steps of a task")
    least: Count | None = Field(
        default=None, description="Q_min: fewest local steps of a task; absent: a fifth of Q_max, at least 1"
    )
    first: Count | None = Field(default=None, description="local steps of each client's first task; absent: Q_min")
    lateness: Annotated[float, Field(ge=1)] = Field(
        default=1.5, description="lambda: time until a group's latest arrival, divided by that until its expected arrival"
    )
    decay: Decay = Field(
        default=0.1, description="decay of the moving average of a client's time per step; 0: the last task's alone"
    )
    speeds: Literal["measured", "known"] = Field(
        default="measured",
        description="whether the server measures the time per step in first tasks, or knows its mean at the start",
    )
    weights: Literal["equal", "size"] = Field(
        default="equal",
        description="weight p_i of a pseudo-gradient: equal, or by the client's examples (usual for `fedcompass`)",
    )

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.fewest > self.period:
            raise ValueError(f"`least` ({self.least}) must not exceed `period` ({self.period})")
        if self.first is not None and self.speeds == "known":
            raise ValueError("`first` needs `speeds: measured`: with `known` there are no first tasks")
        return self

    @property
    def fewest(self) -> int:
        """Return Q_min."""
        return self.least or max(1, self.period // 5)

    @property
    def needs_examples(self) -> bool:
        return self.weights == "size"

    def layout(self, cluster: Cluster) -> Layout:
        return Layout.clients()

    def start(self, sim: Simulation) -> None:
        _Scheduler(sim, self).start()


@dataclass(eq=False)
class _Group:
    """Clients that are expected to arrive together."""

    expected: float  # arrival, ns
    latest: int  # arrival, ns
    members: list[int] = field(default_factory=list)  # clients
    arrived: list[_Arrival] = field(default_factory=list)
    is_ended: bool = False


class _Task(NamedTuple):
    """Local steps that a client is asked for."""

    worker: int
    steps: int
    begin: int  # ns
    group: _Group | None  # None: a first task


class _Arrival(NamedTuple):
    """A pseudo-gradient that the server holds, and when it came."""

    message: Gradient
    time: int  # ns


class _Scheduler:
    """The server: its estimates of clients' speeds, open groups, and late pseudo-gradients; and the clients' tasks."""

    def __init__(self, sim: Simulation, protocol: ArrivalGroups):
        self._sim, self._protocol = sim, protocol
        self._shares = relative(protocol.weights, sim).tolist()
        self._groups: list[_Group] = []  # open ones, in the order of opening
        self._late: list[_Arrival] = []
        speeds_known = protocol.speeds == "known"
        # Of each client: estimated ns per step; 0: unknown.
        self._pace = [NANOSECONDS / rate for rate in sim.cluster.worker_rates()] if speeds_known else [0.0] * sim.workers

    def start(self) -> None:
        """Give every client its first task."""
        everybody = range(self._sim.workers)
        if self._protocol.speeds == "known":
            self._assign_all(everybody)
            return
        for worker in everybody:
            self._begin(worker, self._protocol.first or self._protocol.fewest, None)

    def _assign_all(self, workers: Iterable[int]) -> None:
        """Give clients new tasks, the fastest first."""
        for worker in sorted(workers, key=self._pace.__getitem__):
            self._assign(worker)

    def _assign(self, worker: int) -> None:
        """Let a client join the group in which it has time for the most steps, or else open a group for it."""
        best_group, most_steps = None, self._protocol.fewest
        for group in self._groups:
            steps = self._steps_until(group.expected, worker)
            if most_steps <= steps <= self._protocol.period:
                best_group, most_steps = group, steps
        if best_group is None:
            most_steps = self._steps_alone(worker)
            best_group = self._open_group(most_steps * self._pace[worker])
        self._begin(worker, most_steps, best_group)

    def _steps_until(self, time: float, worker: int) -> int:
        """Return the number of steps for which a client has time until a `time`, ns."""
        return math.floor((time - self._sim.now) / self._pace[worker] + _ROUNDING)

    def _steps_alone(self, worker: int) -> int:
        """Return the number of steps of a client that opens a group."""
        most_steps, steps_of_groups = self._protocol.period, list[int]()
        for group in self._groups:
            # When the group's fastest client could be back from a next task.
            next_arrival = group.latest + most_steps * min(self._pace[member] for member in group.members)
            if group.latest > self._sim.now and (steps := self._steps_until(next_arrival, worker)) <= most_steps:
                steps_of_groups.append(steps)
        return max(self._protocol.fewest, *steps_of_groups) if steps_of_groups else most_steps

    def _open_group(self, delay: float) -> _Group:
        """Open a group that is expected in `delay` ns."""
        now = self._sim.now
        group = _Group(expected=now + delay, latest=now + math.ceil(delay * self._protocol.lateness))
        self._groups.append(group)
        self._sim.later(group.latest + 1 - now, partial(self._end, group))  # after all arrivals in time
        return group

    def _begin(self, worker: int, steps: int, group: _Group | None) -> None:
        if group is not None:
            group.members.append(worker)
        self._sim.process(self._work(_Task(worker, steps, self._sim.now, group)))

    def _work(self, task: _Task) -> Process:
        """Take a task's local steps, and send their pseudo-gradient."""
        sim, worker, gradients = self._sim, task.worker, list[Gradient]()
        yield from sim.present(worker)
        model = yield from sim.pull(worker, _SERVER)
        for _ in range(task.steps):
            gradients.append(sim.compute(worker, model))
            yield gradients[-1].finished
        yield from sim.present(worker)
        # It leads to the model after the steps once they are taken, on arrival: `take_steps` says why.
        pseudo_gradient = sim.pseudo_gradient(worker, before=model, after=model)
        yield from sim.send(pseudo_gradient)
        sim.take_steps(gradients, pseudo_gradient, _STEPS)
        self._receive(task, _Arrival(pseudo_gradient, sim.now))

    def _receive(self, task: _Task, arrival: _Arrival) -> None:
        """Apply a pseudo-gradient, or hold it until its group ends; if it is late, until the next group ends."""
        self._measure(task)
        if task.group is None:
            self._apply([arrival])
            self._assign(task.worker)
        elif task.group.is_ended:
            self._late.append(arrival)
            self._assign(task.worker)
        else:
            task.group.arrived.append(arrival)
            if len(task.group.arrived) == len(task.group.members):
                self._end(task.group)

    def _measure(self, task: _Task) -> None:
        """Update the estimate of a client's time per step."""
        last_pace, pace = max(1, self._sim.now - task.begin) / task.steps, self._pace[task.worker]
        # This form of the moving average is exact if both are equal; a pace of 0 is unknown.
        self._pace[task.worker] = last_pace + self._protocol.decay * (pace - last_pace) if pace else last_pace

    def _end(self, group: _Group) -> None:
        """End a group, unless it is over: apply its pseudo-gradients, and give its clients new tasks."""
        if group.is_ended:
            return
        group.is_ended = True
        self._groups.remove(group)
        if group.arrived:
            self._apply(self._late + group.arrived)
            self._late = []
            self._assign_all(arrival.message.worker for arrival in group.arrived)

    def _apply(self, arrivals: list[_Arrival]) -> None:
        """Update the server model with these pseudo-gradients."""
        sim = self._sim
        for message, time in arrivals:
            if time < sim.now:
                # It was sent until `time`, and has waited since. The row of the ADD, the next one, would show it as sent until
                # now. So its sending becomes an interval of that row.
                sim.record.record_interval(What.SENDING, message.end, time, row=len(sim.record), worker=message.worker)
                message.begin = message.end = sim.now
            sim.add(message, _SERVER, weight=self._shares[message.worker])
        sim.commit(_SERVER, weight=1 / sim.workers)
