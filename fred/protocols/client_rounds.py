"""Rounds of federated learning: a sample of the available clients takes local steps from the server model.

| class        | source                                                                                                     |
|--------------|------------------------------------------------------------------------------------------------------------|
| ClientRounds | McMahan et al. 2017, "Communication-efficient learning", arXiv:1602.05629, algorithm 1;                    |
|              | `spare`, `deadline`, `minimum`: Bonawitz et al. 2019, "At scale", arXiv:1902.01046, section 2.2;           |
|              | `sampling: size`: Li, Huang et al. 2020, arXiv:1907.02189, section 3.3; `work`: FedProx, arXiv:1812.06127; |
|              | `normalized`: Wang et al. 2020, "FedNova", arXiv:2007.07481, section 5                                     |

Example: ten minutes of a hundred clients; every round asks ten, and with `spare` five more.
    >>> import fred
    >>> settings = {
    ...     "cluster": {"workers": 100, "compute": {"name": "lognormal", "median": 1.0, "sigma": 1.0}},
    ...     "stop": {"seconds": 600.0},
    ...     "algorithm": {"name": "fedavg", "learning_rate": 0.1},
    ... }
    >>> def measured(**protocol):
    ...     schedule = fred.run(fred.scenario(settings, protocol=protocol)).outcomes[0].schedule
    ...     return len(schedule.rows(fred.Verb.COMMIT)), schedule.counts()["dropped"]
    >>> measured(clients=10, period=5)
    (31, 0)
    >>> measured(clients=10, period=5, spare=5)
    (68, 1330)
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
import simpy
from pydantic import Field

from fred.base import numerics
from fred.base.numerics import log
from fred.cluster.cluster import Cluster
from fred.cluster.durations import NEVER
from fred.cluster.network import NOTHING
from fred.components.component import NANOSECONDS, Count, Duration, Natural
from fred.protocols.protocol import Protocol
from fred.schedule.layout import Layout
from fred.timing.copies import Gradient
from fred.timing.simulation import Process, Simulation

_STEPS, _SERVER = 0, 1  # replicas
Measure = Literal["equal", "size", "speed"]  # of clients


class ClientRounds(Protocol):
    """In each round, sampled clients take local steps from the server model; their mean pseudo-gradient moves that model.

    A round samples `clients` of the available clients without replacement, and `spare` more. It ends with the first `clients`
    pseudo-gradients, or at the `deadline` with those that have arrived, but at least `minimum`. Later ones are dropped. A late
    client aborts its steps (`late: interrupt`), or finishes and sends them all the same (`late: finish`); only then it may be
    sampled again.

    The size of a client is the number of its own examples (`task.division`), its speed the mean number of gradients per
    second. Clients have no models of their own between rounds, and a run holds none for them: its memory does not grow with
    the number of clients. Steps of late clients are not computed.
    """

    name = "client-rounds"
    faults: ClassVar[str] = (
        "Only available clients are sampled. A client that goes offline computes the lost gradient again when it rejoins; "
        "the round waits for it unless others stand in (`spare`) or the `deadline` passes."
    )

    clients: Count | None = Field(default=None, description="number of pseudo-gradients in a round; absent: of all clients")
    period: Count = Field(default=10, description="H: local steps of a client, or on average over clients")
    spare: Natural = Field(default=0, description="further clients that each round samples, and does not wait for")
    sampling: Literal["uniform", "size", "speed"] = Field(
        default="uniform", description="probability of a client: equal, or in proportion to its size or speed"
    )
    weights: Literal["equal", "size"] = Field(
        default="equal", description="weight of each pseudo-gradient in the mean: equal, or in proportion to the client's size"
    )
    work: Measure = Field(
        default="equal",
        description="local steps: H of each client, or H x size / mean size, or H x speed / mean speed, at least 1",
    )
    normalized: bool = Field(
        default=False,
        description="whether each pseudo-gradient counts per local step, and the mean times the mean number of steps",
    )
    deadline: Duration | None = Field(
        default=None, description="seconds after which a round ends with those that have arrived; absent: it waits"
    )
    minimum: Count = Field(
        default=1, description="pseudo-gradients that a round needs at its deadline, and clients to begin with"
    )
    late: Literal["interrupt", "finish"] = Field(
        default="interrupt", description="what clients do when their round ends without them"
    )

    @property
    def needs_examples(self) -> bool:
        return "size" in (self.sampling, self.weights, self.work)

    @property
    def needs_division(self) -> str:
        options = {"work": self.work, "sampling": self.sampling}  # weights of clients without data of their own are equal
        return next((f"`{name}: size`" for name, measure in options.items() if measure == "size"), "")

    @property
    def needs_plain_steps(self) -> str:
        return "`normalized: true`" if self.normalized else ""

    def check(self, cluster: Cluster) -> None:
        clients = self.clients or cluster.size
        if clients + self.spare > cluster.size:
            raise ValueError(f"a round samples {clients + self.spare} clients (`clients` + `spare`), of {cluster.size} workers")
        if self.minimum > clients:
            raise ValueError(f"`minimum` ({self.minimum}) must be at most the number of `clients` ({clients})")

    def layout(self, cluster: Cluster) -> Layout:
        return Layout.clients()

    def start(self, sim: Simulation) -> None:
        rounds = _Rounds(sim, self)
        sim.process(rounds.run())


def relative(measure: str, sim: Simulation) -> np.ndarray:
    """Return the size or speed of each client relative to the mean, [workers]; ones for `equal` and `uniform`.

    Args:
        measure: `size`, `speed`, `equal` or `uniform`.
        sim: the run.
    """
    values: Sequence[float] = ()
    if measure == "size":
        values = sim.sizes.examples
    elif measure == "speed":
        values = sim.cluster.worker_rates()
    measured = np.array(values or [1.0] * sim.workers)  # sizes are empty if all are equal
    return measured / measured.mean()


class _Rounds:
    """The server, which samples clients round by round, and the clients at work."""

    def __init__(self, sim: Simulation, protocol: ClientRounds):
        self._sim, self._protocol = sim, protocol
        self._quorum = protocol.clients or sim.workers
        self._chances = None if protocol.sampling == "uniform" else relative(protocol.sampling, sim)
        self._shares = relative(protocol.weights, sim).tolist()
        self._steps = np.maximum(1, np.rint(protocol.period * relative(protocol.work, sim))).astype(int).tolist()
        self._work: dict[int, simpy.Process] = {}  # of clients that have not finished
        self._free_event = sim.env.event()  # happens when a client finishes

    def run(self) -> Process:
        """Sample clients and collect their pseudo-gradients, round after round."""
        sim, number = self._sim, 0
        while True:
            members = self._sample(number)
            if len(members) < self._protocol.minimum:
                yield from self._wait_for_clients()
                continue
            current_round = _Round(self, min(self._quorum, len(members)))
            for worker in members:
                self._work[worker] = sim.process(self._turn(current_round, worker))
            if self._protocol.deadline is not None:
                sim.later(round(self._protocol.deadline * NANOSECONDS), current_round.fall_due)
            yield from sim.wait("the server", current_round.ended, f"{current_round.quorum} clients of round {number}")
            if self._protocol.late == "interrupt":
                for process in self._work.values():
                    process.interrupt()
                yield sim.env.after(0)  # until they have aborted
            number += 1

    def close(self, weights: Sequence[float], shares: Sequence[float]) -> None:
        """Apply the round's sum, to which each pseudo-gradient was added with its weight."""
        # A weight is the share or, if `normalized`, share x H / steps (`weight_of`; H is `period`). So share^2 / weight is the
        # share, or share x steps / H, and `scaled_shares` / total is 1, or the mean number of steps / H: the tau of FedNova
        # [Wang et al. 2020, section 5]. The other 1 / total turns the sum of weighted pseudo-gradients into a mean.
        total = sum(shares)
        scaled_shares = sum(share * share / weight for share, weight in zip(shares, weights, strict=True))
        self._sim.commit(_SERVER, weight=scaled_shares / (total * total))

    def weight_of(self, worker: int) -> tuple[float, float]:
        """Return the weight with which a client's pseudo-gradient joins the sum, and its share of the mean."""
        share = self._shares[worker]
        return (share * self._protocol.period / self._steps[worker] if self._protocol.normalized else share), share

    def _sample(self, number: int) -> list[int]:
        """Return the clients of a round, in order: available, and free of work for an earlier one."""
        # In proportion to chances, without replacement: the clients whose exponential clocks, with the chances as rates, ring
        # first [Efraimidis, Spirakis 2006]. A client's draw depends on its number and the round alone, whoever is available.
        sim, members = self._sim, list[int]()
        draws = numerics.uniforms(sim.seed, "clients", number, 0, sim.workers)
        order = np.argsort(draws if self._chances is None else -log(draws) / self._chances, kind="stable")
        for worker in order.tolist():
            if worker not in self._work and sim.back(worker, sim.now) == sim.now:
                members.append(worker)
                if len(members) == self._quorum + self._protocol.spare:
                    break
        return sorted(members)

    def _wait_for_clients(self) -> Process:
        """Wait until one more client may be sampled."""
        sim = self._sim
        idle = (worker for worker in range(sim.workers) if worker not in self._work)
        first_rejoin = min((rejoin for worker in idle if (rejoin := sim.back(worker, sim.now)) > sim.now), default=NEVER)
        if first_rejoin < NEVER:
            sim.later(first_rejoin - sim.now, self._announce_free)
        yield from sim.wait("the server", self._free_event, f"{self._protocol.minimum} available clients")

    def _announce_free(self) -> None:
        event, self._free_event = self._free_event, self._sim.env.event()
        event.succeed()

    def _turn(self, current_round: "_Round", worker: int) -> Process:
        """Take one client's local steps in a round, and send their pseudo-gradient."""
        sim, gradients, message = self._sim, list[Gradient](), None
        try:
            model = yield from sim.pull(worker, _SERVER)
            for _ in range(self._steps[worker]):
                gradients.append(sim.compute(worker, model))
                yield gradients[-1].finished
            yield from sim.present(worker)
            message = sim.pseudo_gradient(worker, model, model)  # leads to the model after the steps once they are taken
            yield from sim.send(message)
        except simpy.Interrupt:
            pass
        del self._work[worker]
        if message is not None and current_round.accepts:  # only now are the steps needed
            sim.take_steps(gradients, message, _STEPS)
            current_round.add(message)
        else:
            for gradient in gradients:
                sim.drop(gradient, _STEPS, NOTHING)
            if message is not None:
                sim.drop(message, _SERVER)
        self._announce_free()


