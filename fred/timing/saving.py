"""The times of checkpoints: given ones, and those that the network needs to carry them to a store or to peers, and back."""

import math
from collections.abc import Callable, Collection
from functools import partial

from fred.cluster.durations import NANOSECONDS
from fred.cluster.failures import Checkpoint
from fred.cluster.routes import Member
from fred.timing.links import Links
from fred.timing.loop import Loop
from fred.timing.simulation import Simulation
from fred.timing.world import Process


class Saving:
    """The checkpoints of one run on their way: each owner of a part of the model sends its share, all at the same time.

    Owners are the servers, or else the workers. While the job is stopped, nothing else is on the network. While it goes on,
    shares and the messages of training are on the same links.

    Args:
        sim: the run, before any process has started.
        checkpoint: options.

    Example: two workers write 1 MB each to a store of 10 MB/s, which needs 0.2 s.
        >>> import fred
        >>> saved = {"every_updates": 1, "to": "store", "bytes": 2_000_000, "store_bandwidth": 1e7, "blocking": True}
        >>> failures = {"recorded": [(0, 1, 2)], "checkpoint": saved}
        >>> cluster = fred.Cluster(workers=2, network={}, failures=failures)
        >>> sim = fred.Simulation(cluster, fred.Recorder(2, fred.Layout.shared()), seed=0)
        >>> saving = Saving(sim, cluster.failures.checkpoint)
        >>> saving.stops(now=0) / 1e9, saving.load(begin=0) / 1e9
        (0.2, 0.2)
    """

    def __init__(self, sim: Simulation, checkpoint: Checkpoint):
        self._sim, self._to, self._blocking = sim, checkpoint.to, checkpoint.blocking
        self._pause, self._write = (round(each * NANOSECONDS) for each in (checkpoint.pause, checkpoint.write))
        servers = bool(sim.record.layout.on_servers)
        self._owners: list[Member] = (
            [("servers", server) for server in range(sim.servers)]
            if servers
            else [("workers", worker) for worker in range(sim.workers)]
        )
        self._share = math.ceil((checkpoint.bytes or 0) / len(self._owners))  # bytes
        self._without: set[int] = set()  # workers whose memory does not hold the checkpoint
        if sim.links is not None and self._to:
            self._idle = Loop()
            self._idle_links = type(sim.links)(self._idle, sim.cluster, sim.seed)

    def stops(self, now: int) -> int:
        """Return for how long (ns) the job stops for a checkpoint that is made `now`, ns."""
        return self._pause + (self._alone(now + self._pause, self._writes) if self._to and self._blocking else 0)

    def send(self, begin: int, done: Callable[[], None]) -> None:
        """Send a checkpoint.

        Args:
            begin: when the job goes on, ns.
            done: called once the checkpoint can be used.
        """
        if self._to and not self._blocking:
            self._sim.env.at(begin, partial(self._start_sending, done))
        elif begin + self._write > self._sim.now:
            self._sim.env.at(begin + self._write, done)
        else:
            done()

    def lose(self, failed: Collection[int]) -> bool:
        """Return True if the last checkpoint is lost, because both workers that have a share in their memory failed.

        Args:
            failed: workers that fail now.
        """
        self._without.update(failed)
        return self._to == "peers" and any(self._next(worker) in self._without for worker in self._without)

    def load(self, begin: int) -> int:
        """Return how long (ns) the network needs from `begin` (ns) on until all owners have their shares again."""
        return self._alone(begin, self._reads) if self._to else 0

    def loaded(self) -> None:
        """Note that all workers have their shares again."""
        self._without.clear()

    def _next(self, worker: int, step: int = 1) -> int:
        return (worker + step) % self._sim.workers

    def _writes(self, links: Links) -> list[Process]:
        """Return the messages of a new checkpoint."""
        if self._to == "store":
            return [links.to_store(owner, self._share) for owner in self._owners]
        return [links.across(worker, self._next(worker), self._share) for _, worker in self._owners]

    def _reads(self, links: Links) -> list[Process]:
        """Return the messages of a restart; peers send a worker its own share, and the one that it holds for another."""
        if self._to == "store":
            return [links.from_store(owner, self._share) for owner in self._owners]
        neighbours = [(self._next(worker, step), worker) for step in (1, -1) for worker in sorted(self._without)]
        return [links.across(sender, worker, self._share) for sender, worker in neighbours]

    def _start_sending(self, done: Callable[[], None]) -> None:
        assert self._sim.links is not None
        messages = [self._sim.process(message) for message in self._writes(self._sim.links)]
        self._sim.later(self._sim.env.all_of(messages), done)

    def _alone(self, begin: int, messages: Callable[[Links], list[Process]]) -> int:
        """Return how long (ns) messages take that begin at `begin` (ns) on an idle network."""
        env, links = self._idle, self._idle_links
        env._queue.clear()
        env._now = begin
        links.clear()
        env.run(env.all_of([env.process(message) for message in messages(links)]))
        return env._now - begin
