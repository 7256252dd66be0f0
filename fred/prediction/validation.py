"""Hold-out validation: split rounds into a training and a held-out part, and run a rule in closed loop on the latter."""

import numpy as np
from numpy.typing import NDArray

from fred.cluster.contention import NodeOf
from fred.prediction import closed_loop
from fred.prediction.closed_loop import Rounds
from fred.prediction.contract import CutoffRule, Progress

Seconds = NDArray[np.float64]


def split(seconds: Seconds) -> tuple[Seconds, Seconds]:
    """Split rounds into the first three quarters, for training, and the last quarter, for validation.

    The last quarter is rounded up, so neither part is empty for two rounds or more. Raises ValueError for fewer.

    Args:
        seconds: compute times, s [iterations, workers].

    >>> [len(part) for part in split(np.ones((15, 2)))], [len(part) for part in split(np.ones((2, 2)))]
    ([11, 4], [1, 1])
    """
    if len(seconds) < 2:
        raise ValueError(f"{len(seconds)} iterations: at least 2 are needed to hold some of them back")
    early = 3 * len(seconds) // 4
    return seconds[:early], seconds[early:]


def run(
    rule: CutoffRule,
    seconds: Seconds,
    node_of: NodeOf,
    warm_up: int = closed_loop.WARM_UP,
    progress: Progress = lambda share: None,
) -> Rounds:
    """Run a rule in closed loop on the last quarter of rounds, which its training did not use.

    The rule warms up in the last rounds before the quarter, which wait for all workers. So all rounds of the quarter count.
    Raises ValueError if the rule cannot work there.

    Args:
        rule: rule trained on the first three quarters.
        seconds: all rounds available for training, s [iterations, workers], at least two rounds.
        node_of: node number of each worker [workers].
        warm_up: maximum number of warm-up rounds.
        progress: called with the share that is done.
    """
    early = len(split(seconds)[0])
    before = min(warm_up, early)
    return closed_loop.run(closed_loop.warmed_up(rule, before), seconds[early - before :], node_of, before, progress)
