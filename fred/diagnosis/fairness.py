"""The cost of a remedy: the workers whose gradients it drops, and whose data so count for little.

The effective number of workers is that of Kish's design effect, (sum of u)^2 / sum of u^2, with u the part of each worker's
gradients that is used [Kish 1965, Survey Sampling]: 10 where ten workers count alike, 5 where five of them count for nothing.
"""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from fred.diagnosis.remedies import Remedy

GIVEN_UP = 0.05  # part of a worker's gradients, below which it may as well be switched off
RARE = 0.5  # likewise, below which its data count for little


@dataclass(frozen=True, eq=False)
class Fairness:
    """The part of each worker's gradients that a remedy uses.

    Args:
        remedy: that uses them.

    Two of four workers are always late:

        >>> import numpy as np
        >>> from fred.diagnosis.remedies import backups
        >>> found = Fairness(backups(np.tile([1.0, 1.1, 5.0, 6.0], (9, 1)), 2))
        >>> found.effective, found.given_up, found.same, found.dropped
        (2.0, [2, 3], 1.0, 0.5)
    """

    remedy: Remedy

    @cached_property
    def effective(self) -> float:
        """Return the effective number of workers."""
        used = self.remedy.used
        return float(used.sum() ** 2 / (used**2).sum())

    @cached_property
    def given_up(self) -> list[int]:
        """Return the workers of whose gradients fewer than 5 % are used."""
        return [worker for worker, used in enumerate(self.remedy.used.tolist()) if used < GIVEN_UP]

    @cached_property
    def rare(self) -> list[int]:
        """Return the workers of whose gradients between 5 % and a half are used."""
        return [worker for worker, used in enumerate(self.remedy.used.tolist()) if GIVEN_UP <= used < RARE]

    @cached_property
    def dropped(self) -> float:
        """Return the share of all computed gradients that is dropped."""
        return 0.0 if self.remedy.taken is None else float(1 - self.remedy.taken.mean())

    @cached_property
    def same(self) -> float:
        """Return the share of rounds that take the same workers, the most frequent choice of fewer than all; 0 without one."""
        if self.remedy.taken is None:
            return 0.0
        rows = Counter(row.tobytes() for row in self.remedy.taken if not row.all())
        return max(rows.values(), default=0) / len(self.remedy.taken)
