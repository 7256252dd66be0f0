"""Messages: sizes, durations, and the bytes charged to the rows of the schedule."""

from collections.abc import Iterable

import simpy

from fred.cluster.cluster import Cluster
from fred.cluster.network import Cost, mean_latency
from fred.components.component import NANOSECONDS
from fred.schedule.layout import Size, Sizes, size_in_bytes
from fred.schedule.schedule import NONE, UNENDING
from fred.timing.copies import Gradient
from fred.timing.fair_links import FairLinks
from fred.timing.links import Links
from fred.timing.loop import Wait
from fred.timing.queued_links import QueuedLinks
from fred.timing.recorder import Recorder
from fred.timing.world import Process, World


class Sending(World):
    """The network of a run, and the costs of messages.

    A message has the `size`, bytes, given to a verb, or else the usual one: the value in `sizes` for models, workers' messages
    and each block of them (a number applies to all), scaled to parameters of `message_bytes` if the network sets that.
    """

    def __init__(self, cluster: Cluster, recorder: Recorder, seed: int, sizes: Sizes | int):
        super().__init__(cluster, recorder, seed)
        self.network = network = cluster.network and cluster.network.effective
        self._region_of = network.regions.of_workers(cluster.size) if network and network.regions else ()
        kind = FairLinks if network and network.sharing == "fair" else QueuedLinks
        self.links: Links | None = kind(self.env, cluster, seed, self._faults) if network or self._faults else None
        self.blocks = blocks = recorder.layout.blocks  # number of blocks in each replica
        usual = Sizes.uniform(sizes, (1 / blocks,) * blocks) if isinstance(sizes, int) else sizes
        self.sizes = usual.scaled(network.message_bytes) if network and network.message_bytes else usual
        self.shares = usual.shares  # each block's share of a model
        # usual bytes and messages of each block, from servers and to servers
        self._down, self._up = self._costs_by_block(self.sizes.model), self._costs_by_block(self.sizes.message)
        self._published = [(NONE, self.sizes.model.total)] * self.workers  # row and bytes of each worker's last `publish`

    def halt(self, seconds: float, waiting: dict[str, str]) -> None:
        super().halt(seconds, waiting)
        if self.links is not None:
            self.links.clear()

    def send(
        self, gradient: Gradient, server: int | None = None, size: int | None = None, block: int | None = None
    ) -> Iterable[Wait]:
        """Send a finished gradient to all servers, or to one; ends when it has arrived.

        If replicas are split into blocks, one server gets its own block; all servers together may get one `block`.

        The `size`, bytes, is also charged to the row that uses it (`push`, `add` or `drop`).

        Args:
            gradient: a gradient or a pseudo-gradient.
            server: its number, from 0; default: all servers.
            size: bytes; default: the size of what the server's `send` returns, at 4 bytes per parameter.
            block: its number, if no other block of the gradient is ever sent and all servers hold a part of each block;
                default: all blocks.

        Example: 1 MB at 10 MB/s, two workers, each with its own link.
            >>> import fred
            >>> cluster = fred.Cluster(workers=2, network={"bandwidth": 1e7})
            >>> sim = fred.Simulation(cluster, fred.Recorder(2, fred.Layout.central(), updates=2), seed=0, sizes=1_000_000)
            >>> def work(worker, size):
            ...     gradient = sim.compute(worker, sim.own(0))
            ...     yield gradient.finished
            ...     yield from sim.send(gradient, size=size)
            ...     sim.push(gradient)
            ...     print(f"worker {worker}: {sim.now / 1e9} s")
            >>> _ = [sim.process(work(worker, size)) for worker, size in ((0, None), (1, 250_000))]
            >>> sim.run()
            worker 1: 1.025 s
            worker 0: 1.1 s
            >>> sim.schedule()["bytes"].tolist()[-2:]
            [250000, 1000000]
        """
        sent_block = block if server is None else server if self.blocks > 1 else None  # None: all blocks
        custom = None if size is None else self._set_size(gradient, sent_block, size)
        if server is not None and self.blocks == 1:
            gradient.sent = {0: ((custom or self.sizes.message).total, 1)}
        if self.links is None:
            return ()
        if gradient.underway or self.blocks > 1 or gradient.step == NONE:  # others need one row, as counted already
            self._count_rows(gradient, sent_block)
        gradient.underway = True
        sent = custom or self.sizes.message
        upload = self.links.upload(gradient.worker, sent.total if sent_block is None else sent.blocks[sent_block], server)
        return upload if self.faultless else self._sending(gradient, sent_block, sent, upload)

    def send_between(self, pseudo_gradient: Gradient, server: int, receiver: int) -> Iterable[Wait]:
        """Send a pseudo-gradient from one server to another; ends when it has arrived.

        Args:
            pseudo_gradient: that of a server's model.
            server, receiver: numbers of the two servers.
        """
        size = self.sizes.message.total
        pseudo_gradient.sent = {0: (size, 1)}
        if self.links is None:
            return ()
        self._count_rows(pseudo_gradient, None)
        return (self.links.send_between_servers(server, receiver, size),)

    def transfer(self, worker: int, receiver: int, size: int | None = None) -> simpy.Event:
        """Send a worker's last published model to another worker; the returned event happens on arrival.

        Args:
            worker: sender.
            receiver: the other worker.
            size: bytes that determine the duration; default: as given to `publish`, whose bytes are charged in either case.

        Example:
            >>> import fred
            >>> cluster = fred.Cluster(workers=2, network={"latency": {"name": "constant", "seconds": 0.25}, "bandwidth": 1e6})
            >>> sim = fred.Simulation(cluster, fred.Recorder(2, fred.Layout.peers(2), rows=2), seed=0, sizes=500_000)
            >>> def give(worker, receiver):
            ...     model = sim.publish(worker, copies=1)
            ...     yield sim.transfer(worker, receiver)
            ...     sim.sync(receiver, model, keep=0.5, weight=0.5)
            ...     sim.record.stop()
            >>> _ = sim.process(give(0, 1))
            >>> sim.run()
            >>> sim.now / 1e9
            0.75
        """
        now, (row, published) = self.env._now, self._published[worker]
        size = bytes_of(size, published)
        if self.links is None:
            self.record.record_trip(now, now, row, worker, receiver)
            return self.env.after(0)
        trip = self.record.record_trip(now, UNENDING, row, worker, receiver)
        return self.process(self._travel(trip, self.links.send_between_workers(worker, receiver, size)))

    @property
    def mean_latency(self) -> int:
        """Return the mean latency of one message between workers, ns."""
        network = self.network
        if network is None:
            return 0
        if network.regions is None or network.regions.latency is None:
            return round(mean_latency(network) * NANOSECONDS)
        return round(network.regions.mean_latency(self._region_of) * NANOSECONDS)

    def _travel(self, trip: int, message: Process) -> Process:
        """Move a model from one worker to another, and record its arrival."""
        yield from message
        self.record.set_trip_end(trip, self.now)

    def _count_rows(self, gradient: Gradient, block: int | None) -> None:
        """Count the rows that a departing gradient, or block of it, still needs beyond the first."""
        if gradient.underway:
            gradient.due += 1
        elif block is None and self.blocks > 1:
            gradient.due = self.blocks
        if gradient.step == NONE and not gradient.underway:  # a pseudo-gradient is never a worker's latest gradient
            self.record.retain(gradient)

    def _charged(self, gradient: Gradient, block: int, cost: Cost | None, end: int) -> tuple[int, int]:
        """Return the bytes and messages charged for a gradient; `end`, ns, is when the operation with this cost ends."""
        if cost is None:
            return gradient.sent.get(block, self._up[block])
        if cost.nanoseconds:
            self.record.record_collective(end - cost.moving, end, gradient.worker)
        return cost.bytes, cost.messages

    def _set_size(self, gradient: Gradient, block: int | None, size: int) -> Size:
        """Return the size of a message for a gradient, or a block of it; store it in the gradient for its row."""
        # A size for one block is that block's in full: every share is 1.
        sent = Size.from_shares(bytes_of(size, 0), self.shares if block is None else (1.0,) * self.blocks)
        costs = dict(enumerate(self._costs_by_block(sent)))
        gradient.sent = gradient.sent | (costs if block is None else {block: costs[block]})
        return sent

    def _sending(self, gradient: Gradient, sent_block: int | None, sent: Size, upload: Process) -> Process:
        """Send a gradient, or one block of it; store in it the bytes and messages, with those that were sent again."""
        repeats = yield from upload
        if not any(repeats):
            return
        costs = [(sent.total, len(repeats))] if self.blocks == 1 else self._costs_by_block(sent)
        for block in range(len(costs)) if sent_block is None else (sent_block,):
            # `repeats` has a number for each server. Of several blocks that are sent at once, block b is on servers b,
            # b + blocks, ...; with fewer servers, on server b modulo their number.
            of_block = repeats[block % len(repeats) :: self.blocks] if sent_block is None and len(costs) > 1 else repeats
            gradient.sent = gradient.sent | {block: with_repeats(*costs[block], sum(of_block))}

    def _read_cost(self, block: int, size: int | None) -> tuple[int, int]:
        """Return the bytes and messages that servers have just sent for a block."""
        usual, messages = self._down[block]
        repeats = 0 if self.links is None else self.links.pop_repeats()
        return with_repeats(bytes_of(size, usual), messages, repeats)

    def _costs_by_block(self, size: Size) -> list[tuple[int, int]]:
        """Return the bytes and messages of each block; or of the whole, of which each server gets (or sends) a part."""
        return [(block, 1) for block in size.blocks] if self.blocks > 1 else [(size.total, self.servers)]


def with_repeats(size: int, messages: int, repeats: int) -> tuple[int, int]:
    """Return the bytes and messages of a transfer, plus those of `repeats` repeated messages."""
    return size + size * repeats // messages, messages + repeats


def bytes_of(size: int | None, usual: int) -> int:
    """Return a message's size in bytes: the protocol's `size` if given, else `usual`. Raises FredError if it is no size."""
    return usual if size is None else size_in_bytes(size, "the protocol")
