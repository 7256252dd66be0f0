"""Cutoff rules from a deep Markov model of compute times [Teng & Wood 2018; Krishnan, Shalit, Sontag 2017]; loads JAX late.

`train_best` selects among several trainings and objectives by closed-loop results in held-out rounds.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PrivateAttr, ValidationInfo, model_validator

from fred.base import environment
from fred.base.errors import FredError
from fred.base.types import OnProgress
from fred.cluster.contention import NodeOf
from fred.components.component import Count, Natural
from fred.components.input_path import InputPath, UnreadError
from fred.prediction.closed_loop import evaluate_held_out, split_rounds
from fred.prediction.contract import By, Chooser, Objective
from fred.prediction.deep import saved
from fred.prediction.deep.filter import Grid
from fred.prediction.following import Watched
from fred.prediction.hmm import HMM
from fred.prediction.predictive import Predictor

if TYPE_CHECKING:
    from jax import Array

    from fred.prediction.deep.filter import Belief, Constants, Filter

OBJECTIVES: tuple[Objective, Objective] = ("throughput", "round")
SHARES = (0.5, 1.0)  # candidate weights of the hidden Markov model in the prediction
_FEWEST_ITERATIONS = 8  # iterations needed to train
_PACE_WEIGHT = 25  # weight of the trace's pace, in rounds, for the objective `throughput`
_FACTOR = 2.0  # the normaliser in mean times, as printed


class DMM(Watched):
    """A deep Markov model with weights shared among workers, a state per node, and joint imputation of dropped workers.

    One small network sees a worker's own history, its node's summary and the cluster's. So a model trained on one cluster
    also serves another. Times are in units of twice their mean in the first rounds, which wait for all workers. Training
    may mix in a hidden Markov model, or use it alone, if that is better in held-out rounds; `fred train-cutoff` reports the
    choice. A run warns about a model whose network is unused. Averages of recent times (`ewma` of nodes) take over while
    they do better than the model, as in `auto`.

    The states are not Markov, since transition and emission also depend on earlier observations. Training maximises, next
    to a lower bound of the likelihood (ELBO), the predictions of every round (docs/errata.md, item 2).
    """

    variant: ClassVar[saved.Variant] = "shared"
    holds_back: ClassVar[bool] = True

    objective: Objective | None = Field(  # type: ignore[assignment]
        default=None,
        description="quantity to maximise: c / E[x_(c)] of the next round, or c - rho E[x_(c)] of the long run; absent: "
        "chosen in training",
    )
    by: By | None = Field(  # type: ignore[assignment]
        default=None,
        description="what ends a round: `count`, its c-th worker; `deadline`, E[x_(c)]; or the first of both; absent: "
        "the better of the last two in training",
    )
    model: InputPath | None = Field(
        default=None, description="model file (.npz) written by `fred train-cutoff`; absent: the model that comes with FRED"
    )
    digest: str | None = Field(default=None, description="digest of the model; set on loading, and compared if given")
    particles: Count = Field(default=100, description="samples of the next round")
    warm_up: Natural = Field(
        default=20,
        description="number of first rounds, which wait for all workers and set the scale of times; 0: the trace's scale",
    )
    alone: bool = Field(
        default=False, description="use the network alone, without a hidden Markov model or averages to fall back on"
    )
    restarts: int = Field(default=2, ge=1, le=100, description="number of trainings; the best in held-out rounds is used")
    steps: int = Field(default=2000, ge=50, lt=2**31, description="number of training steps")
    learning_rate: float = Field(default=0.01, gt=0, description="Adam's learning rate, after warm-up and before cosine decay")
    window: Count = Field(
        default=60, description="rounds in a training window; if the cluster has a period, more rounds than that"
    )
    seed: Natural = Field(default=0, description="seed of training and of samples")
    _trained: saved.Trained | None = PrivateAttr(None)
    _unread: bool = PrivateAttr(False)  # True in a result, which must be readable without the model's file

    @model_validator(mode="after")
    def _identified(self, info: ValidationInfo) -> Self:
        self._unread = bool((info.context or {}).get("recorded"))
        # Without a model file, a variant is to be trained, or `make golden` is creating the shipped model.
        if self.model is None and (self.variant != "shared" or not saved.SHIPPED.exists()):
            return self
        digest = saved.load_cached(self._file).digest
        if self.digest not in (None, digest):
            raise ValueError(f"{self._model_name} is not the recorded one (its digest differs)")
        object.__setattr__(self, "digest", digest)  # fills in a blank, so the frozen rule stays the same
        return self

    @property
    def _file(self) -> Path:
        if self._unread:
            raise UnreadError(f"{self._model_name} is not read where a result is looked at")
        return self.model.located() if self.model else saved.SHIPPED

    @property
    def _model_name(self) -> str:
        return self.model or "the model that comes with FRED"

    def start(self, node_of: NodeOf) -> Chooser:
        trained = self._trained or self._load()
        trained = trained.without_plainer() if self.alone else trained
        record = trained.record
        if record.variant != "shared" and record.workers != len(node_of):
            raise ValueError(f"the model was trained for {record.workers} workers, not {len(node_of)}")
        if record.variant != self.variant:
            raise ValueError(f"the model is of the variant `{record.variant}`, not `{self.variant}`")
        same_cluster = record.workers == len(node_of) and bool(self.model or self._trained)  # the cluster of the trace
        if record.variant != "shared":
            node_of = np.zeros_like(node_of)
        elif not node_of.any() and same_cluster:
            node_of = np.array(record.nodes)  # the cluster gives no nodes; use those found in the trace
        objective = self.objective or record.objective
        plainer = record.plainer.for_cluster(same_cluster, objective).filter(node_of) if record.plainer else None
        rule = self.model_copy(update={"objective": objective, "by": self.by or record.by})
        predictor = _DeepPredictor(rule, trained, node_of, plainer)
        if self.alone or not self._watched or self.variant != "shared":  # the others are as published
            return predictor
        return self.with_averages(predictor, node_of, objective, self.seed)

    def _load(self) -> saved.Trained:
        if self.model is None and self.variant != "shared":
            raise ValueError("needs `model`: train one with `fred train-cutoff`")
        trained = saved.load_cached(self._file)
        if self.digest not in (None, trained.digest):
            raise ValueError(f"{self._model_name} has changed since it was named")
        return trained

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with other options, which keeps the trained model."""
        if self._trained is None:
            return super().model_copy(update=update, deep=deep)
        # Validation would compare the digest with that of the model file, which this rule does not use.
        return super().model_copy(update={**(update or {}), "digest": None})._set_trained(self._trained)

    def doubts(self) -> tuple[str, ...]:
        try:
            record = (self._trained or self.model_copy()._load()).record  # a copy: a rule of a result does not read its file
        except (FredError, ValueError):  # the model of an old result is gone
            return ()
        if self.alone and record.share:
            return (f"{self._model_name}: its network alone did worse in rounds held back than {record.parts}",)
        doubts = [record.held_back.doubt] if record.held_back and record.held_back.doubt else []
        if record.share == 1:
            doubts.append(f"it is {record.parts}")
        return tuple(f"{self._model_name}: {doubt}" for doubt in doubts)

    def with_model(self, trained: saved.Trained) -> Self:
        """Return the rule with this model."""
        return self.model_copy()._set_trained(trained)

    def _set_trained(self, trained: saved.Trained) -> Self:
        self._trained = trained
        object.__setattr__(self, "digest", trained.digest)
        return self

    def trained(self, seconds: NDArray[np.float64], node_of: NodeOf, progress: OnProgress = lambda share: None) -> Self:
        if self.model is not None or self._trained is not None:  # already trained
            return self
        return self.with_model(train_best(self, seconds, node_of, progress))


