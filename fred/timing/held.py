"""What workers hold while the simulation runs: copies of models, and gradients."""

from typing import Any

from fred.errors import FredError

NOTHING_CUT: dict[int, int] = {}


class Copy:
    """Parameters that a worker has read: the mailbox that they lie in, and the clock of each block at the time."""

    __slots__ = ("__weakref__", "mailbox", "timestamp", "timestamps")

    def __init__(self, mailbox: int, timestamp: int, timestamps: dict[int, int] = NOTHING_CUT):
        self.mailbox = mailbox
        self.timestamp = timestamp  # of the oldest block
        self.timestamps = timestamps  # of each block that it has, where replicas are cut

    def at(self, block: int) -> int:
        """The clock of a block when it was read. Raises FredError if the copy does not have it."""
        if not self.timestamps:
            return self.timestamp
        if block not in self.timestamps:
            raise FredError(f"a copy of block {', '.join(map(str, self.timestamps))} is used where block {block} is needed")
        return self.timestamps[block]


class Gradient:
    """A gradient being computed, or computed and not yet used; or the difference that local steps have made of a copy."""

    __slots__ = ("__weakref__", "applied", "begin", "copy", "end", "finished", "ready", "source", "step", "worker")

    def __init__(self, worker: int, step: int, copy: Copy, begin: int, end: int, source: Copy | None = None):
        self.worker = worker
        self.step = step  # the worker's own count; NONE: a difference
        self.copy = copy  # what it is computed at; of a difference, where it ends
        self.source = source  # of a difference: where it starts
        self.begin, self.end = begin, end  # ns
        self.ready: tuple[int, ...] = ()  # ns, when each block of it is finished, where that is not all at the end
        self.finished: Any = None  # the event that the protocol waits for
        self.applied = False  # whether it took part in an update

    def ready_at(self, block: int) -> int:
        """From when on a block of it can be used, ns."""
        return self.ready[block] if self.ready else self.end
