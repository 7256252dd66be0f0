"""Which of several trainings is used, and for which objective: what rounds held back say, in closed loop."""

from itertools import product
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fred.cluster.contention import NodeOf
from fred.prediction import closed_loop
from fred.prediction.contract import CutoffRule, Objective, Progress
from fred.prediction.deep.learning import Learner, learn
from fred.prediction.deep.saved import Trained

OBJECTIVES: tuple[Objective, Objective] = ("throughput", "round")
_FEWEST = 20  # rounds held back that something can be chosen by
_TRYING = 0.1  # of the time that a training and its trial take


class Candidate(Learner, Protocol):
    """A rule that can be trained several times, and tried."""

    @property
    def objective(self) -> Objective | None:
        """None: chosen here."""

    @property
    def restarts(self) -> int:
        """Trainings, of which the best is kept."""

    @property
    def warm_up(self) -> int:
        """First rounds, in which all are waited for."""

    def of(self, trained: Trained, objective: Objective) -> CutoffRule:
        """The rule with this model."""


def best(rule: Candidate, seconds: NDArray[np.float64], node_of: NodeOf, progress: Progress) -> Trained:
    """The best of the rule's trainings on the first three quarters of complete rounds, s [iterations, workers].

    Each is run on the last quarter in closed loop, as it will be used, for either objective, and what has the most gradients per
    second is kept. Where nothing can be chosen, by the rule's options or for want of rounds, all iterations are learnt from.
    Raises ValueError for too few of them.
    """
    learnt = 3 * len(seconds) // 4
    objectives = OBJECTIVES if rule.objective is None else (rule.objective,)
    if len(seconds) - learnt < _FEWEST or (rule.restarts == 1 and len(objectives) == 1):
        return learn(rule, seconds, node_of, progress, objective=objectives[-1])
    before = min(rule.warm_up, learnt)
    found: list[tuple[float, Trained]] = []
    for restart in range(rule.restarts):

        def told(share: float, restart: int = restart) -> None:
            progress((restart + share * (1 - _TRYING)) / rule.restarts)

        trained = learn(rule, seconds[:learnt], node_of, told, restart)
        for objective in objectives:
            model = trained.chosen(objective)
            rounds = closed_loop.run(rule.of(model, objective), seconds[learnt - before :], node_of, before)
            found.append((rounds.summary()["throughput"], model))
    progress(1.0)
    return max(found, key=lambda each: each[0])[1]
