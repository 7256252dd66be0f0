"""Blocking exchanges one after the other, in which a delay travels from neighbour to neighbour [docs/errata.md, item 27]."""

from collections.abc import Callable
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fred.timing.durations import NANOSECONDS
from fred.timing.held import Copy
from fred.timing.simulation import Simulation

Deliver = Callable[[int, int, Copy], None]  # number, sender, model


class Exchanges:
    """All workers' exchanges of one iteration, each of the model's K-th part with all neighbours.

    A worker begins an exchange when the one before it is over: when its part has left for all its receivers, one after the
    other, and all senders' parts have come. So the k-th ends at T_k(w) = max over senders v, itself included, of T_(k-1)(v) +
    what the message takes at mean latency: sums and maxima over arrays, not an event for each message. A worker's last end
    depends on who is at most K edges away, and is known once all of these have begun. Then it gets the models.
    """

    def __init__(self, sim: Simulation, graphs: list[list[list[int]]], exchanges: int | Literal["global"]):
        self._sim = sim
        self.parts = 1 if exchanges == "global" else exchanges
        self._graphs = [_Messages(sim, graph, exchanges) for graph in graphs]
        self._iterations: dict[int, _Iteration] = {}

    def begin(self, worker: int, number: int, model: Copy, deliver: Deliver) -> None:
        """A worker begins the exchanges of an iteration; at their end it gets its senders' models and its own."""
        messages = self._graphs[number % len(self._graphs)]
        iteration = self._iterations.setdefault(number, _Iteration(messages))
        iteration.begun[worker] = self._sim.now
        iteration.models[worker], iteration.deliver[worker] = model, deliver
        iteration.missing -= messages.within_reach[:, worker]
        known = np.flatnonzero((iteration.missing == 0) & ~iteration.known)
        if len(known):
            iteration.known[known] = True
            ends = messages.ends(iteration.begun)
            for each in known.tolist():
                self._sim.later(int(ends[each]) - self._sim.now, partial(self._end, each, number, iteration))
        if iteration.known.all():
            del self._iterations[number]

    @staticmethod
    def _end(worker: int, number: int, iteration: "_Iteration") -> None:
        for sender in iteration.senders[worker]:
            iteration.deliver[worker](number, sender, iteration.models[sender])


class _Iteration:
    """What is known of one iteration's exchanges."""

    def __init__(self, messages: "_Messages"):
        self.senders = messages.senders
        self.begun = np.zeros(len(messages.senders), np.int64)  # ns, of those who have
        self.missing = messages.within_reach.sum(axis=1)  # who must begin before a worker's end is known
        self.known = np.zeros(len(messages.senders), bool)
        self.models: dict[int, Copy] = {}
        self.deliver: dict[int, Deliver] = {}


class _Messages:
    """One graph's messages: who sends to whom, and how long each takes."""

    def __init__(self, sim: Simulation, graph: list[list[int]], exchanges: int | Literal["global"]):
        self._rounds = 1 if exchanges == "global" else exchanges
        bandwidth = sim.network and sim.network.bandwidth
        part = sim.model_bytes / self._rounds / bandwidth * NANOSECONDS if bandwidth else 0.0
        edges = [(worker, worker, len(receivers) * part) for worker, receivers in enumerate(graph)]  # until it has sent all
        for worker, receivers in enumerate(graph):
            edges += [(other, worker, place * part + sim.mean_latency) for place, other in enumerate(receivers, start=1)]
        receiver, sender, lasts = (np.array(column) for column in zip(*sorted(edges), strict=True))
        self._sender, self._lasts = sender, np.rint(lasts).astype(np.int64)
        self._first = np.flatnonzero(np.diff(receiver, prepend=-1))  # message of each receiver
        self.senders: list[list[int]] = [own.tolist() for own in np.split(sender, self._first[1:])]
        self._everybody = exchanges == "global"
        self.within_reach = self._reach(receiver, len(graph))

    def ends(self, begun: NDArray[np.int64]) -> NDArray[np.int64]:
        """[workers]: when the last exchange is over, ns, where all within reach have begun."""
        times = np.full_like(begun, begun.max()) if self._everybody else begun
        for _ in range(self._rounds):
            times = np.maximum.reduceat(times[self._sender] + self._lasts, self._first)
        return np.full_like(times, times.max()) if self._everybody else times

    def _reach(self, receiver: NDArray[np.int64], workers: int) -> NDArray[np.bool_]:
        """[workers, workers]: from whom each hears within the exchanges, itself included."""
        if self._everybody:
            return np.ones((workers, workers), bool)
        step, reached, left = np.zeros((workers, workers), np.float32), np.eye(workers, dtype=np.float32), self._rounds
        step[receiver, self._sender] = 1
        while left:  # the power of a matrix, by squaring
            reached = np.minimum(step @ reached, 1) if left % 2 else reached
            step, left = np.minimum(step @ step, 1), left // 2
        return reached.astype(bool)
