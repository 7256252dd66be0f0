"""What is held back of the rounds to train on, and how a rule is run there: in closed loop, as it will be used."""

import numpy as np
from numpy.typing import NDArray

from fred.cluster.contention import NodeOf
from fred.prediction import closed_loop
from fred.prediction.closed_loop import Rounds
from fred.prediction.contract import CutoffRule, Progress

Seconds = NDArray[np.float64]


def split(seconds: Seconds) -> tuple[Seconds, Seconds]:
    """The first three quarters of rounds, to learn from, and the last quarter, to validate on.

    The quarter is rounded up, so that of two rounds or more neither part is empty. Raises ValueError for fewer.

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
    """A rule in closed loop on the last quarter of rounds, of which it has learnt nothing.

    It warms up in the last rounds before it, in which all are waited for, so that the quarter counts whole. Raises
    ValueError if the rule cannot work there.

    Args:
        rule: trained on the first three quarters.
        seconds: all that there was to train on, s [iterations, workers], at least two rounds.
        node_of: number of the node that each worker is on [workers].
        warm_up: rounds, at most.
        progress: told the share that is done.
    """
    early = len(split(seconds)[0])
    before = min(warm_up, early)
    return closed_loop.run(closed_loop.warmed_up(rule, before), seconds[early - before :], node_of, before, progress)
