"""Whether rounds held back from training tell a trained rule from the best that always waits for the same number."""

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from fred.cluster.contention import NodeOf
from fred.components.component import Count
from fred.prediction import closed_loop, validation
from fred.prediction.contract import CutoffRule, Progress
from fred.prediction.fixed import FixedCount
from fred.prediction.intervals import Ratio, ratio
from fred.prediction.validation import split

Positive = Annotated[float, Field(gt=0)]


class HeldBack(BaseModel):
    """What a trained rule came to in the last quarter, against the best static cutoff of the first three.

    >>> HeldBack(rounds=100, static=24, ratio=1.05, interval=(1.02, 1.08)).doubt
    >>> HeldBack(rounds=20, static=24, ratio=1.05, interval=(0.97, 1.14)).doubt
    '20 rounds held back cannot tell it from always waiting for 24 workers (+5.0%, 95% interval -3.0% to +14.0%)'
    >>> HeldBack(rounds=90, static=24, ratio=0.9, interval=(0.8, 0.95)).worse
    True
    """

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    rounds: Count  # of the last quarter
    static: Count  # workers that the other rule always waits for
    ratio: Positive  # of the throughputs
    interval: tuple[Positive, Positive] | None  # 95 %, of the ratio; none of too few rounds

    @property
    def against_static(self) -> Ratio:
        """The ratio with its interval."""
        return Ratio(self.ratio, *(self.interval or (0.0, float("inf"))))

    @property
    def worse(self) -> bool:
        """Whether the rule is told worse."""
        return self.against_static.below

    @property
    def doubt(self) -> str | None:
        """In words, what speaks against the rule; nothing, if it is told better."""
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
    progress: Progress = lambda share: None,
) -> HeldBack:
    """Run a trained rule in closed loop on the last quarter of rounds, s [iterations, workers], of which it has learnt nothing.

    Both rules warm up in the last rounds before it, in which all are waited for, so that the quarter counts whole. Raises
    ValueError if the rule cannot work there.

    Args:
        rule: trained on the first three quarters.
        seconds: all that there was to train on [iterations, workers], at least two rounds.
        node_of: number of the node that each worker is on [workers].
        warm_up: rounds, at most.
        progress: told the share that is done.
    """
    static = FixedCount().trained(split(seconds)[0], node_of)
    assert static.workers is not None
    fixed = validation.run(static, seconds, node_of, warm_up)
    own = validation.run(rule, seconds, node_of, warm_up, progress)
    found = ratio(own, fixed)
    return HeldBack(rounds=len(own.cutoff), static=static.workers, ratio=found.value, interval=found.interval)