class _Round:
    """One round: the pseudo-gradients that have arrived, until it is over."""

    def __init__(self, rounds: _Rounds, quorum: int):
        self._rounds, self._sim, self._protocol = rounds, rounds._sim, rounds._protocol
        self.quorum = quorum
        self.ended = self._sim.env.event()
        self._weights: list[float] = []
        self._shares: list[float] = []

    @property
    def accepts(self) -> bool:
        """Return True until the round is over."""
        return not self.ended.triggered

    def add(self, message: Gradient) -> None:
        """Add a pseudo-gradient; the last one that is needed ends the round."""
        # It joins the server's sum at once. The factor that makes the sum a mean is known only when the round ends, from the
        # weights and shares of all that have joined. A message that comes later is dropped: see `accepts`.
        weight, share = self._rounds.weight_of(message.worker)
        self._sim.add(message, _SERVER, weight=weight)
        self._weights.append(weight)
        self._shares.append(share)
        if len(self._shares) == self.quorum:
            self._end()

    def fall_due(self) -> None:
        """End the round, or let it end with its `minimum`."""
        if not self.accepts:
            return
        self.quorum = max(len(self._shares), min(self.quorum, self._protocol.minimum))
        if len(self._shares) == self.quorum:
            self._end()

    def _end(self) -> None:
        self._rounds.close(self._weights, self._shares)
        self.ended.succeed()
