"""The network during a run, with links that messages share fairly (`sharing: fair`)."""

import math
from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from functools import partial
from typing import Any

import simpy

from fred.cluster.bandwidths import Connection, Member
from fred.cluster.network import Network, mean_latency
from fred.cluster.patterns import STORE, Chain, Phase, Stages
from fred.cluster.regions import PAIRED, Regions
from fred.components.component import NANOSECONDS
from fred.timing.links import Links, Slowness
from fred.timing.loop import Wait
from fred.timing.max_min import Flows

Transfer = tuple[tuple[int, ...], float, int]  # its links, bytes, and latency, ns


class FairLinks(Links):
    """The links of a run, shared as flows: a message waits for its latency, and then passes all links of its path at once.

    A slow link has less capacity for as long as the slowdown holds. Noise that stretches a message as a whole adds bytes to it.
    A message takes its share until its last byte has arrived, even if its worker crashes before.

    Args: as of `Links`.

    Example: two messages of 1 MB share a server's card of 10 MB/s; the workers' links are unlimited.
        >>> from fred.cluster.cluster import Cluster
        >>> from fred.timing.loop import Loop
        >>> cluster = Cluster(workers=2, network=Network(server_bandwidth=1e7, sharing="fair"))
        >>> env = Loop()
        >>> links = FairLinks(env, cluster, seed=0)
        >>> for worker in (0, 1):
        ...     _ = env.process(links.upload(worker, 1_000_000))
        >>> env.run()
        >>> env.now / 1e9
        0.2
    """

    def upload(self, worker: int, size: int, server: int | None = None) -> Generator[Wait, Any, list[int]]:
        if server is None and self._servers > 1:
            parts = [self.upload(worker, self._server_share(size), i) for i in range(self._servers)]
            arrived = yield self._env.all_of([self._env.process(part) for part in parts])
            return [repeats for counts in arrived.values() for repeats in counts]
        target = server or 0
        latency, repeats = self._up[target][worker](), 0
        if self._faults is None:
            yield latency
        else:
            late, repeats = self._lateness(self._faults, "to-servers", worker, target), self.pop_repeats()
            yield latency + late
            yield from self._wait_until(self._faults.next_available("server", target, self._env._now))
        shared = self._shared(("workers", worker), ("servers", target))
        path = (*self._from_worker(worker, self._region_of_server[target]), *shared, self._inward[target])
        yield self._flow(path, size, latency)
        return [repeats]

    def download(self, worker: int, size: int, server: int | None = None) -> simpy.Event:
        if server is None and self._servers > 1:
            return self._env.all_of([self.download(worker, self._server_share(size), i) for i in range(self._servers)])
        target = server or 0
        late = 0 if self._faults is None else self._lateness(self._faults, "to-workers", worker, target)
        return self._env.process(self._downloading(worker, size, target, self._down[target][worker](), late))

    def _downloading(self, worker: int, size: int, server: int, latency: int, late: int) -> Generator[Wait, Any, None]:
        yield latency + late
        if self._faults is not None:
            yield from self._wait_until(self._faults.next_available("server", server, self._env._now))
        shared = self._shared(("servers", server), ("workers", worker))
        path = (self._outward[server], *shared, *self._to_worker(worker, self._region_of_server[server]))
        yield self._flow(path, size, latency)

    def send_between_servers(self, sender: int, receiver: int, size: int) -> Wait:
        if sender == receiver:
            return 0
        return self._env.process(self._sending(sender, receiver, size, self._latency_between(sender, receiver)))

    def _sending(self, sender: int, receiver: int, size: int, latency: int) -> Generator[Wait, Any, None]:
        yield latency
        shared = self._shared(("servers", sender), ("servers", receiver))
        path = (self._outward[sender], *self._between_regions(sender, receiver), *shared, self._inward[receiver])
        yield self._flow(path, size, latency)

    def _between_regions(self, sender: int, receiver: int) -> tuple[int, ...]:
        """Return the link from the region of one server to that of another, which these two have for themselves."""
        regions = self._network.regions
        sender_region, receiver_region = self._region_of_server[sender], self._region_of_server[receiver]
        if regions is None:
            return ()
        if (sender, receiver) not in self._server_links:
            self._server_links[sender, receiver] = self._flows.add_link(
                regions.bandwidth[sender_region][receiver_region] / NANOSECONDS
            )
        return (self._server_links[sender, receiver],)

    def send_between_workers(self, sender: int, receiver: int, size: int) -> Generator[Wait, Any, None]:
        inside = self._node_of[sender] == self._node_of[receiver]
        latency, late = self._latency_across(sender, receiver, inside)
        yield latency + late
        yield self._flow(self._path(sender, receiver), size, latency)

    def to_store(self, owner: Member, size: int) -> Generator[Wait, Any, None]:
        kind, number = owner
        links = self._from_worker(number, 0) if kind == "workers" else (self._outward[number],)
        path = (*links, *self._shared(owner, _member(STORE)), self._into_store)
        return self._storing(path, size, self._latency_of_store(owner))

    def from_store(self, owner: Member, size: int) -> Generator[Wait, Any, None]:
        kind, number = owner
        links = self._to_worker(number, 0) if kind == "workers" else (self._inward[number],)
        path = (self._out_of_store, *self._shared(_member(STORE), owner), *links)
        return self._storing(path, size, self._latency_of_store(owner))

    def _storing(self, path: tuple[int, ...], size: int, latency: int) -> Generator[Wait, Any, None]:
        yield latency
        yield self._flow(path, size, latency)

    def collect(self, stages: Stages, size: int, share: float, until: int) -> Generator[Wait, Any, None]:
        """Send the messages of a collective operation; ends when all have arrived.

        Args:
            stages: senders, receivers and sizes.
            size: of the model (or of each member's message), bytes.
            share: share of all messages, and waits, that is left.
            until: time after which no phase begins, ns.
        """
        for chains in stages:
            yield self._env.all_of([self._env.process(self._chain(chain, size, share, until)) for chain in chains if chain])

    def _chain(self, chain: Chain, size: int, share: float, until: int) -> Generator[Wait, Any, None]:
        """Send the messages of successive phases; a phase begins when all messages of the one before it have arrived."""
        for phase in chain:
            if self._env._now > until:
                return
            transfers_by_wait = self._by_wait(phase, size, share).items()
            yield self._env.all_of(
                [self._env.process(self._sending_all(wait, transfers)) for wait, transfers in transfers_by_wait]
            )

    def _by_wait(self, phase: Phase, size: int, share: float) -> dict[int, list[Transfer]]:
        """Return the messages of a phase by how long they wait before they are sent, ns."""
        waits: dict[tuple[int, float], int] = {}  # ns, by latency and rate: most messages have the same
        transfers = defaultdict[int, list[Transfer]](list)
        for sender, receiver, volume in phase.messages:
            latency, path = self._mean_latency(sender, receiver), self._path(sender, receiver)
            rate = min(map(self._flows.capacity, path))
            if (latency, rate) not in waits:
                seconds = phase.waits.seconds(size, self._connection(latency, rate))
                waits[latency, rate] = round(share * seconds * NANOSECONDS)
            wait = self._slowed_wait(sender, receiver, waits[latency, rate])
            transfers[wait].append((path, share * volume * size, latency))
        return transfers

    def _slowed_wait(self, sender: int, receiver: int, wait: int) -> int:
        """Return how long a wait of two workers lasts if their links are slow now, ns."""
        if self._slow_workers is None:
            return wait
        now = self._env._now
        return max(self._slow_workers.passed(worker, now, wait) for worker in (sender, receiver) if worker != STORE) - now

    def _sending_all(self, wait: int, transfers: list[Transfer]) -> Generator[Wait, Any, None]:
        """Send messages at the same time, after a wait; ends when all have arrived."""
        yield wait
        yield self._env.all_of([self._flows.send(path, *self._terms(path, size, latency)) for path, size, latency in transfers])

    def _path(self, sender: int, receiver: int) -> tuple[int, ...]:
        """Return the links between two workers, or a worker and the store."""
        path: tuple[int, ...]
        if sender == STORE:
            path = (self._out_of_exchange, *self._to_worker(receiver, 0))
        elif receiver == STORE:
            path = (*self._from_worker(sender, 0), self._into_exchange)
        elif self._streams:
            path = self._streams[sender, receiver]
        elif self._region_of:
            path = (self._to[sender][self._region_of[receiver]], self._from[receiver][self._region_of[sender]])
        elif self._node_of[sender] == self._node_of[receiver]:
            path = (self._inner_out[sender], self._inner_in[receiver])
        else:
            path = (*self._from_worker(sender, 0), *self._to_worker(receiver, 0))
        return (*path, *self._shared(_member(sender), _member(receiver)))

    def _mean_latency(self, sender: int, receiver: int) -> int:
        """Return the mean latency between two workers, or a worker and the store, ns."""
        if self._network.regions is not None and self._network.regions.latency is not None:
            return round(self._network.regions.latency[self._region_of[sender]][self._region_of[receiver]] * NANOSECONDS)
        is_one_node = STORE not in (sender, receiver) and self._node_of[sender] == self._node_of[receiver]
        within = self._network.within if is_one_node else None
        inside = within is not None
        if inside not in self._mean_latencies:
            self._mean_latencies[inside] = round(mean_latency(within or self._network) * NANOSECONDS)
        return self._mean_latencies[inside]

    def _shared(self, sender: Member, receiver: Member) -> tuple[int, ...]:
        """Return the links of switches and sites on the way of a message, each once."""
        if not self._network.routes:
            return ()
        if (sender, receiver) not in self._routed:
            passages = [passage for route in self._network.routes for passage in route.passed(sender, receiver)]
            self._routed[sender, receiver] = tuple(self._named[name][forward] for name, forward in dict.fromkeys(passages))
        return self._routed[sender, receiver]

    def _from_worker(self, worker: int, region: int) -> tuple[int, ...]:
        """Return the links from a worker out of its node, or to a region."""
        if self._region_of:
            return (self._to[worker][region],)
        return self._out[worker], self._leaving[self._node_of[worker]]

    def _to_worker(self, worker: int, region: int) -> tuple[int, ...]:
        if self._region_of:
            return (self._from[worker][region],)
        return self._entering[self._node_of[worker]], self._in[worker]

    def _wait_until(self, time: int) -> Iterator[Wait]:
        if time > self._env._now:
            yield time - self._env._now

    def _flow(self, path: tuple[int, ...], size: int, latency: int) -> simpy.Event:
        """Begin to send `size` bytes along a path; the message has this `latency`, ns."""
        volume, weight, limit = self._terms(path, size, latency)
        if self._network.initial_window is None or not latency:
            return self._flows.send(path, volume, weight, limit)
        return self._env.process(self._start_slowly(self._network.initial_window, 2 * latency, path, volume, weight, limit))

    def _start_slowly(
        self, window: float, round_trip: int, path: tuple[int, ...], volume: float, weight: float, limit: float
    ) -> Generator[Wait, Any, None]:
        """Send along a path with a window that doubles every round trip.

        A round trip allows one window of further bytes. The flow takes its fair share until it has sent all bytes that were
        allowed so far, and then waits for the next round trip. Alone, it loses `Connection.startup_delay`. With others, it
        waits only if its share is larger than window / round trip.
        """
        # A limit of window / round trip on the rate, raised every round trip, ends within a round trip of this. It needs
        # a new division in each round trip of each flow, also where the limit does not bind; here a flow that others hold
        # back sends in two parts. A message of one window alone would take a round trip, in place of window / rate.
        trip_begin, rate = self._env._now, min(limit, *map(self._flows.capacity, path))
        sent, allowed = 0.0, window
        while allowed < volume and window < rate * round_trip:
            yield self._flows.send(path, allowed - sent, weight, limit)
            sent = allowed
            yield max(0, trip_begin + round_trip - self._env._now)
            while allowed < volume and trip_begin + round_trip <= self._env._now:
                trip_begin += round_trip
                window *= 2
                allowed += window
        yield self._flows.send(path, volume - sent, weight, limit)

    def _terms(self, path: tuple[int, ...], size: float, latency: int) -> tuple[float, float, float]:
        """Return a message's volume (bytes), its share of a link relative to others, and its highest rate (bytes per ns)."""
        limit = math.inf if self._window is None or not latency else self._window / (2 * latency)
        weight = 1 / max(1, latency) if self._network.weights == "latency" else 1.0
        stretches = [self._slow[link][0].stretch(self._slow[link][1], self._env._now) for link in path if link in self._slow]
        return size * max(stretches, default=1.0), weight, limit

    def _connection(self, latency: int, rate: float) -> Connection:
        """Return a connection with this latency, ns, along links that have at least this rate, bytes per ns."""
        windows = self._network.window or math.inf, self._network.initial_window or math.inf
        return Connection(latency / NANOSECONDS, rate * NANOSECONDS, *windows)

    def _lay_cards(
        self, network: Network, workers: int, upload: Sequence[float | None], download: Sequence[float | None]
    ) -> None:
        """Number the links: one for each direction of each worker's, server's and node's card."""
        self._capacities: list[float] = []  # bytes per ns
        self._window = network.window
        self._mean_latencies: dict[bool, int] = {}  # between nodes (False) and inside them (True), ns
        self._slow: dict[int, tuple[Slowness, int]] = {}  # slowness and owner of links that slow down at times
        server_bandwidths = self._server_bandwidths(network)

        def create_worker_links(bandwidths: Sequence[float | None]) -> list[int]:
            return [self._link(bandwidth, self._slow_workers, worker) for worker, bandwidth in enumerate(bandwidths)]

        self._out, self._in = create_worker_links(upload), create_worker_links(download)
        self._inner_out, self._inner_in = self._out, self._in
        if network.within is not None:
            self._inner_out, self._inner_in = (create_worker_links([network.within.bandwidth] * workers) for _ in range(2))
        self._inward, self._outward = (
            [self._link(bandwidth, self._slow_servers, server) for server, bandwidth in enumerate(server_bandwidths)]
            for _ in range(2)
        )
        nodes = range(max(self._node_of) + 1)
        self._leaving, self._entering = ([self._link(network.node_bandwidth) for _ in nodes] for _ in range(2))
        self._streams: dict[tuple[int, int], tuple[int, int]] = {}  # links of each pair's connection, for some regions
        if network.regions is not None:
            self._lay_region_links(network.regions, workers)
        # Links of switches and sites have one number for messages back, and one for messages forward.
        self._named = {name: (self._link(bandwidth), self._link(bandwidth)) for name, bandwidth in network.links.items()}
        if network.collective == "store":
            self._into_exchange, self._out_of_exchange = (self._link(network.store_bandwidth) for _ in range(2))
        if self._store_latency:  # the store of checkpoints, not that of collective operations
            self._into_store, self._out_of_store = (self._link(self._store_bandwidth()) for _ in range(2))
        self._server_links: dict[tuple[int, int], int] = {}  # links between regions, by sending and receiving server
        self._routed: dict[tuple[Member, Member], tuple[int, ...]] = {}  # results of `_shared`
        slowed = {link: partial(slow.slowdown, owner) for link, (slow, owner) in self._slow.items()}
        self._flows = Flows(self._env, self._capacities, slowed)

    def _link(self, bandwidth: float | None, slow: Slowness | None = None, owner: int = 0) -> int:
        """Return the number of a new link with this bandwidth, bytes/s, which may be slow when its owner's links are."""
        self._capacities.append(math.inf if bandwidth is None else bandwidth / NANOSECONDS)
        link = len(self._capacities) - 1
        if slow is not None:
            self._slow[link] = slow, owner
        return link

    def _lay_region_links(self, regions: Regions, workers: int) -> None:
        """Number the links of each worker: one to each region, and one from each."""
        self._region_of = regions.of_workers(workers)
        table, numbers = regions.bandwidth, range(len(regions.bandwidth))
        homes, slow = list(enumerate(self._region_of)), self._slow_workers  # worker, region
        self._to = [[self._link(table[home][region], slow, worker) for region in numbers] for worker, home in homes]
        self._from = [[self._link(table[region][home], slow, worker) for region in numbers] for worker, home in homes]
        if regions.collective in PAIRED:
            self._streams = {
                (sender, receiver): (
                    self._link(table[origin][goal], slow, sender),
                    self._link(table[origin][goal], slow, receiver),
                )
                for sender, origin in homes
                for receiver, goal in homes
                if sender != receiver
            }


def _member(number: int) -> Member:
    """Return a worker, or the store, as routes name it."""
    return ("store", 0) if number == STORE else ("workers", number)
