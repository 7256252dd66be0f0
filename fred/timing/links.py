"""The network at work: cards where messages queue, links that are slow from time to time, and when messages arrive."""

from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import Any

import simpy

from fred.timing.cluster import Cluster
from fred.timing.contention import Load, Loads
from fred.timing.durations import NANOSECONDS, durations
from fred.timing.faults import Faults
from fred.timing.latency import Latency
from fred.timing.loop import NEVER, After, Loop
from fred.timing.network import Network


class Card:
    """One direction of a link or of a network card: a first-come-first-served queue."""

    def __init__(self, bandwidth: float | None):
        self.bandwidth = bandwidth  # bytes/s; None: unlimited
        self.free_at = 0  # ns, when the last message accepted so far has passed

    def passes(self, now: int, size: int) -> int:
        """When a message of `size` bytes that reaches the card now has passed it, ns."""
        if self.bandwidth is None:
            return now
        self.free_at = max(self.free_at, now) + round(size / self.bandwidth * NANOSECONDS)
        return self.free_at

    def takes(self, now: int, size: int) -> tuple[int, int]:
        """When a message that reaches the card now begins to pass it, and when it has passed, ns."""
        begin = now if self.bandwidth is None else max(self.free_at, now)
        return begin, self.passes(now, size)


class Slowness:
    """What slows down the links of workers, or of servers."""

    def __init__(self, env: Loop, loads: list[Load], owners: int):
        self._env = env
        self._loads = Loads(loads)
        self._passing = Loads([load for load in loads if type(load).delay is Load.delay])  # a message is delayed only once
        self._messages = [0] * owners

    def latency(self, owner: int, drawn: int) -> int:
        """What becomes of the latency of a message that is sent now, ns."""
        number, now = self._messages[owner], self._env._now
        self._messages[owner] += 1
        return self._loads.finish(owner, number, now, drawn) - now

    def passed(self, owner: int, begin: int, work: int) -> int:
        """When what takes `work` ns at full speed, and begins then, has passed the owner's link, ns."""
        return self._passing.finish(owner, 0, begin, work) if begin < NEVER else begin


class SlowCard(Card):
    """A card whose owner's link is slow from time to time."""

    def __init__(self, bandwidth: float | None, slowness: Slowness, owner: int):
        super().__init__(bandwidth)
        self._slowness, self._owner = slowness, owner

    def passes(self, now: int, size: int) -> int:
        if self.bandwidth is None:
            return now
        work = round(size / self.bandwidth * NANOSECONDS)
        self.free_at = self._slowness.passed(self._owner, max(self.free_at, now), work)
        return self.free_at


class Shared(Card):
    """A worker's link, and the card that the workers of its node share: a message passes both at the same time."""

    def __init__(self, link: Card, card: Card):
        super().__init__(link.bandwidth)
        self._link, self._card = link, card

    def passes(self, now: int, size: int) -> int:
        return max(self._link.passes(now, size), self._card.passes(now, size))


class OfServer(Card):
    """A server's card, where messages wait while the server is away."""

    def __init__(self, card: Card, back: Callable[[int], int]):
        super().__init__(card.bandwidth)
        self._card, self._back = card, back

    def passes(self, now: int, size: int) -> int:
        return self._card.passes(self._back(now), size)


