"""The network during a run: what all links have in common, however messages share them, and cards at which messages queue."""

from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

from fred.cluster.bandwidths import Member
from fred.cluster.cluster import Cluster
from fred.cluster.contention import Load, Loads
from fred.cluster.durations import NEVER, durations
from fred.cluster.faults import Faults, Way
from fred.cluster.latency import Latency
from fred.cluster.network import Network
from fred.components.component import NANOSECONDS
from fred.timing.loop import Loop, Wait


class Card:
    """One direction of a link or of a network card: a first-come-first-served queue.

    Example: 2 MB at 1 MB/s, then 1 MB that arrives a second later.
        >>> card = Card(1e6)
        >>> card.passes(now=0, size=2_000_000), card.takes(now=1_000_000_000, size=1_000_000)
        (2000000000, (2000000000, 3000000000))
    """

    def __init__(self, bandwidth: float | None):
        self.bandwidth = bandwidth  # bytes/s; None: unlimited
        self.free_at = 0  # time (ns) at which the last message accepted so far has passed

    def passes(self, now: int, size: int) -> int:
        """Return the time (ns) at which a message of `size` bytes that reaches the card at `now` has passed it."""
        if self.bandwidth is None:
            return now
        begin = self.free_at if self.free_at > now else now  # three times as fast as `max`
        self.free_at = begin + round(size / self.bandwidth * NANOSECONDS)
        return self.free_at

    def takes(self, now: int, size: int) -> tuple[int, int]:
        """Return the times (ns) at which a message of `size` bytes, at the card at `now`, begins and ends to pass it."""
        begin = now if self.bandwidth is None else max(self.free_at, now)
        return begin, self.passes(now, size)


class Slowness:
    """The slowdowns of the links of workers or of servers."""

    def __init__(self, env: Loop, loads: list[Load], owners: int):
        self._env = env
        self._loads = Loads(loads)
        # Loads with their own `delay` slow down latency only: a message is delayed once.
        self._passing = Loads([load for load in loads if type(load).delay is Load.delay])
        self._messages = [0] * owners  # number of messages so far, in place of steps

    def latency(self, owner: int, base: int) -> int:
        """Return the latency (ns) of a message of `owner` sent now, after slowdowns; `base` is the latency without them."""
        message, now = self._messages[owner], self._env._now
        self._messages[owner] += 1
        return self._loads.finish(owner, message, now, base) - now

    def slowdown(self, owner: int, now: int) -> tuple[float, int]:
        """Return the current factor on transfer times of the owner's link, and the time (ns) until which it holds."""
        return self._passing.slowdown(owner, now)

    def stretch(self, owner: int, begin: int) -> float:
        """Return the factor on the whole of a transfer that begins at `begin`, ns."""
        return self._passing.stretch(owner, begin)

    def passed(self, owner: int, begin: int, work: int) -> int:
        """Return the time (ns) at which `work` ns at full speed have passed the owner's link, starting at `begin`."""
        return self._passing.finish(owner, 0, begin, work) if begin < NEVER else begin  # step 0: these loads have no delays


class SlowCard(Card):
    """A card whose owner's link slows down from time to time."""

    def __init__(self, bandwidth: float | None, slowness: Slowness, owner: int):
        super().__init__(bandwidth)
        self._slowness, self._owner = slowness, owner

    def passes(self, now: int, size: int) -> int:
        if self.bandwidth is None:
            return now
        work = round(size / self.bandwidth * NANOSECONDS)
        self.free_at = self._slowness.passed(self._owner, max(self.free_at, now), work)
        return self.free_at


class SharedCard(Card):
    """A worker's link combined with its node's shared card: a message passes both at the same time.

    >>> link, card = Card(1e6), Card(4e6)
    >>> SharedCard(link, card).passes(now=0, size=2_000_000), card.free_at
    (2000000000, 500000000)
    """

    def __init__(self, link: Card, card: Card):
        super().__init__(link.bandwidth)
        self._link, self._card = link, card

    def passes(self, now: int, size: int) -> int:
        return max(self._link.passes(now, size), self._card.passes(now, size))


class ServerCard(Card):
    """A server's card, at which messages wait while the server is offline."""

    def __init__(self, card: Card, next_available: Callable[[int], int]):
        super().__init__(card.bandwidth)
        self._card, self._next_available = card, next_available

    def passes(self, now: int, size: int) -> int:
        return self._card.passes(self._next_available(now), size)


def card_of(bandwidth: float | None, slowness: Slowness | None, owner: int) -> Card:
    """Return a card of this bandwidth: a `SlowCard` of `owner` if there are slowdowns, else a plain `Card`."""
    return Card(bandwidth) if slowness is None else SlowCard(bandwidth, slowness, owner)


