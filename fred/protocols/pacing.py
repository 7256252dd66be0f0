"""Local steps in proportion to workers' speeds: DyLU [Liu et al. 2024, arXiv:2401.09135]."""

import math
from typing import Annotated, Self

from pydantic import Field, model_validator

from fred.cluster.cluster import Cluster
from fred.components.component import Count
from fred.protocols.protocol import Protocol


class Paced(Protocol):
    """A protocol whose slower workers may make fewer updates before they send, so that all take about as long.

    Speeds are means, without contention. In the paper the fastest worker makes H updates. The published simulator of HALoS
    paces relative to a speed of 1 instead, which no worker needs to have: `pace_seconds`.

    Example: the faster worker makes 4 updates of 0.5 s, the other 4 x 0.5 / 0.9, rounded up to 3.

        >>> import fred
        >>> from fred.protocols.outer_steps import OuterSteps
        >>> cluster = fred.Cluster(workers=2, times=[0.5, 0.9])
        >>> OuterSteps(period=4, paced=True).updates(cluster)
        [4, 3]
        >>> OuterSteps(period=4, paced=True, pace_seconds=0.25).updates(cluster)
        [2, 2]
    """

    period: Count = Field(default=8, description="H: updates of each worker, or with `paced` of the fastest, before it sends")
    paced: bool = Field(
        default=False, description="whether slower workers make fewer updates: H x speed / largest speed, rounded up"
    )
    pace_seconds: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description="seconds per gradient of a worker that makes H updates, if `paced`; absent: the fastest worker's mean",
    )

    @model_validator(mode="after")
    def _paced_at_all(self) -> Self:
        if self.pace_seconds is not None and not self.paced:
            raise ValueError("`pace_seconds` needs `paced: true`")
        return self

    def updates(self, cluster: Cluster) -> list[int]:
        """Return the number of updates that each worker makes before it sends.

        Args:
            cluster: the cluster, whose mean compute times determine the speeds.
        """
        rates = cluster.worker_rates()
        if not self.paced:
            return [self.period] * len(rates)
        pace = max(rates) if self.pace_seconds is None else 1 / self.pace_seconds
        return [max(1, math.ceil(self.period * rate / pace - 1e-9)) for rate in rates]