class Links:
    """When messages arrive. Several servers get (and send) equal parts of a message."""

    def __init__(self, env: Loop, cluster: Cluster, seed: int, faults: Faults | None = None):
        network = cluster.network or Network()
        self._env, self._servers = env, cluster.servers
        self._node_of: list[int] = cluster.node_of.tolist()
        self._slow_workers = self._slowness(cluster.link_loads("workers", seed), cluster.size)
        self._slow_servers = self._slowness(cluster.link_loads("servers", seed), cluster.servers)
        # Where servers differ, what is for all of them travels as that many messages.
        self._singly = cluster.servers > 1 and bool(network.servers or self._slow_servers)
        self._faults = faults
        self._lay_cards(network, cluster.size)
        self._draw_latencies(network, cluster.size, seed)

    def upload(self, worker: int, size: int, server: int | None = None) -> Generator[simpy.Event, Any, None]:
        """Bring `size` bytes from a worker to one server, or to all; ends when the last byte has arrived."""
        if server is None and self._singly:
            parts = [self.upload(worker, self._part(size), each) for each in range(self._servers)]
            yield self._env.all_of([self._env.process(part) for part in parts])
            return
        latency = self._up[server or 0][worker]()
        if self._slow_servers is not None:
            latency = self._slow_servers.latency(server or 0, latency)
        if self._faults is not None:
            latency += self._faults.lateness("to-servers", worker, self._env._now)
        yield After(self._env, latency)
        now = self._env._now
        done = max(self._passed(self._inward, now, size, server), self._upward[worker].passes(now, size))
        if done > now:
            yield After(self._env, done - now)

    def arrival(self, worker: int, size: int, server: int | None = None) -> int:
        """When `size` bytes that one server, or all, send to a worker now have arrived, ns."""
        if server is None and self._singly:
            return max(self.arrival(worker, self._part(size), each) for each in range(self._servers))
        now = self._env._now
        sent = self._passed(self._outward, now, size, server)
        latency = self._down[server or 0][worker]()
        if self._slow_servers is not None:
            latency = self._slow_servers.latency(server or 0, latency)
        if self._faults is not None:
            latency += self._faults.lateness("to-workers", worker, now)
        return max(sent, self._downward[worker].passes(now, size)) + latency

    def across(self, sender: int, receiver: int, size: int) -> Generator[simpy.Event, Any, None]:
        """Bring `size` bytes from one worker to another; ends when the last byte has arrived.

        The message reaches one card after another when it begins to pass the one before, and, on its way, a latency later.
        """
        inside = self._node_of[sender] == self._node_of[receiver]
        latency = (self._inside if inside else self._across)[sender]()
        if self._slow_workers is not None:
            latency = self._slow_workers.latency(receiver, latency)
        begin = done = self._env._now
        if self._faults is not None:
            latency += self._faults.lateness("between-workers", sender, begin)
        for delay, cards in zip((0, latency), self._way(sender, receiver, inside), strict=True):
            begin, done = begin + delay, done + delay
            for card in cards:
                if begin > self._env._now:
                    yield After(self._env, begin - self._env._now)
                begin, end = card.takes(begin, size)
                done = max(done, end)
        if done > self._env._now:
            yield After(self._env, done - self._env._now)

    def together(self, members: Iterable[int], begin: int, work: int) -> int:
        """How long members take for a collective operation of `work` ns at full speed that begins then, ns."""
        if self._slow_workers is None:
            return work
        return max(self._slow_workers.passed(member, begin, work) for member in members) - begin

    def _slowness(self, loads: list[Load], owners: int) -> Slowness | None:
        return Slowness(self._env, loads, owners) if loads else None

    def _lay_cards(self, network: Network, workers: int) -> None:
        """Of each worker's link, each server's card and each node's: one for each direction."""
        slow_workers = self._slow_workers
        of_servers = [network.server_bandwidth] * self._servers
        for some in network.servers:
            for server in some.servers:
                of_servers[server] = some.bandwidth or network.server_bandwidth
        within = network.within
        self._out, self._in = ([_card(network.bandwidth, slow_workers, worker) for worker in range(workers)] for _ in range(2))
        self._inward, self._outward = (
            [self._of_server(server, bandwidth) for server, bandwidth in enumerate(of_servers)] for _ in range(2)
        )
        self._leaving, self._entering = (
            [Card(network.node_bandwidth) for _ in range(max(self._node_of) + 1)] for _ in range(2)
        )
        self._upward, self._downward = self._out, self._in  # to servers, from servers
        if network.node_bandwidth is not None:
            self._upward = [Shared(link, self._leaving[node]) for link, node in zip(self._out, self._node_of, strict=True)]
            self._downward = [Shared(link, self._entering[node]) for link, node in zip(self._in, self._node_of, strict=True)]
        self._inner_out, self._inner_in = self._out, self._in
        if within is not None:
            self._inner_out, self._inner_in = (
                [_card(within.bandwidth, slow_workers, worker) for worker in range(workers)] for _ in range(2)
            )

    def _of_server(self, server: int, bandwidth: float | None) -> Card:
        card = _card(bandwidth, self._slow_servers, server)
        return card if self._faults is None else OfServer(card, partial(self._faults.back, "server", server))

    def _draw_latencies(self, network: Network, workers: int, seed: int) -> None:
        """Each worker's draws, of messages to each server, from each server, to other workers, and to those of its node."""
        speeds = [1.0] * workers

        def draws(purpose: str, latency: Latency) -> list[Callable[[], int]]:
            drawn = durations(seed, purpose, [latency] * workers, speeds)
            slow = self._slow_workers
            return drawn if slow is None else [_slowed(slow, worker, draw) for worker, draw in enumerate(drawn)]

        self._up = [draws("uplink", network.latency)] * self._servers
        self._down = [draws("downlink", network.pull_latency or network.latency)] * self._servers
        self._across = draws("peers", network.latency)
        self._inside = self._across if network.within is None else draws("peers of a node", network.within.latency)
        for some in network.servers:
            for server in some.servers:
                if some.latency is not None:
                    self._up[server] = draws(f"uplink, server {server}", some.latency)
                if (latency := some.pull_latency or some.latency) is not None:
                    self._down[server] = draws(f"downlink, server {server}", latency)

    def _way(self, sender: int, receiver: int, inside: bool) -> tuple[tuple[Card, ...], tuple[Card, ...]]:
        """The cards that a message passes before it travels, and after."""
        if inside:
            return (self._inner_out[sender],), (self._inner_in[receiver],)
        leaving, entering = self._leaving[self._node_of[sender]], self._entering[self._node_of[receiver]]
        return (self._out[sender], leaving), (entering, self._in[receiver])

    def _part(self, size: int) -> int:
        return round(size / self._servers)

    def _passed(self, cards: list[Card], now: int, size: int, server: int | None) -> int:
        """When the bytes have passed one server's card, or all servers', each a part of them."""
        if server is not None or len(cards) == 1:
            return cards[server or 0].passes(now, size)
        return max(card.passes(now, self._part(size)) for card in cards)


def _card(bandwidth: float | None, slowness: Slowness | None, owner: int) -> Card:
    return Card(bandwidth) if slowness is None else SlowCard(bandwidth, slowness, owner)


def _slowed(slowness: Slowness, owner: int, draw: Callable[[], int]) -> Callable[[], int]:
    return lambda: slowness.latency(owner, draw())
