"""What workers hold while the simulation runs: copies of models, and gradients."""

from collections.abc import Sequence
from typing import Any

from fred.cluster.durations import NANOSECONDS
from fred.errors import FredError

NOTHING_CUT: dict[int, int] = {}
NOTHING_UNUSUAL: dict[int, tuple[int, int]] = {}


class Copy:
    """Parameters that a worker has read: the mailbox that they lie in, and the clock of each block at the time.

    Args:
        mailbox: number, in the order of reading.
        timestamp: changes of the replica when it was read; of the oldest block.
        timestamps: block -> its clock; empty where replicas are not cut.
        original: the copy that this one is made of, if `stamped`.

    Example: blocks 0 and 1, read after 3 and 5 changes of theirs.
        >>> import fred
        >>> copy = fred.Copy(mailbox=7, timestamp=3, timestamps={0: 3, 1: 5})
        >>> copy.at(1)
        5
        >>> copy.stamped([6, 6]).timestamp
        6
        >>> copy.at(2)
        Traceback (most recent call last):
        fred.errors.FredError: a copy of block 0, 1 is used where block 2 is needed
    """

    __slots__ = ("__weakref__", "mailbox", "original", "timestamp", "timestamps")

    def __init__(self, mailbox: int, timestamp: int, timestamps: dict[int, int] = NOTHING_CUT, original: "Copy | None" = None):
        self.mailbox = mailbox
        self.timestamp = timestamp  # of the oldest block
        self.timestamps = timestamps  # of each block that it has, where replicas are cut
        self.original = original  # of one that is passed off as newer: the mailbox is kept for as long as that lives

    def stamped(self, clocks: Sequence[int]) -> "Copy":
        """The same parameters, passed off as newer, read at these `clocks`, one for each block. Raises FredError for older."""
        if any(clock < own for own, clock in zip(self._clocks(len(clocks)), clocks, strict=False)):
            raise FredError(f"a copy read at clock {self.timestamp} is passed off as one of {min(clocks)}: give no older ones")
        timestamps = dict(enumerate(clocks)) if self.timestamps else NOTHING_CUT
        return Copy(self.mailbox, min(clocks), timestamps, self.original or self)

    def _clocks(self, blocks: int) -> list[int]:
        """Of so many blocks; 0 of those that it does not have."""
        return [self.timestamps.get(block, 0) for block in range(blocks)] if self.timestamps else [self.timestamp]

    def at(self, block: int) -> int:
        """The clock of a `block` when it was read. Raises FredError if the copy does not have it."""
        if not self.timestamps:
            return self.timestamp
        if block not in self.timestamps:
            raise FredError(f"a copy of block {', '.join(map(str, self.timestamps))} is used where block {block} is needed")
        return self.timestamps[block]

    def incomplete(self, blocks: int) -> FredError:
        """The error to raise where it is used as a model of so many `blocks`, and does not have all of them."""
        return FredError(
            f"a copy of block {', '.join(map(str, self.timestamps))} stands for a whole model, which has {blocks} blocks: "
            "`compose` copies of all of them"
        )


class Gradient:
    """A gradient being computed, or computed and not yet used; or the difference that local steps have made of a copy.

    Args:
        worker: whose.
        step: how many gradients the worker began before; names its minibatch.
        copy: the parameters.
        begin, end: ns.
        source: of a difference.

    Protocols get theirs from `Simulation.compute`, and wait for `finished`; a finished one looks like this:
        >>> import fred
        >>> gradient = fred.Gradient(worker=2, step=0, copy=fred.Copy(0, 0), begin=0, end=1_500_000_000)
        >>> gradient.ready_at(block=0), gradient.applied
        (1500000000, False)
        >>> print(gradient.unfinished(now=1_000_000_000, block=0))
        worker 2's gradient 0 is used at 1 s, before it is finished at 1.5 s: the protocol must wait for its `finished` first
    """

    __slots__ = (
        *(
            "__weakref__",
            "applied",
            "begin",
            "copy",
            "dropped",
            "due",
            "end",
            "finished",
            "ready",
            "sent",
            "source",
            "step",
            "underway",
        ),
        "worker",
    )

    def __init__(self, worker: int, step: int, copy: Copy, begin: int, end: int, source: Copy | None = None):
        self.worker = worker
        self.step = step  # the worker's own count; NONE: a difference
        self.copy = copy  # what it is computed at; of a difference, where it ends
        self.source = source  # of a difference: where it starts
        self.begin, self.end = begin, end  # ns
        self.ready: tuple[int, ...] = ()  # ns, when each block of it is finished, where that is not all at the end
        self.finished: Any = None  # the event that the protocol waits for
        self.sent = NOTHING_UNUSUAL  # bytes and messages for it, of each block of which they are not what is usual
        self.applied = False  # whether it took part in an update
        self.dropped = False  # whether it is given up
        self.due = 1  # rows about it that are still to come, as far as is known
        self.underway = False  # whether any of it has been sent to servers

    def ready_at(self, block: int) -> int:
        """From when on a `block` of it can be used, ns."""
        return self.ready[block] if self.ready else self.end

    def unfinished(self, now: int, block: int) -> FredError:
        """The error to raise where a `block` of it is used too early, at `now`, ns."""
        return FredError(
            f"worker {self.worker}'s gradient {self.step} is used at {now / NANOSECONDS:g} s, before it is finished at "
            f"{self.ready_at(block) / NANOSECONDS:g} s: the protocol must wait for its `finished` first"
        )
