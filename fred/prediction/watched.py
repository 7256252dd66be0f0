"""A model that is left while averages of recent times do better."""

from typing import Self

import numpy as np
from pydantic import PrivateAttr

from fred.cluster.contention import NodeOf
from fred.prediction.contract import Chooser
from fred.prediction.ewma import EWMA
from fred.prediction.following import Following
from fred.prediction.predictive import Predictive, Predictor

_FIRST = np.array([0.99, 0.01])  # weights of the model, and of the averages


class Watched(Predictive):
    """A rule whose model may be wrong of a cluster that changes: `ewma` of nodes is followed instead while that does better."""

    _watched: bool = PrivateAttr(True)

    def unwatched(self) -> Self:
        """Return the rule as its model has it, without the averages beside it."""
        copy = self.model_copy()
        copy._watched = False
        return copy

    def beside_averages(self, model: Predictor, node_of: NodeOf, seed: int = 0) -> Chooser:
        """Return a chooser that follows the model as long as averages do no better.

        Args:
            model: at work.
            node_of: number of the node that each worker is on [workers].
            seed: of draws.
        """
        averages = EWMA(objective=self.objective, at_least=self.at_least).start(node_of)
        return Following((model, averages), _FIRST, len(node_of), None, (seed, "watched"), first=0)
