"""What the replay and the interpreter have to agree on before they compute: which functions to call, how large a batch is."""

from typing import NamedTuple


class Hooks(NamedTuple):
    """Which of a server's functions are its own, and have to be called: the others only name what is there."""

    sends: bool = False
    remembers: bool = False
    contributes: bool = False
    publishes: bool = False
    synchronizes: bool = False

    @property
    def plain(self) -> bool:
        """Whether messages are gradients and rounds are their sums, so that a round can be one batch."""
        return not (self.sends or self.remembers or self.contributes or self.publishes)


def padded(members: int, workers: int) -> int:
    """Size of the flat batch in which a round of `members` gradients is computed: one of at most 8 sizes up to `workers`."""
    step = -(-workers // 8)
    return max(members, min(-(-members // step) * step, workers))