class Links(ABC):
    """The links of a run: latencies, lost messages and slowdowns. Subclasses say when messages arrive.

    Several servers each get (or send) an equal part of a message.

    Args:
        env: the run's event loop.
        cluster: its `network` is used.
        seed: the run's seed.
        faults: lost messages, and offline servers.
    """

    def __init__(self, env: Loop, cluster: Cluster, seed: int, faults: Faults | None = None):
        network = cluster.network.effective if cluster.network else Network()
        self._env, self._servers, self._network, self._cluster = env, cluster.servers, network, cluster
        self._node_of: list[int] = cluster.node_of.tolist()
        self._slow_workers = self._slowness(cluster.link_loads("workers", seed), cluster.size)
        self._slow_servers = self._slowness(cluster.link_loads("servers", seed), cluster.servers)
        self._region_of: tuple[int, ...] = ()  # of each worker, if there are regions
        self._region_of_server = network.regions.of_servers(cluster.servers) if network.regions else (0,) * cluster.servers
        self._faults = faults
        self._repeats = 0  # messages sent again, not yet reported by `pop_repeats`
        self._late: dict[int, deque[int]] = defaultdict(deque)  # lateness of each sender's next messages, ns
        self._up: list[list[Callable[[], int]]] = []  # functions that draw latencies, ns: by server and worker, to the server
        self._down: list[list[Callable[[], int]]] = []  # likewise, from the server
        self._to_region: list[list[Callable[[], int]]] = []  # latencies of each worker's messages to each region, if given
        self._from_server = durations(seed, "between servers", [network.latency] * self._servers, [1.0] * self._servers)
        self._peers: tuple[list[Callable[[], int]], ...] = ()  # latencies to workers of other nodes, and of the same node
        checkpoint = cluster.failures and cluster.failures.checkpoint
        # Either workers or servers send to the store, by their numbers.
        owners = max(cluster.size, self._servers) if checkpoint and checkpoint.to == "store" else 0
        self._store_latency = durations(seed, "store", [network.latency] * owners, [1.0] * owners) if owners else []
        self.clear()  # also sets the workers' regions, on which latencies depend
        self._draw_latencies(network, cluster.size, seed)
        if self._slow_servers is not None:
            self._up, self._down = (_slowed_all(self._slow_servers, draws) for draws in (self._up, self._down))

    @abstractmethod
    def upload(self, worker: int, size: int, server: int | None = None) -> Generator[Wait, Any, list[int]]:
        """Send `size` bytes from a worker to one server, or to all; return how often the message to each had to be sent again.

        Ends when the last byte has arrived.

        Args:
            worker: sender.
            size: bytes.
            server: its number; default: all servers.
        """

    @abstractmethod
    def download(self, worker: int, size: int, server: int | None = None) -> Wait:
        """Send `size` bytes to a worker from one server, or from all; return what to wait for until they have arrived.

        Args:
            worker: receiver.
            size: bytes.
            server: its number; default: all servers.
        """

    @abstractmethod
    def send_between_servers(self, sender: int, receiver: int, size: int) -> Wait:
        """Send `size` bytes from one server to another; return what to wait for: 0, if both are the same.

        The message passes both cards, and the link between their regions, at the same time. It is never lost.

        Args:
            sender, receiver: numbers of the servers.
            size: bytes.
        """

    @abstractmethod
    def send_between_workers(self, sender: int, receiver: int, size: int) -> Generator[Wait, Any, None]:
        """Send `size` bytes from one worker to another; ends when the last byte has arrived.

        Args:
            sender, receiver: numbers of the workers.
            size: bytes.
        """

    @abstractmethod
    def to_store(self, owner: Member, size: int) -> Generator[Wait, Any, None]:
        """Send `size` bytes of a checkpoint to the store; ends when the last byte has arrived.

        Args:
            owner: sender.
            size: bytes.
        """

    @abstractmethod
    def from_store(self, owner: Member, size: int) -> Generator[Wait, Any, None]:
        """Send `size` bytes of a checkpoint from the store; ends when the last byte has arrived.

        Args:
            owner: receiver.
            size: bytes.
        """

    @abstractmethod
    def _lay_cards(
        self, network: Network, workers: int, upload: Sequence[float | None], download: Sequence[float | None]
    ) -> None:
        """Create the links of each worker, server and node: one for each direction."""

    def clear(self) -> None:
        """Forget all messages under way."""
        self._repeats = 0
        self._late.clear()
        cluster = self._cluster
        self._lay_cards(self._network, cluster.size, cluster.bandwidths("upload"), cluster.bandwidths("download"))

    def pause(self, duration: int) -> None:
        """Delay all messages under way by `duration` ns."""
        raise NotImplementedError

    def _latency_of_store(self, owner: Member) -> int:
        """Return the latency of a message between the store and a worker or server, ns."""
        kind, number = owner
        latency = self._store_latency[number]()
        slow = self._slow_workers if kind == "workers" else self._slow_servers
        return latency if slow is None else slow.latency(number, latency)

    def _latency_between(self, sender: int, receiver: int) -> int:
        """Return the latency of a message between two servers, ns."""
        regions = self._network.regions
        if regions is not None and regions.latency is not None:
            sender_region, receiver_region = self._region_of_server[sender], self._region_of_server[receiver]
            latency = round(regions.latency[sender_region][receiver_region] * NANOSECONDS)
        else:
            latency = self._from_server[sender]()
        return latency if self._slow_servers is None else self._slow_servers.latency(sender, latency)

    def _latency_across(self, sender: int, receiver: int, inside: bool) -> tuple[int, int]:
        """Return the latency of a message between two workers, and by how much it is late, ns."""
        latency = self._to_region[sender][self._region_of[receiver]]() if self._to_region else self._peers[inside][sender]()
        if self._slow_workers is not None:
            latency = self._slow_workers.latency(receiver, latency)
        if not self._late[sender]:  # `publish` has announced fewer messages
            self.announce(sender, 1)
        return latency, self._late[sender].popleft() if self._late[sender] else 0

    def announce(self, sender: int, messages: int) -> int:
        """Announce that `sender` will send `messages` messages to other workers; return how many of them are sent again."""
        if self._faults is None or not self._faults.loses:
            return 0
        draws = [self._faults.lateness("between-workers", sender, self._env._now) for _ in range(messages)]
        self._late[sender] += [late for late, _ in draws]
        return sum(repeats for _, repeats in draws)

    def pop_repeats(self) -> int:
        """Return the number of messages to and from servers that were sent again since the last call."""
        repeats, self._repeats = self._repeats, 0
        return repeats

    def collective_time(self, members: Iterable[int], begin: int, work: int) -> int:
        """Return how long (ns) a collective operation of `work` ns at full speed takes its `members` from `begin` on."""
        if self._slow_workers is None:
            return work
        return max(self._slow_workers.passed(member, begin, work) for member in members) - begin

    def _store_bandwidth(self) -> float | None:
        """Return the bandwidth of the store of checkpoints, bytes/s."""
        checkpoint = self._cluster.failures and self._cluster.failures.checkpoint
        return checkpoint.store_bandwidth if checkpoint else None

    def _slowness(self, loads: list[Load], owners: int) -> Slowness | None:
        return Slowness(self._env, loads, owners) if loads else None

    def _server_bandwidths(self, network: Network) -> list[float | None]:
        """Return the bandwidth of each server's card, bytes/s."""
        bandwidths = {server: group.bandwidth for group in network.servers for server in group.servers}
        return [bandwidths.get(server) or network.server_bandwidth for server in range(self._servers)]

    def _draw_latencies(self, network: Network, workers: int, seed: int) -> None:
        """Set up each worker's latency draws: to each server, from each server, to other workers, and within its node."""
        speeds = [1.0] * workers

        def create_draws(purpose: str, latency: Latency) -> list[Callable[[], int]]:
            functions = durations(seed, purpose, [latency] * workers, speeds)
            slow = self._slow_workers
            return functions if slow is None else [_slowed(slow, worker, draw) for worker, draw in enumerate(functions)]

        if network.regions is not None and network.regions.latency is not None:
            self._fix_latencies(network.regions.latency)
            return
        self._up = [create_draws("uplink", network.latency)] * self._servers
        self._down = [create_draws("downlink", network.pull_latency or network.latency)] * self._servers
        between_nodes = create_draws("peers", network.latency)
        self._peers = (
            between_nodes,
            between_nodes if network.within is None else create_draws("peers of a node", network.within.latency),
        )
        for group in network.servers:
            for server in group.servers:
                if group.latency is not None:
                    self._up[server] = create_draws(f"uplink, server {server}", group.latency)
                if (latency := group.pull_latency or group.latency) is not None:
                    self._down[server] = create_draws(f"downlink, server {server}", latency)

    def _fix_latencies(self, table: tuple[tuple[float, ...], ...]) -> None:
        """Set up constant latencies between regions; the `table` has them in s, by sender and receiver."""

        def fix_latency(worker: int, seconds: float) -> Callable[[], int]:
            nanoseconds, slow = round(seconds * NANOSECONDS), self._slow_workers
            return (lambda: nanoseconds) if slow is None else _slowed(slow, worker, lambda: nanoseconds)

        homes = list(enumerate(self._region_of))  # worker, region
        regions = self._region_of_server
        up = {region: [fix_latency(worker, table[home][region]) for worker, home in homes] for region in set(regions)}
        down = {region: [fix_latency(worker, table[region][home]) for worker, home in homes] for region in set(regions)}
        self._up, self._down = [up[region] for region in regions], [down[region] for region in regions]
        self._to_region = [[fix_latency(worker, seconds) for seconds in table[home]] for worker, home in homes]

    def _lateness(self, faults: Faults, way: Way, worker: int, server: int | None) -> int:
        """Return by how much a message to a `server`, or to all servers (None), is late, ns."""
        late, repeats = faults.lateness(way, worker, self._env._now)
        self._repeats += repeats * (self._servers if server is None else 1)  # all their parts are sent again
        return late

    def _server_share(self, size: int) -> int:
        return round(size / self._servers)


def _slowed(slowness: Slowness, owner: int, draw: Callable[[], int]) -> Callable[[], int]:
    return lambda: slowness.latency(owner, draw())


def _slowed_all(slowness: Slowness, draws: list[list[Callable[[], int]]]) -> list[list[Callable[[], int]]]:
    """Return latencies that also follow the slowdowns of servers, by server and worker."""
    return [[_slowed(slowness, server, draw) for draw in of_server] for server, of_server in enumerate(draws)]
