"""Selection among several trainings and objectives, by closed-loop results in held-out rounds."""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fred.cluster.contention import NodeOf
from fred.prediction.closed_loop import split
from fred.prediction.contract import By, CutoffRule, Objective, Progress
from fred.prediction.deep.learning import Learner, learn
from fred.prediction.deep.saved import Trained
from fred.prediction.held_back import held_back
from fred.prediction.hmm import HMM

OBJECTIVES: tuple[Objective, Objective] = ("throughput", "round")
_FEWEST = 8  # iterations needed to train
SHARES = (0.5, 1.0)  # candidate weights of the hidden Markov model in the prediction


class Candidate(Learner, Protocol):
    """A rule that can be trained several times and evaluated."""

    @property
    def restarts(self) -> int:
        """Return the number of trainings, of which the best is used."""

    @property
    def warm_up(self) -> int:
        """Return the number of first rounds that wait for all workers."""

    @property
    def by(self) -> By | None:
        """Return the option `by`: the end of a round; None: not given."""

    @property
    def alone(self) -> bool:
        """Return True if no hidden Markov model is mixed in."""

    def of(self, trained: Trained) -> CutoffRule:
        """Return the rule with this model."""

    def unwatched(self) -> "Candidate":
        """Return the rule without its fallback."""


def best(rule: Candidate, seconds: NDArray[np.float64], node_of: NodeOf, progress: Progress = lambda share: None) -> Trained:
    """Return the best of the rule's trainings on the first three quarters of complete rounds, s [iterations, workers].

    Every training runs in closed loop on the last quarter, as it will be used. If the rule gives no objective, it runs with
    either. The training with the most gradients per second wins, and its result is stored with it.

    For the variant `shared` two more choices are made in the same way. The first, unless `alone` is set, is how much weight
    a hidden Markov model of the same rounds gets. Where regimes change at random, that model knows all that can be known,
    and the deep model only most of it. The second is whether rounds end by a deadline alone: among many workers, a few more
    than expected finish by then. Raises ValueError for too few rounds.
    """
    if len(seconds) < _FEWEST:
        raise ValueError(f"a deep Markov model needs at least {_FEWEST} iterations, not {len(seconds)}")
    early, _ = split(seconds)
    unwatched = rule.unwatched()

    def judged(model: Trained) -> Trained:
        return model.but(held_back=held_back(unwatched.of(model), seconds, node_of, rule.warm_up))

    models = []
    for restart in range(rule.restarts):
        trained = learn(rule, early, node_of, _part(progress, restart, rule.restarts), restart)
        objectives = (rule.objective,) if rule.objective else OBJECTIVES
        models += [judged(trained.but(objective=objective)) for objective in objectives]
    deep = max(models, key=_ratio)
    if rule.variant != "shared":
        return deep
    if rule.alone:
        return _ended(rule, deep, judged)
    plainer = HMM().trained(early, node_of)
    mixed = max((deep, *(judged(deep.beside(plainer, share)) for share in SHARES)), key=_ratio)
    return _ended(rule, mixed, judged)


def _ended(rule: Candidate, model: Trained, judged: Callable[[Trained], Trained]) -> Trained:
    """Return the better of the model and the model with deadlines alone, unless the rule's `by` is given."""
    return model if rule.by else max((model, judged(model.but(by="deadline"))), key=_ratio)


def _ratio(model: Trained) -> float:
    return model.about.held_back.ratio if model.about.held_back else 0.0


def _part(progress: Progress, number: int, of: int) -> Progress:
    """Return the progress callback of one of several parts."""
    return lambda share: progress((number + share) / of)
