"""The precision at which a scenario stops adding seeds."""

import math
from typing import Annotated

from pydantic import Field

from fred.components.component import Component

FIRST_LOOK = 10  # seeds; looking earlier costs coverage (`results/studies/coverage.md`)
_MORE = 1.5  # factor on the number of seeds between two looks


class Until(Component):
    """When to stop adding seeds: once all runs are compared precisely, or at a limit.

    A run is compared with the baseline by the time to the target, else by the loss, else by the throughput. The precision is
    half of the 95 % interval, relative to the baseline. Stopping costs coverage, since chance makes some intervals narrow too
    early: 1 to 2 points where differences are normal, up to 6 where they are skewed.

    >>> until = Until(within=0.05, seeds=40)
    >>> until.after(3), until.after(10), until.after(30), until.after(40)
    (10, 15, 40, 40)
    """

    within: Annotated[float, Field(gt=0, lt=1)] = Field(
        description="half of each interval, relative to the baseline", examples=[0.05]
    )
    seeds: Annotated[int, Field(ge=FIRST_LOOK, le=10_000)] = Field(default=50, description="the largest number of seeds")

    def after(self, count: int) -> int:
        """Return the number of seeds at which precision is looked at next.

        Args:
            count: number of seeds so far.
        """
        return min(self.seeds, max(FIRST_LOOK, math.ceil(_MORE * count)))
