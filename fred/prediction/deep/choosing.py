"""Which of several trainings is used, and for which objective: what rounds held back say, in closed loop."""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fred.cluster.contention import NodeOf
from fred.prediction.contract import By, CutoffRule, Objective, Progress
from fred.prediction.deep.learning import Learner, learn
from fred.prediction.deep.saved import Trained
from fred.prediction.held_back import held_back
from fred.prediction.hmm import HiddenMarkov
from fred.prediction.validation import split

OBJECTIVES: tuple[Objective, Objective] = ("throughput", "round")
_FEWEST = 8  # iterations that something can be learnt from
SHARES = (0.5, 1.0)  # of the plainer model in what is expected


class Candidate(Learner, Protocol):
    """A rule that can be trained several times, and tried."""

    @property
    def restarts(self) -> int:
        """Trainings, of which the best is kept."""

    @property
    def warm_up(self) -> int:
        """First rounds, in which all are waited for."""

    @property
    def by(self) -> By | None:
        """What ends a round; none: not said."""

    @property
    def alone(self) -> bool:
        """Whether no hidden Markov model is mixed in."""

    def of(self, trained: Trained) -> CutoffRule:
        """The rule with this model."""

    def unwatched(self) -> "Candidate":
        """The rule as the model has it."""


def best(rule: Candidate, seconds: NDArray[np.float64], node_of: NodeOf, progress: Progress = lambda share: None) -> Trained:
    """The best of the rule's trainings on the first three quarters of complete rounds, s [iterations, workers].

    Each is run on the last quarter in closed loop, as it will be used, for either objective if the rule has none, and the one
    with the most gradients per second is kept, with what it came to there. So is then how much of what a hidden Markov model of
    the same rounds expects is mixed in: where regimes come and go by chance it knows all that can be known, and the deep model
    only most of it. So is at last whether rounds end by time alone: among many workers a few more than were expected are there
    by then. Raises ValueError for too few rounds.
    """
    if len(seconds) < _FEWEST:
        raise ValueError(f"a deep Markov model needs at least {_FEWEST} iterations, not {len(seconds)}")
    early, _ = split(seconds)
    unwatched = rule.unwatched()

    def judged(model: Trained) -> Trained:
        return model.judged(held_back(unwatched.of(model), seconds, node_of, rule.warm_up))

    models = []
    for restart in range(rule.restarts):
        trained = learn(rule, early, node_of, _part(progress, restart, rule.restarts), restart)
        objectives = (rule.objective,) if rule.objective else OBJECTIVES
        models += [judged(trained.aiming_at(objective)) for objective in objectives]
    deep = max(models, key=_ratio)
    if rule.variant != "shared":
        return deep
    if rule.alone:
        return _ended(rule, deep, judged)
    plainer = HiddenMarkov().trained(early, node_of)
    mixed = max((deep, *(judged(deep.beside(plainer, share)) for share in SHARES)), key=_ratio)
    return _ended(rule, mixed, judged)


def _ended(rule: Candidate, model: Trained, judged: Callable[[Trained], Trained]) -> Trained:
    """The model, or the same with rounds that end by time alone, if the rule does not say and that is better."""
    return model if rule.by else max((model, judged(model.waiting("deadline"))), key=_ratio)


def _ratio(model: Trained) -> float:
    return model.about.held_back.ratio if model.about.held_back else 0.0


def _part(progress: Progress, number: int, of: int) -> Progress:
    """Progress of one of several parts."""
    return lambda share: progress((number + share) / of)
