"""Predicting rules that fall back on averages of recent times while these do better."""

from typing import Self

import numpy as np
from pydantic import PrivateAttr

from fred.cluster.contention import NodeOf
from fred.prediction.contract import Chooser
from fred.prediction.ewma import EWMA
from fred.prediction.following import Following
from fred.prediction.predictive import Predictive, Predictor

_FIRST = np.array([0.99, 0.01])  # initial weights of the model and of the averages


class Watched(Predictive):
    """A rule whose model may be wrong for a changing cluster; `ewma` of nodes takes over while it does better."""

    _watched: bool = PrivateAttr(True)

    def unwatched(self) -> Self:
        """Return the rule with its model alone, without the fallback on averages."""
        copy = self.model_copy()
        copy._watched = False
        return copy

    def beside_averages(self, model: Predictor, node_of: NodeOf, seed: int = 0) -> Chooser:
        """Return a chooser that follows the model as long as averages do no better.

        Args:
            model: predictor of the model.
            node_of: node number of each worker [workers].
            seed: seed of the draws.
        """
        averages = EWMA(objective=self.objective, at_least=self.at_least).start(node_of)
        return Following((model, averages), _FIRST, len(node_of), None, (seed, "watched"), first=0)
