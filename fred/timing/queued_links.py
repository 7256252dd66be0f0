"""The network during a run, with cards at which messages queue (`sharing: queue`)."""

from collections.abc import Generator, Sequence
from functools import partial
from typing import Any

from fred.cluster.bandwidths import Member
from fred.cluster.network import Network
from fred.cluster.regions import PAIRED, Regions
from fred.timing.links import Card, Links, ServerCard, SharedCard, card_of
from fred.timing.loop import Wait


class QueuedLinks(Links):
    """The links of a run, at which messages queue, first come, first served. Arrivals are known when messages are sent.

    Args: as of `Links`.

    Example: two messages of 1 MB meet at a server's card of 10 MB/s; the workers' links are unlimited.
        >>> from fred.cluster.cluster import Cluster
        >>> from fred.timing.loop import Loop
        >>> cluster = Cluster(workers=2, network=Network(latency={"name": "constant", "seconds": 0.5}, server_bandwidth=1e7))
        >>> links = QueuedLinks(Loop(), cluster, seed=0)
        >>> [links.download(worker, 1_000_000) / 1e9 for worker in (0, 1)]
        [0.6, 0.7]
    """

    def upload(self, worker: int, size: int, server: int | None = None) -> Generator[Wait, Any, list[int]]:
        if server is None and self._singly:
            parts = [self.upload(worker, self._server_share(size), i) for i in range(self._servers)]
            arrived = yield self._env.all_of([self._env.process(part) for part in parts])
            return [repeats for counts in arrived.values() for repeats in counts]
        latency, repeats = self._up[server or 0][worker](), 0  # for all servers alike: one draw
        if self._faults is not None:
            latency += self._lateness(self._faults, "to-servers", worker, server)
            repeats = self.pop_repeats()
        yield latency
        now = self._env._now
        arrival = max(self._passed(self._inward, now, size, server), self._upward[server or 0][worker].passes(now, size))
        if arrival > now:
            yield arrival - now
        return [repeats] if server is not None else [repeats // self._servers] * self._servers  # see `_lateness`

    def download(self, worker: int, size: int, server: int | None = None) -> int:
        if server is None and self._singly:
            return max(self.download(worker, self._server_share(size), i) for i in range(self._servers))
        now = self._env._now
        sent = self._passed(self._outward, now, size, server)
        latency = self._down[server or 0][worker]()
        if self._faults is not None:
            latency += self._lateness(self._faults, "to-workers", worker, server)
        return max(sent, self._downward[server or 0][worker].passes(now, size)) + latency - now

    def send_between_servers(self, sender: int, receiver: int, size: int) -> int:
        now, regions = self._env._now, self._network.regions
        if sender == receiver:
            return 0
        sender_region, receiver_region = self._region_of_server[sender], self._region_of_server[receiver]
        if (sender, receiver) not in self._between:
            self._between[sender, receiver] = Card(regions.bandwidth[sender_region][receiver_region] if regions else None)
        cards = (self._outward[sender], self._between[sender, receiver], self._inward[receiver])
        return max(card.passes(now, size) for card in cards) + self._latency_between(sender, receiver) - now

    def send_between_workers(self, sender: int, receiver: int, size: int) -> Generator[Wait, Any, None]:
        inside = self._node_of[sender] == self._node_of[receiver]
        latency = sum(self._latency_across(sender, receiver, inside))
        return self._passing(*self._cards_between(sender, receiver, inside), latency, size)

    def to_store(self, owner: Member, size: int) -> Generator[Wait, Any, None]:
        kind, number = owner
        cards = (self._out[number], self._leaving(number)) if kind == "workers" else (self._outward[number],)
        return self._passing(cards, self._store[:1], self._latency_of_store(owner), size)

    def from_store(self, owner: Member, size: int) -> Generator[Wait, Any, None]:
        kind, number = owner
        cards = (self._entering(number), self._in[number]) if kind == "workers" else (self._inward[number],)
        return self._passing(self._store[1:], cards, self._latency_of_store(owner), size)

    def _passing(
        self, sender_cards: tuple[Card, ...], receiver_cards: tuple[Card, ...], latency: int, size: int
    ) -> Generator[Wait, Any, None]:
        """Pass each card as soon as the message begins to pass the previous one; those of the receiver, one latency later."""
        begin = arrival = self._env._now  # of the first byte at the next card; of the last byte behind all cards
        for delay, cards in ((0, sender_cards), (latency, receiver_cards)):
            begin, arrival = begin + delay, arrival + delay
            for card in cards:
                if begin > self._env._now:  # cards queue messages in the order of these calls
                    yield begin - self._env._now
                begin, end = card.takes(begin, size)
                arrival = max(arrival, end)
        if arrival > self._env._now:
            yield arrival - self._env._now

    def pause(self, duration: int) -> None:
        card_lists = (self._out, self._in, *self._inner, self._inward, self._outward, *self._nodes, self._store)
        region_lists = (*self._to, *self._from) if self._region_of else ()
        cards = {
            id(card): card
            for group in (*card_lists, *region_lists, [*self._between.values()], *self._streams.values())
            for card in group
        }  # each once, though some are in two lists
        for card in cards.values():
            if card.free_at > self._env._now:
                card.free_at += duration

    def _lay_cards(
        self, network: Network, workers: int, upload: Sequence[float | None], download: Sequence[float | None]
    ) -> None:
        """Create the cards, which are combined where a message passes several at once."""
        # Where servers differ, a message to all of them travels as one message per server.
        differ = network.servers or self._slow_servers or len(set(self._region_of_server)) > 1
        self._singly = self._servers > 1 and bool(differ)
        self._between: dict[tuple[int, int], Card] = {}  # links between regions, by sending and receiving server
        self._streams: dict[tuple[int, int], tuple[Card, Card]] = {}  # results of `_stream`
        slow_workers = self._slow_workers
        server_bandwidths = self._server_bandwidths(network)
        node_link = network.within
        self._out, self._in = (
            [card_of(bandwidth, slow_workers, worker) for worker, bandwidth in enumerate(bandwidths)]
            for bandwidths in (upload, download)
        )
        self._inward, self._outward = (
            [self._server_card(server, bandwidth) for server, bandwidth in enumerate(server_bandwidths)] for _ in range(2)
        )
        self._nodes = leaving, entering = tuple(
            [Card(network.node_bandwidth) for _ in range(max(self._node_of) + 1)] for _ in range(2)
        )
        self._store = tuple(Card(self._store_bandwidth()) for _ in range(2))  # into it, and out of it
        upward, downward = self._out, self._in  # cards of each worker for messages to servers, and from servers
        if network.node_bandwidth is not None:
            upward = [SharedCard(link, leaving[node]) for link, node in zip(self._out, self._node_of, strict=True)]
            downward = [SharedCard(link, entering[node]) for link, node in zip(self._in, self._node_of, strict=True)]
        self._upward, self._downward = [upward] * self._servers, [downward] * self._servers
        if network.regions is not None:
            self._lay_region_links(network.regions, workers)
        self._inner = self._out, self._in
        if node_link is not None:
            inner_out, inner_in = (
                [card_of(node_link.bandwidth, slow_workers, worker) for worker in range(workers)] for _ in range(2)
            )
            self._inner = inner_out, inner_in

    def _lay_region_links(self, regions: Regions, workers: int) -> None:
        """Create the links of each worker: one to each region, and one from each."""
        self._region_of = regions.of_workers(workers)
        table, numbers = regions.bandwidth, range(len(regions.bandwidth))
        self._to, self._from = (
            [
                [card_of(bandwidth(home, region), self._slow_workers, worker) for region in numbers]
                for worker, home in enumerate(self._region_of)
            ]
            for bandwidth in (lambda home, region: table[home][region], lambda home, region: table[region][home])
        )
        upward, downward = ([[cards[region] for cards in links] for region in numbers] for links in (self._to, self._from))
        self._upward = [upward[region] for region in self._region_of_server]
        self._downward = [downward[region] for region in self._region_of_server]

    def _server_card(self, server: int, bandwidth: float | None) -> Card:
        card = card_of(bandwidth, self._slow_servers, server)
        return card if self._faults is None else ServerCard(card, partial(self._faults.next_available, "server", server))

    def _cards_between(self, sender: int, receiver: int, inside: bool) -> tuple[tuple[Card, ...], tuple[Card, ...]]:
        """Return the cards that a message between workers passes before its latency, and those after it."""
        regions = self._network.regions
        if regions is not None and regions.collective in PAIRED:
            leaving, entering = self._stream(sender, receiver, regions)
            return (leaving,), (entering,)
        if self._region_of:
            return (self._to[sender][self._region_of[receiver]],), (self._from[receiver][self._region_of[sender]],)
        if inside:
            inner_out, inner_in = self._inner
            return (inner_out[sender],), (inner_in[receiver],)
        return (self._out[sender], self._leaving(sender)), (self._entering(receiver), self._in[receiver])

    def _stream(self, sender: int, receiver: int, regions: Regions) -> tuple[Card, Card]:
        """Return the two ends of the connection that two workers have for themselves."""
        if (sender, receiver) not in self._streams:
            bandwidth = regions.bandwidth[self._region_of[sender]][self._region_of[receiver]]
            self._streams[sender, receiver] = (
                card_of(bandwidth, self._slow_workers, sender),
                card_of(bandwidth, self._slow_workers, receiver),
            )
        return self._streams[sender, receiver]

    def _leaving(self, worker: int) -> Card:
        """Return the card through which messages leave the worker's node."""
        return self._nodes[0][self._node_of[worker]]

    def _entering(self, worker: int) -> Card:
        """Return the card through which messages enter the worker's node."""
        return self._nodes[1][self._node_of[worker]]

    def _passed(self, cards: list[Card], now: int, size: int, server: int | None) -> int:
        """Return the time (ns) at which the bytes have passed a server's card; for None, all cards, in equal parts."""
        if server is not None or len(cards) == 1:
            return cards[server or 0].passes(now, size)
        return max(card.passes(now, self._server_share(size)) for card in cards)
