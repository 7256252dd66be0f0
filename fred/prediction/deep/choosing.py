"""Which of several trainings is used, and for which objective: what rounds held back say, in closed loop."""

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

    def of(self, trained: Trained) -> CutoffRule:
        """The rule with this model."""


def best(rule: Candidate, seconds: NDArray[np.float64], node_of: NodeOf, progress: Progress) -> Trained:
    """The best of the rule's trainings on the first three quarters of complete rounds, s [iterations, workers].

    Each is run on the last quarter in closed loop, as it will be used, for either objective, and the one with the most gradients
    per second is kept. Where nothing can be chosen, by the rule's options or for want of rounds, all iterations are learnt from.
    Raises ValueError for too few of them.
    """
    learnt = 3 * len(seconds) // 4
    objectives = OBJECTIVES if rule.objective is None else (rule.objective,)
    if len(seconds) - learnt < _FEWEST or rule.restarts * len(objectives) == 1:
        return learn(rule, seconds, node_of, progress)
    before = min(rule.warm_up, learnt)
    models = []
    for restart in range(rule.restarts):
        done = restart / rule.restarts
        trained = learn(
            rule, seconds[:learnt], node_of, lambda share, done=done: progress(done + share / rule.restarts), restart
        )
        models += [trained.aiming_at(objective) for objective in objectives]
    throughput = [
        closed_loop.run(rule.of(model), seconds[learnt - before :], node_of, before).summary()["throughput"] for model in models
    ]
    return models[int(np.argmax(throughput))]


def _part(progress: Progress, number: int, of: int) -> Progress:
    """Progress of one of several parts."""
    return lambda share: progress((number + share) / of)
