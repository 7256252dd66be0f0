"""Links between workers, to servers and to each other, and the network cards where messages queue."""

import math
from collections.abc import Generator
from typing import Annotated, Any, Literal, NamedTuple

import simpy
from pydantic import Field

from fred.component import Component
from fred.timing.durations import NANOSECONDS, durations
from fred.timing.latency import AnyLatency, Constant
from fred.timing.loop import After

Collective = Literal["ring", "recursive-doubling", "rabenseifner"]
Bandwidth = Annotated[float, Field(gt=0)]  # bytes/s


class Cost(NamedTuple):
    """What one worker spends on a message, or on its part in a collective operation."""

    nanoseconds: int
    bytes: int  # sent
    messages: int


NOTHING = Cost(0, 0, 0)


class Network(Component):
    """Every worker's link to the servers and to other workers, and the servers' cards. Absent: messages take no time.

    A message takes a latency, drawn for each message, plus size / bandwidth. Where `server_bandwidth` is given, messages to
    (and, on their own, from) a server pass its card one at a time, first come first served, each holding it for size /
    server_bandwidth; link and card work at the same time, so an unhindered message takes the slower of the two. What one worker
    sends to servers, gets from them, or sends to other workers passes its link one message at a time, too.

    A collective among n workers takes, with the mean latency a and the time b of one model at `bandwidth`: ring 2 (n-1) (a +
    b/n); recursive doubling log2(n) (a + b); Rabenseifner 2 log2(n) a + 2 (n-1)/n b [Thakur, Rabenseifner, Gropp 2005].
    """

    latency: AnyLatency = Field(Constant(seconds=0.0), description="propagation time of one message, s")
    pull_latency: AnyLatency | None = Field(None, description="of servers' messages to workers; absent: `latency`")
    bandwidth: Bandwidth | None = Field(None, description="of a worker's link, bytes/s; absent: unlimited")
    server_bandwidth: Bandwidth | None = Field(None, description="of a server's card, bytes/s; absent: no queueing")
    message_bytes: int | None = Field(None, ge=1, le=2**48, description="size of a model or gradient; absent: 4 per parameter")
    collective: Collective = Field("ring", description="how an allreduce is done")

    def allreduce(self, members: int, size: int, algorithm: Collective | None = None) -> Cost:
        """The cost of an allreduce of `size` bytes among so many workers, by default as `collective` says."""
        rounds = math.ceil(math.log2(members))
        messages, moved = {
            "ring": (2 * (members - 1), 2 * (members - 1) * size / members),
            "recursive-doubling": (rounds, rounds * size),
            "rabenseifner": (2 * rounds, 2 * (members - 1) * size / members),
        }[algorithm or self.collective]
        seconds = messages * self.latency.mean + (moved / self.bandwidth if self.bandwidth else 0.0)
        return Cost(round(seconds * NANOSECONDS), round(moved), messages)


class Card:
    """One direction of a network card: a first-come-first-served queue."""

    def __init__(self, bandwidth: float | None):
        self.bandwidth = bandwidth  # bytes/s; None: unlimited
        self.free_at = 0  # ns, when the last message accepted so far has passed

    def passes(self, now: int, size: int) -> int:
        """When a message of `size` bytes that reaches the card now has passed it, ns."""
        if self.bandwidth is None:
            return now
        self.free_at = max(self.free_at, now) + round(size / self.bandwidth * NANOSECONDS)
        return self.free_at


class Links:
    """The network at work: when messages arrive. Several servers get (and send) equal parts of a message."""

    def __init__(self, env: simpy.Environment, network: Network, workers: int, servers: int, seed: int):
        self._env = env
        self._upward = [Card(network.bandwidth) for _ in range(workers)]
        self._downward = [Card(network.bandwidth) for _ in range(workers)]
        self._inward = [Card(network.server_bandwidth) for _ in range(servers)]
        self._outward = [Card(network.server_bandwidth) for _ in range(servers)]
        self._sideways = [Card(network.bandwidth) for _ in range(workers)]
        speeds = [1.0] * workers
        self._up = durations(seed, "uplink", [network.latency] * workers, speeds)
        self._down = durations(seed, "downlink", [network.pull_latency or network.latency] * workers, speeds)
        self._across = durations(seed, "peers", [network.latency] * workers, speeds)

    def upload(self, worker: int, size: int, server: int | None = None) -> Generator[simpy.Event, Any, None]:
        """Bring `size` bytes from a worker to one server, or to all; ends when the last byte has arrived."""
        yield After(self._env, self._up[worker]())
        now = int(self._env.now)
        done = max(self._passed(self._inward, now, size, server), self._upward[worker].passes(now, size))
        if done > now:
            yield After(self._env, done - now)

    def arrival(self, worker: int, size: int, server: int | None = None) -> int:
        """When `size` bytes that one server, or all, send to a worker now have arrived, ns."""
        now = int(self._env.now)
        sent = self._passed(self._outward, now, size, server)
        return max(sent, self._downward[worker].passes(now, size)) + self._down[worker]()

    def across(self, worker: int, size: int) -> int:
        """When `size` bytes that one worker sends to another now have arrived, ns."""
        return self._sideways[worker].passes(int(self._env.now), size) + self._across[worker]()

    @staticmethod
    def _passed(cards: list[Card], now: int, size: int, server: int | None) -> int:
        """When the bytes have passed one server's card, or all servers', each a part of them."""
        if server is not None or len(cards) == 1:
            return cards[server or 0].passes(now, size)
        return max(card.passes(now, round(size / len(cards))) for card in cards)