class DMMPlain(DMM):
    """A deep Markov model with one output for each worker and one state for all; its guide does not look ahead."""

    variant: ClassVar[saved.Variant] = "plain"

    objective: Objective = Field(
        default="round", description="quantity to maximise: c / E[x_(c)] of the next round, or c - rho E[x_(c)] of the long run"
    )
    by: By = Field(
        default="count", description="what ends a round: `count`, its c-th worker, as published; `deadline`; or both"
    )
    restarts: int = Field(default=1, ge=1, le=100, description="number of trainings; the best in held-out rounds is used")
    steps: int = Field(default=3000, ge=50, lt=2**31, description="number of training steps")
    learning_rate: float = Field(default=5e-3, gt=0, description="Adam's learning rate, after warm-up and before cosine decay")
    window: Count = Field(default=20, description="rounds in a training window")


class DMMPrinted(DMMPlain):
    """The deep Markov model as printed: normal times, a guide that looks ahead, dropped workers imputed one by one.

    It fails to predict: its guide relies on future rounds, which are missing at prediction time (docs/errata.md).
    """

    variant: ClassVar[saved.Variant] = "printed"


def train_best(
    rule: DMM, seconds: NDArray[np.float64], node_of: NodeOf, progress: OnProgress = lambda share: None
) -> saved.Trained:
    """Return the best of the rule's trainings on the first three quarters of complete rounds, s [iterations, workers].

    Every training runs in closed loop on the last quarter, as it will be used. If the rule gives no objective, it runs with
    either. The training with the most gradients per second wins, and its result is stored with it.

    For the variant `shared` two more choices are made in the same way. The first, unless `alone` is set, is how much weight
    a hidden Markov model of the same rounds gets. Where regimes change at random, that model knows all that can be known,
    and the deep model only most of it. The second is whether rounds end by a deadline alone: among many workers, a few more
    than expected finish by then. Raises ValueError for too few rounds.
    """
    if len(seconds) < _FEWEST_ITERATIONS:
        raise ValueError(f"a deep Markov model needs at least {_FEWEST_ITERATIONS} iterations, not {len(seconds)}")
    from fred.prediction.deep.training import learn

    training_rounds, _ = split_rounds(seconds)
    unwatched = rule.unwatched()

    def evaluate(model: saved.Trained) -> saved.Trained:
        return model.with_record(held_back=evaluate_held_out(unwatched.with_model(model), seconds, node_of, rule.warm_up))

    models = []
    for restart in range(rule.restarts):
        trained = learn(rule, training_rounds, node_of, _part(progress, restart, rule.restarts), restart)
        objectives = (rule.objective,) if rule.objective else OBJECTIVES
        models += [evaluate(trained.with_record(objective=objective)) for objective in objectives]
    deep = max(models, key=_ratio)
    if rule.variant != "shared":
        return deep
    if rule.alone:
        return _choose_end(rule, deep, evaluate)
    plainer = HMM().trained(training_rounds, node_of)
    mixed = max((deep, *(evaluate(deep.mixed_with(plainer, share)) for share in SHARES)), key=_ratio)
    return _choose_end(rule, mixed, evaluate)


