"""The one number that would have been best on recorded rounds [Chen et al. 2016, Revisiting distributed synchronous SGD]."""

from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fred.cluster.contention import NodeOf
from fred.components.component import Count
from fred.prediction.contract import Chooser, CutoffRule, Objective, Progress, StaticCutoff


class BestStatic(CutoffRule):
    """The same number in every round, the best one of the rounds that it was trained on.

    Of four workers the last is always late; three gradients in 2.4 s are more per second than any other number:

        >>> import numpy as np
        >>> from fred.prediction.best_static import BestStatic
        >>> seconds = np.array([[1.0, 1.1, 1.2, 4.0], [1.1, 4.5, 1.0, 1.2]])
        >>> BestStatic().trained(seconds, node_of=np.zeros(4, np.int64)).workers
        3
    """

    objective: Objective = Field("throughput", description="what was best: the mean of c / x_(c), or sum c / sum x_(c)")
    workers: Count | None = Field(None, description="c, what training found", examples=[1])

    def start(self, node_of: NodeOf) -> Chooser:
        if self.workers is None:
            raise ValueError("`best-static` must be trained first (`fred cutoffs` does), or `workers` be given")
        return StaticCutoff(workers=self.workers).start(node_of)

    def trained(self, seconds: NDArray[np.float64], node_of: NodeOf, progress: Progress = lambda share: None) -> Self:
        """The rule with the best number for `seconds` [iterations, workers]; `node_of` makes no difference."""
        if len(seconds) == 0:
            raise ValueError("no iterations to find the best static cutoff of")
        ordered = np.sort(seconds, axis=1)
        counts = np.arange(1, seconds.shape[1] + 1)
        if self.objective == "throughput":
            rates = counts / np.add.reduce(ordered, axis=0)
        else:
            rates = np.add.reduce(counts / ordered, axis=0)
        progress(1.0)
        return self.model_copy(update={"workers": 1 + int(np.argmax(rates))})
