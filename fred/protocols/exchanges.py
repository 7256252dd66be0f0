"""Sequences of blocking exchanges, in which a delay spreads from neighbour to neighbour [docs/errata.md, item 27]."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fred.cluster.bandwidths import Within
from fred.cluster.cluster import Cluster
from fred.cluster.contention import Load
from fred.cluster.durations import NEVER
from fred.cluster.faults import LostMessages
from fred.cluster.network import Network, mean_latency
from fred.components.component import NANOSECONDS
from fred.schedule.schedule import What
from fred.timing.copies import Copy
from fred.timing.simulation import Simulation

_NEVER_IN_ARRAYS = 1 << 61  # ns
_MESSAGES_PER_ARRAY = 1 << 20  # messages in one array, which bounds memory

Deliver = Callable[[int, int, Copy], None]  # number, sender, model


class Exchanges:
    """The K exchanges of each iteration; each sends one K-th of the model to all neighbours.

    A worker's exchange is over when its part has left for all its receivers, one after the other, and the parts of all its
    senders have arrived. The worker then begins the next exchange. So the k-th exchange ends at T_k(w) = max over senders v,
    itself included, of T_(k-1)(v) + the message's time at mean latency. These are sums and maxima over arrays, not one event
    per message. If links have contention, the time of a message depends on when it is sent.

    A worker that is offline at the end of an exchange continues when it rejoins. The end of a worker's last exchange depends
    on the workers at most K edges away, and is known once all of them have begun. The worker receives the models at that end.
    """

    def __init__(self, sim: Simulation, graphs: list[list[list[int]]], exchanges: int | Literal["global"]):
        self._sim = sim
        self.parts = 1 if exchanges == "global" else exchanges
        self._messages_of_graph = [_Messages(sim, graph, exchanges) for graph in graphs]
        self._iterations: dict[int, _Iteration] = {}

    def begin(self, worker: int, number: int, model: Copy, deliver: Deliver) -> None:
        """Begin a worker's exchanges of one iteration; at their end, deliver its senders' models and its own."""
        messages = self._messages_of_graph[number % len(self._messages_of_graph)]
        iteration = self._iterations.setdefault(number, _Iteration(messages))
        iteration.begins[worker] = self._sim.now
        iteration.models[worker], iteration.deliver[worker] = model, deliver
        iteration.missing -= messages.within_reach[:, worker]  # this one, for those whose ends depend on it
        decided = np.flatnonzero((iteration.missing == 0) & ~iteration.is_decided)  # workers whose ends are known from now on
        if len(decided):
            iteration.is_decided[decided] = True
            ends, moving = messages.ends(iteration.begins)
            for receiver in decided.tolist():
                end, action = int(ends[receiver]), partial(self._end, receiver, number, iteration, int(moving[receiver]))
                self._sim.later(NEVER if end >= _NEVER_IN_ARRAYS else end - self._sim.now, action)
        if iteration.is_decided.all():
            del self._iterations[number]

    def _end(self, worker: int, number: int, iteration: "_Iteration", moving: int) -> None:
        self._sim.record.record_interval(What.TRIP, self._sim.now - moving, self._sim.now, other=worker)
        for sender in iteration.senders[worker]:
            iteration.deliver[worker](number, sender, iteration.models[sender])


class _Iteration:
    """The state of one iteration's exchanges."""

    def __init__(self, messages: "_Messages"):
        self.senders = messages.senders
        self.begins = np.zeros(len(messages.senders), np.int64)  # ns, of the workers that have begun
        self.missing = messages.within_reach.sum(axis=1)  # workers yet to begin before a worker's end is known
        self.is_decided = np.zeros(len(messages.senders), bool)
        self.models: dict[int, Copy] = {}
        self.deliver: dict[int, Deliver] = {}


class _Kind(NamedTuple):
    """The times of messages of one kind: between nodes, or inside a node."""

    part_time: float  # ns that a part occupies the link
    latency: int  # ns, the mean

    @classmethod
    def from_network(cls, network: Network | Within, size: float) -> "_Kind":
        part_time = size / network.bandwidth * NANOSECONDS if network.bandwidth else 0.0
        return cls(part_time, round(mean_latency(network) * NANOSECONDS))


