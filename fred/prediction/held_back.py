"""Evaluation of a trained rule in held-out rounds, against the best fixed count."""

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from fred.base.intervals import Ratio
from fred.cluster.contention import NodeOf
from fred.components.component import Count
from fred.prediction import closed_loop
from fred.prediction.closed_loop import split
from fred.prediction.contract import CutoffRule
from fred.prediction.fixed import FixedCount

Positive = Annotated[float, Field(gt=0)]


class HeldBack(BaseModel):
    """The result of a trained rule in the last quarter of rounds, against the best fixed count of the first three.

    >>> HeldBack(rounds=100, static=24, ratio=1.05, interval=(1.02, 1.08)).doubt
    >>> HeldBack(rounds=20, static=24, ratio=1.05, interval=(0.97, 1.14)).doubt
    '20 rounds held back cannot tell it from always waiting for 24 workers (+5.0%, 95% interval -3.0% to +14.0%)'
    >>> HeldBack(rounds=90, static=24, ratio=0.9, interval=(0.8, 0.95)).worse
    True
    """

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    rounds: Count  # in the last quarter
    static: Count  # number of workers that the fixed count waits for
    ratio: Positive  # of the two throughputs
    interval: tuple[Positive, Positive] | None  # 95 % interval of the ratio; None: too few rounds

    @property
    def against_static(self) -> Ratio:
        """Return the ratio with its interval."""
        return Ratio(self.ratio, *(self.interval or (0.0, float("inf"))))

    @property
    def worse(self) -> bool:
        """Return True if the rule is significantly worse."""
        return self.against_static.below

    @property
    def doubt(self) -> str | None:
        """Return a warning in words, or None if the rule is significantly better."""
        other = f"always waiting for {self.static} workers ({self.against_static})"
        if self.worse:
            return f"in {self.rounds} rounds held back it was worse than {other}"
        if self.against_static.above:
            return None
        return f"{self.rounds} rounds held back cannot tell it from {other}"


def held_back(
    rule: CutoffRule,
    seconds: NDArray[np.float64],
    node_of: NodeOf,
    warm_up: int = closed_loop.WARM_UP,
) -> HeldBack:
    """Run a trained rule in closed loop on the last quarter of rounds, s [iterations, workers], which training did not use.

    Both rules warm up in the last rounds before the quarter, which wait for all workers. So all rounds of the quarter
    count. Raises ValueError if the rule cannot work there.

    Args:
        rule: rule trained on the first three quarters.
        seconds: all rounds available for training, s [iterations, workers], at least two rounds.
        node_of: node number of each worker [workers].
        warm_up: maximum number of warm-up rounds.
    """
    static = FixedCount().trained(split(seconds)[0], node_of)
    assert static.workers is not None
    fixed = closed_loop.run_held_out(static, seconds, node_of, warm_up)
    own = closed_loop.run_held_out(rule, seconds, node_of, warm_up)
    found = own.against(fixed)
    return HeldBack(rounds=len(own.cutoff), static=static.workers, ratio=found.value, interval=found.interval)
