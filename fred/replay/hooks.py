"""Facts that the replay and the interpreter must agree on: which functions to call, and the sizes of batches."""

from typing import NamedTuple


class Hooks(NamedTuple):
    """The functions that a server overrides, which have to be called: the default ones change nothing."""

    sends: bool = False
    remembers: bool = False
    contributes: bool = False
    publishes: bool = False
    synchronizes: bool = False
    unbatched: bool = False  # a round's gradients are computed one by one: they take long, or minibatches differ in size

    @property
    def batchable(self) -> bool:
        """Return True if messages are gradients and rounds are their sums, so that a round can be one batch."""
        return not (self.sends or self.remembers or self.contributes or self.publishes)


def padded(members: int, workers: int) -> int:
    """Return the batch size for a round of `members` gradients: one of at most 8 sizes up to `workers`."""
    step = -(-workers // 8)
    return max(members, min(-(-members // step) * step, workers))
