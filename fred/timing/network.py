"""Links between workers and servers, and the servers' network cards, where messages queue."""

from collections.abc import Generator
from typing import Annotated, Any

import simpy
from pydantic import Field

from fred.component import Component
from fred.timing.durations import NANOSECONDS, durations
from fred.timing.latency import AnyLatency, Constant

Bandwidth = Annotated[float, Field(gt=0)]  # bytes/s


class Network(Component):
    """Every worker's link to the servers, and the card that each server's messages share. Absent: messages take no time.

    A message takes a latency, drawn for each message, plus size / bandwidth. Where `server_bandwidth` is given, messages to
    (and, on their own, from) a server pass its card one at a time, first come first served, each holding it for size /
    server_bandwidth; link and card work at the same time, so an unhindered message takes the slower of the two.
    """

    latency: AnyLatency = Field(Constant(seconds=0.0), description="propagation time of one message, s")
    bandwidth: Bandwidth | None = Field(None, description="of a worker's link, bytes/s; absent: unlimited")
    server_bandwidth: Bandwidth | None = Field(None, description="of a server's card, bytes/s; absent: no queueing")
    message_bytes: int | None = Field(None, ge=1, description="size of a full model or gradient; absent: 4 per parameter")


class Card:
    """One direction of a server's network card: a first-come-first-served queue."""

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
    """The network at work: transfers between workers and servers as SimPy generators."""

    def __init__(self, env: simpy.Environment, network: Network, workers: int, servers: int, seed: int):
        self._env = env
        self._bandwidth = network.bandwidth
        self._inward = [Card(network.server_bandwidth) for _ in range(servers)]
        self._outward = [Card(network.server_bandwidth) for _ in range(servers)]
        latencies, speeds = [network.latency] * workers, [1.0] * workers
        self._up = durations(seed, "uplink", latencies, speeds)
        self._down = durations(seed, "downlink", latencies, speeds)

    def upload(self, worker: int, server: int, size: int) -> Generator[simpy.Event, Any, None]:
        """Bring `size` bytes from a worker to a server; ends when the last byte has arrived."""
        yield self._env.timeout(self._up[worker]())
        now = int(self._env.now)
        done = max(self._inward[server].passes(now, size), now + self._serialisation(size))
        if done > now:
            yield self._env.timeout(done - now)

    def arrival(self, worker: int, server: int, size: int) -> int:
        """When `size` bytes that the server sends to a worker now have arrived, ns."""
        now = int(self._env.now)
        sent = max(self._outward[server].passes(now, size), now + self._serialisation(size))
        return sent + self._down[worker]()

    def _serialisation(self, size: int) -> int:
        return 0 if self._bandwidth is None else round(size / self._bandwidth * NANOSECONDS)
