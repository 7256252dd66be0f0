"""Objects that workers hold during the simulation: copies of models, and gradients."""

from collections.abc import Sequence
from typing import Any

from fred.base.errors import FredError
from fred.components.component import NANOSECONDS

NOT_SPLIT: dict[int, int] = {}
USUAL_COSTS: dict[int, tuple[int, int]] = {}


class Copy:
    """Parameters that a worker has read: the mailbox that stores them, and the clock of each block at that time.

    Args:
        mailbox: its number, in the order of reading.
        timestamp: the replica's clock (number of changes) when it was read; that of the oldest block.
        timestamps: clock of each block, by block number; empty if replicas are not split into blocks.
        original: the copy from which `stamped` made this one.

    Example: blocks 0 and 1, read at their clocks 3 and 5.
        >>> import fred
        >>> copy = fred.Copy(mailbox=7, timestamp=3, timestamps={0: 3, 1: 5})
        >>> copy.at(1)
        5
        >>> copy.stamped([6, 6]).timestamp
        6
        >>> copy.at(2)
        Traceback (most recent call last):
        fred.FredError: a copy of block 0, 1 is used where block 2 is needed
    """

    __slots__ = ("__weakref__", "mailbox", "original", "timestamp", "timestamps")

    def __init__(self, mailbox: int, timestamp: int, timestamps: dict[int, int] = NOT_SPLIT, original: "Copy | None" = None):
        self.mailbox = mailbox
        self.timestamp = timestamp  # of the oldest block
        self.timestamps = timestamps  # of each block in the copy, if replicas are split into blocks
        self.original = original  # the copy that `stamped` was called on: the mailbox is stored for as long as that lives

    def stamped(self, clocks: Sequence[int]) -> "Copy":
        """Return the same parameters with newer `clocks`, one for each block. Raises FredError if one is older."""
        if any(clock < old for old, clock in zip(self._clocks(len(clocks)), clocks, strict=False)):
            raise FredError(
                f"a copy read at clock {self.timestamp} is stamped with clock {min(clocks)}; expected no older clock"
            )
        timestamps = dict(enumerate(clocks)) if self.timestamps else NOT_SPLIT
        return Copy(self.mailbox, min(clocks), timestamps, self.original or self)

    def _clocks(self, blocks: int) -> list[int]:
        """Return the clocks of the first `blocks` blocks; 0 for blocks that the copy lacks."""
        return [self.timestamps.get(block, 0) for block in range(blocks)] if self.timestamps else [self.timestamp]

    def at(self, block: int) -> int:
        """Return the clock of `block` when it was read. Raises FredError if the copy lacks that block."""
        if not self.timestamps:
            return self.timestamp
        if block not in self.timestamps:
            raise FredError(f"a copy of block {', '.join(map(str, self.timestamps))} is used where block {block} is needed")
        return self.timestamps[block]

    def incomplete(self, blocks: int) -> FredError:
        """Return the error for a copy that is used as a whole model of `blocks` blocks but lacks some of them."""
        return FredError(
            f"a copy of block {', '.join(map(str, self.timestamps))} stands for a whole model, which has {blocks} blocks: "
            "`compose` copies of all of them"
        )


class Gradient:
    """A gradient that is being computed or is not used yet; or the pseudo-gradient of local steps.

    Args:
        worker: the worker that computes it.
        step: number of gradients that the worker began before; identifies its minibatch.
        copy: the parameters at which it is computed.
        begin, end: start and end of its computation, ns.
        source: of a pseudo-gradient: the model before the local steps.

    Protocols get theirs from `Simulation.compute`, and wait for `finished`; a finished one looks like this:
        >>> import fred
        >>> gradient = fred.Gradient(worker=2, step=0, copy=fred.Copy(0, 0), begin=0, end=1_500_000_000)
        >>> gradient.ready_at(block=0), gradient.applied
        (1500000000, False)
        >>> print(gradient.unfinished(now=1_000_000_000, block=0))
        worker 2's gradient 0 is used at 1 s, before it is finished at 1.5 s: the protocol must wait for its `finished` first
    """

    __slots__ = (
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
        "worker",
    )

    def __init__(self, worker: int, step: int, copy: Copy, begin: int, end: int, source: Copy | None = None):
        self.worker = worker
        self.step = step  # the worker's count of gradients; NONE: a pseudo-gradient
        self.copy = copy  # where it is computed; of a pseudo-gradient, the model after the local steps
        self.source = source  # of a pseudo-gradient: the model before the local steps
        self.begin, self.end = begin, end  # ns
        self.ready: tuple[int, ...] = ()  # ns, when each block of it is finished, unless all are at the end
        self.finished: Any = None  # the event that the protocol waits for
        self.sent = USUAL_COSTS  # bytes and messages for blocks that differ from the usual
        self.applied = False  # whether it took part in an update
        self.dropped = False  # dropped without effect
        self.due = 1  # number of rows still needed about it, as far as known
        self.underway = False  # True once any of it has been sent to servers

    def ready_at(self, block: int) -> int:
        """Return the time (ns) from which a `block` of it can be used."""
        return self.ready[block] if self.ready else self.end

    def unfinished(self, now: int, block: int) -> FredError:
        """Return the error for a `block` of it that is used too early, at `now`, ns."""
        return FredError(
            f"worker {self.worker}'s gradient {self.step} is used at {now / NANOSECONDS:g} s, before it is finished at "
            f"{self.ready_at(block) / NANOSECONDS:g} s: the protocol must wait for its `finished` first"
        )