def _choose_end(rule: DMM, model: saved.Trained, evaluate: Callable[[saved.Trained], saved.Trained]) -> saved.Trained:
    """Return the better of the model and the model with deadlines alone, unless the rule's `by` is given."""
    return model if rule.by else max((model, evaluate(model.with_record(by="deadline"))), key=_ratio)


def _ratio(model: saved.Trained) -> float:
    return model.record.held_back.ratio if model.record.held_back else 0.0


def _part(progress: OnProgress, number: int, parts: int) -> OnProgress:
    """Return the progress callback of one of several equal parts."""
    return lambda share: progress((number + share) / parts)


class _DeepPredictor(Predictor):
    """A filter at work, in units of twice the first rounds' mean time."""

    def __init__(self, rule: DMM, trained: saved.Trained, node_of: NodeOf, plainer: Predictor | None):
        super().__init__(rule, len(node_of))
        self._plainer, self._share = plainer, trained.record.share  # weight of the plainer model in the prediction
        self._trained, self._grid, self._particles = trained, Grid(node_of), rule.particles
        self._warm_up, self._seed, self._rounds = rule.warm_up, rule.seed, 0
        self._first: list[tuple[NDArray[np.float64], NDArray[np.bool_]]] = []  # rounds before the normaliser is known
        self._running: _Running | None = None  # from when it is known on

    def learn(self, seconds: NDArray[np.float64], finished: NDArray[np.bool_]) -> None:
        if self._plainer:
            self._plainer.learn(seconds, finished)
        self._rounds += 1
        self._ready = self._rounds >= self._warm_up
        if self._rounds > self._warm_up:
            self._update_belief(seconds, finished)
            return
        self._first.append((seconds, finished))
        if self._rounds == self._warm_up:
            level = math.fsum(np.concatenate([seconds for seconds, _ in self._first])) / (self._rounds * self.workers)
            self._running = self._begin(_FACTOR * level)
            for recorded in self._first:
                self._update_belief(*recorded)

    def _begin(self, normaliser: float) -> "_Running":
        """Return the filter before the first round."""
        from fred.prediction.deep.networks import key_of

        share, time = self._trained.record.pace
        # The first rho of the objective `throughput` is the pace of the trace, in this run's unit of time.
        self._maximizer.record(_PACE_WEIGHT * share * self.workers, _PACE_WEIGHT * time * normaliser)
        key = key_of(self._seed)
        particle_filter, constants = _filter(self._trained, self._grid.occupied, self._particles)
        return _Running(particle_filter, constants, key, normaliser, *particle_filter.start(constants, key))

    def _update_belief(self, seconds: NDArray[np.float64], finished: NDArray[np.bool_]) -> None:
        if self._running is None:  # without warm-up, the scale of times is the trace's
            self._running = self._begin(self._trained.record.normaliser)
        if self._share < 1:  # otherwise the network is unused
            times = (seconds / self._running.normaliser).astype(np.float32)
            self._running.update(self._grid.spread(times), self._grid.spread(finished))

    def ordered_samples(self) -> NDArray[np.float64]:
        """Return samples of the next round, s, each row in ascending order: [particles, workers].

        Not available if the model uses the hidden Markov model alone.
        """
        assert self._share < 1, "the network is unused: the hidden Markov model predicts alone"
        assert self._running is not None, "no round has been reported yet"
        ordered = np.sort(np.asarray(self._running.samples), axis=1)[:, : self.workers]  # empty places, at inf, are the last
        return ordered.astype(np.float64) * self._running.normaliser

    def expected(self) -> NDArray[np.float64]:
        plainer = self._share * self._plainer.expected() if self._plainer else 0.0
        if self._share == 1:
            return np.asarray(plainer)
        assert self._running is not None, "no round has been reported yet"
        ordered = np.sort(np.asarray(self._running.samples), axis=1)[:, : self.workers]  # empty places, at inf, are the last
        deep = np.add.reduce(ordered, axis=0).astype(np.float64) * (self._running.normaliser / self._particles)
        return (1 - self._share) * deep + plainer


@dataclass
class _Running:
    """A filter from round to round: its constants, its belief, and its samples of the next round in normalised times."""

    filter: "Filter"
    constants: "Constants"
    key: "Array"
    normaliser: float  # s
    belief: "Belief"
    samples: "Array"  # [particles, nodes * places]
    step: int = 0  # number of rounds

    def update(self, times: NDArray[np.float32], finished: NDArray[np.bool_]) -> None:
        """Learn from a round: normalised times, lower bounds where not `finished` [nodes, places]."""
        self.step += 1
        self.belief, self.samples = self.filter.update(self.constants, self.belief, self.key, self.step, times, finished)


def _filter(trained: saved.Trained, occupied: NDArray[np.bool_], particles: int) -> tuple["Filter", "Constants"]:
    """Return a filter for the model, and its constants."""
    import jax
    import jax.numpy as jnp

    environment.check()
    from fred.prediction.deep.filter import Constants, Filter
    from fred.prediction.deep.networks import create_network

    record = trained.record
    params = jax.tree.map(jnp.asarray, trained.params)
    constants = Constants.create(params, jnp.asarray(occupied), particles, record.bounds)
    return Filter(create_network(record.variant, record.workers), particles, record.window), constants
