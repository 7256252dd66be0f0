"""Which of several trainings is used, and for which objective: what rounds held back say, in closed loop."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fred.cluster.contention import NodeOf
from fred.prediction.contract import CutoffRule, Objective, Progress
from fred.prediction.deep.learning import Learner, learn
from fred.prediction.deep.saved import Trained
from fred.prediction.held_back import held_back
from fred.prediction.validation import split

OBJECTIVES: tuple[Objective, Objective] = ("throughput", "round")


class Candidate(Learner, Protocol):
    """A rule that can be trained several times, and tried."""

    @property
    def restarts(self) -> int:
        """Trainings, of which the best is kept."""

    @property
    def warm_up(self) -> int:
        """First rounds, in which all are waited for."""

    def of(self, trained: Trained) -> CutoffRule:
        """The rule with this model."""


def best(rule: Candidate, seconds: NDArray[np.float64], node_of: NodeOf, progress: Progress = lambda share: None) -> Trained:
    """The best of the rule's trainings on the first three quarters of complete rounds, s [iterations, workers].

    Each is run on the last quarter in closed loop, as it will be used, for either objective if the rule has none, and the one
    with the most gradients per second is kept, with what it came to there. Raises ValueError for too few rounds.
    """
    early, models = split(seconds)[0], []
    for restart in range(rule.restarts):
        trained = learn(rule, early, node_of, _part(progress, restart, rule.restarts), restart)
        models += [trained.aiming_at(objective) for objective in ((rule.objective,) if rule.objective else OBJECTIVES)]
    found = [held_back(rule.of(model), seconds, node_of, rule.warm_up) for model in models]
    chosen = int(np.argmax([each.ratio for each in found]))
    return models[chosen].judged(found[chosen])


def _part(progress: Progress, number: int, of: int) -> Progress:
    """Progress of one of several parts."""
    return lambda share: progress((number + share) / of)