class _Messages:
    """The messages along the edges of one graph: their senders, receivers and times."""

    def __init__(self, sim: Simulation, graph: list[list[int]], exchanges: int | Literal["global"]):
        self._sim, self._exchanges = sim, 1 if exchanges == "global" else exchanges
        sim.cluster.check_alike("`exchanges` need links alike")
        network, node_of = sim.network or Network(), sim.node_of.tolist()
        size = sim.sizes.model.total / self._exchanges
        networks = network, network.within or network  # between nodes, inside one
        self._kinds = [_Kind.from_network(links, size) for links in networks]
        self._edge_kinds = [  # sender, receiver, kind: in this order
            (worker, other, int(network.within is not None and node_of[worker] == node_of[other]))
            for worker, receivers in enumerate(graph)
            for other in receivers
        ]
        self._has_contention = any(contention.of == "workers" for contention in network.contention)
        # sorted by receiver, so that `reduceat` takes the maximum of each receiver's messages
        receiver, sender, durations = (np.array(column) for column in zip(*sorted(self._edges(len(graph))), strict=True))
        self._sender, self._durations = sender, np.rint(durations).astype(np.int64)
        # ns until the last of a worker's own parts has arrived, at full speed
        self._own_durations = np.zeros(len(graph), np.int64)
        np.maximum.at(self._own_durations, sender, self._durations)
        self._first = np.flatnonzero(np.diff(receiver, prepend=-1))  # index of each receiver's first message
        self.senders: list[list[int]] = [of_receiver.tolist() for of_receiver in np.split(sender, self._first[1:])]
        self._is_global = exchanges == "global"
        self.within_reach = self._reach(receiver, len(graph))

    def ends(self, begins: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return each worker's end of the last exchange (ns), and the time (ns) for which its models were on the network.

        Both have shape [workers]. An end is valid once all workers within reach have begun. A worker's models are on the
        network while its own parts are, and again once the last of its senders has begun the exchange. In between, the worker
        waits.
        """
        times = np.full_like(begins, begins.max()) if self._is_global else begins  # begins of the next exchange
        all_begins, all_ends = list[NDArray[np.int64]](), list[NDArray[np.int64]]()  # of each exchange
        for _ in range(self._exchanges):
            ends = (
                self._ends_under_contention(times)
                if self._has_contention
                else np.maximum.reduceat(times[self._sender] + self._durations, self._first)
            )
            all_begins.append(times)
            all_ends.append(ends)
            times = ends if self._sim.faultless else self._rejoin_times(ends)
        moving, chunk = np.zeros_like(begins), max(1, _MESSAGES_PER_ARRAY // len(self._sender))
        for first in range(0, self._exchanges, chunk):
            moving += self._moving(np.stack(all_begins[first : first + chunk]), np.stack(all_ends[first : first + chunk]))
        if not self._is_global:
            return times, moving
        return np.full_like(times, times.max()), np.full_like(times, moving.max())

    def _moving(self, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return [workers]: the time on the network, ns, in exchanges with these begins and ends [exchanges, workers]."""
        last_sender_begins = np.maximum.reduceat(begins[:, self._sender], self._first, axis=1)
        waits = (last_sender_begins - begins - self._own_durations).clip(0)  # for the last sender to begin
        moving: NDArray[np.int64] = (ends - begins - waits).sum(axis=0)
        return moving

    def _edges(self, workers: int) -> Iterator[tuple[int, int, float]]:
        """Yield receiver, sender and time (ns) of each message; then (worker, worker, its total sending time)."""
        counts = [[0, 0] for _ in range(workers)]  # messages of each kind
        for sender, receiver, kind in self._edge_kinds:
            counts[sender][kind] += 1
            yield receiver, sender, counts[sender][kind] * self._kinds[kind].part_time + self._kinds[kind].latency
        for worker, messages in enumerate(counts):
            # the links of both kinds send at the same time
            yield worker, worker, max(number * kind.part_time for number, kind in zip(messages, self._kinds, strict=True))

    def _ends_under_contention(self, begins: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the ends of an exchange, ns, on links with contention, message by message in the order of sending."""
        link_ends = [[begin, begin] for begin in begins.tolist()]  # ns when each sender's link of each kind is free
        ends = begins.tolist()
        for sender, receiver, kind_number in self._edge_kinds:
            kind, begin = self._kinds[kind_number], link_ends[sender][kind_number]
            link_ends[sender][kind_number] = part_end = begin + self._link_time(sender, begin, kind.part_time)
            exchange_begin = int(begins[sender])  # both workers' contention at this time stretches the latency
            latency = self._link_time(receiver, exchange_begin, self._link_time(sender, exchange_begin, kind.latency))
            part_begin = begin + latency  # at the receiver; the part has arrived when it has passed both links
            ends[receiver] = max(
                ends[receiver], part_end + latency, part_begin + self._link_time(receiver, part_begin, kind.part_time)
            )
        return np.array([max(end, *links) for end, links in zip(ends, link_ends, strict=True)])

    def _rejoin_times(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first times (ns), not before `times`, at which the workers are available."""
        rejoin = self._sim.back
        return np.array(
            [
                _NEVER_IN_ARRAYS if time >= _NEVER_IN_ARRAYS else min(rejoin(worker, time), _NEVER_IN_ARRAYS)
                for worker, time in enumerate(times.tolist())
            ]
        )

    def _link_time(self, owner: int, begin: int, work: float) -> int:
        """Return the time, ns, of `work` ns at full speed on the owner's link, begun at `begin`, under contention."""
        assert self._sim.links is not None
        return round(work) if begin >= _NEVER_IN_ARRAYS else self._sim.links.collective_time((owner,), begin, round(work))

    def _reach(self, receiver: NDArray[np.int64], workers: int) -> NDArray[np.bool_]:
        """Return [workers, workers]: True if the column's model reaches the row's worker in K exchanges, or is its own."""
        if self._is_global:
            return np.ones((workers, workers), bool)
        step, reached, exponent = np.zeros((workers, workers), np.float32), np.eye(workers, dtype=np.float32), self._exchanges
        step[receiver, self._sender] = 1
        while exponent:  # power of the adjacency matrix, by squaring; minimum: 1 if there is a path, however many there are
            reached = np.minimum(step @ reached, 1) if exponent % 2 else reached
            step, exponent = np.minimum(step @ step, 1), exponent // 2
        return reached.astype(bool)


def check_exchanges(cluster: Cluster) -> None:
    """Raise ValueError for a cluster in which the order of single messages matters."""
    loads = cluster.link_loads("workers", 0)
    refused = {
        "the network's `node_bandwidth` (a node's messages queue there)": cluster.network and cluster.network.node_bandwidth,
        "the network's `upload` and `download`": cluster.network and (cluster.network.upload or cluster.network.download),
        "the network's `links` (messages share them)": cluster.network and cluster.network.links,
        "the network's `regions`": cluster.network and cluster.network.regions,
        "delays of single messages, in the network's `contention`": any(type(load).delay is not Load.delay for load in loads),
        "`lost-messages`": any(isinstance(fault, LostMessages) for fault in cluster.faults),
    }
    if reasons := [reason for reason, applies in refused.items() if applies]:
        raise ValueError(f"`exchanges` are maxima over mean times, not single messages: leave out {', and '.join(reasons)}")
