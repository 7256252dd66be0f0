"""The cost of a remedy: it drops gradients of some workers, whose data then count less.

The effective number of workers follows Kish's design effect, (sum of u)^2 / sum of u^2, where u is the used share of each
worker's gradients [Kish 1965, Survey Sampling]. It is 10 if ten workers count equally, and 5 if five of them count for
nothing.
"""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from fred.diagnosis.remedies import Remedy

EXCLUDED = 0.05  # used share of gradients below which a worker might as well be switched off
RARE = 0.5  # used share of gradients below which a worker's data count for little


@dataclass(frozen=True, eq=False)
class Fairness:
    """The share of each worker's gradients that a remedy uses.

    Args:
        remedy: remedy that uses them.

    Here two of four workers are always late:

        >>> import numpy as np
        >>> from fred.diagnosis.remedies import backups
        >>> found = Fairness(backups(np.tile([1.0, 1.1, 5.0, 6.0], (9, 1)), 2))
        >>> found.effective, found.excluded, found.same, found.dropped
        (2.0, [2, 3], 1.0, 0.5)
    """

    remedy: Remedy

    @cached_property
    def effective(self) -> float:
        """Return the effective number of workers."""
        used = self.remedy.used
        return float(used.sum() ** 2 / (used**2).sum())

    @cached_property
    def excluded(self) -> list[int]:
        """Return the workers with less than 5 % of their gradients used."""
        return [worker for worker, used in enumerate(self.remedy.used.tolist()) if used < EXCLUDED]

    @cached_property
    def rare(self) -> list[int]:
        """Return the workers with between 5 % and half of their gradients used."""
        return [worker for worker, used in enumerate(self.remedy.used.tolist()) if EXCLUDED <= used < RARE]

    @cached_property
    def dropped(self) -> float:
        """Return the share of all computed gradients that is dropped."""
        return 0.0 if self.remedy.taken is None else float(1 - self.remedy.taken.mean())

    @cached_property
    def same(self) -> float:
        """Return the share of rounds that take the most frequent set of fewer than all workers; 0 without one."""
        if self.remedy.taken is None:
            return 0.0
        rows = Counter(row.tobytes() for row in self.remedy.taken if not row.all())
        return max(rows.values(), default=0) / len(self.remedy.taken)
