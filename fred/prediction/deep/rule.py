"""Cutoffs from a deep Markov model of run-times [Teng & Wood 2018; Krishnan, Shalit, Sontag 2017]; JAX loads when it works."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PrivateAttr, ValidationInfo, model_validator

from fred.cluster.contention import NodeOf
from fred.components.component import Count, Whole
from fred.components.input_path import InputPath, UnreadError
from fred.errors import FredError
from fred.prediction.contract import By, Chooser, Objective, Progress
from fred.prediction.deep import saved
from fred.prediction.deep.grid import Grid
from fred.prediction.predictive import Predictor
from fred.prediction.watched import Watched
from fred.process import environment

if TYPE_CHECKING:
    from fred.prediction.deep.filter import Filter, Known

_KNOWN = 25  # rounds that the trace's pace counts for, where the long run is maximised
_FACTOR = 2.0  # the normaliser in mean times, as printed


class DeepMarkov(Watched):
    """A deep Markov model with weights shared among workers, a state for each node, and joint imputation of dropped workers.

    One small network sees a worker's own history, its node's summary and the cluster's, so that a model trained on one cluster
    serves another. Times are in units of twice their mean in the first rounds, in which all workers are waited for. Training
    may mix in a hidden Markov model, or use that one alone, where rounds held back say so: `fred train-cutoff` says which, and
    a run is warned of a model whose network is not asked. What it expects is watched beside averages of recent times (`ewma`
    of nodes), and left as long as these do better, as `auto` does it.

    Its states are no longer Markov, since transition and emission see what was observed before, too; and training does not
    raise a lower bound of the likelihood (ELBO) alone, but predictions of every round as well (docs/errata.md, item 2).
    """

    variant: ClassVar[saved.Variant] = "shared"
    holds_back: ClassVar[bool] = True

    objective: Objective | None = Field(  # type: ignore[assignment]
        None, description="c / E[x_(c)] of the round, or c - rho E[x_(c)] of the long run; absent: what training found better"
    )
    by: By | None = Field(  # type: ignore[assignment]
        None,
        description="what ends a round: `count`, its c-th worker; `deadline`, E[x_(c)]; or the first of both; absent: of "
        "the last two what training found better",
    )
    model: InputPath | None = Field(
        None, description="what `fred train-cutoff` wrote (.npz); absent: a model that comes with FRED"
    )
    digest: str | None = Field(None, description="of the model; found on loading, and compared if it is given")
    particles: Count = Field(100, description="samples of the next round")
    warm_up: Whole = Field(20, description="first rounds, in which all are waited for; 0: times are as in the trace")
    alone: bool = Field(False, description="the network alone: no hidden Markov model is mixed in, and nobody watches it")
    restarts: int = Field(2, ge=1, le=100, description="trainings, of which the best in rounds held back is kept")
    steps: int = Field(2000, ge=50, lt=2**31, description="of training")
    learning_rate: float = Field(0.01, gt=0, description="of training: Adam's, after warming up and before a cosine decay")
    window: Count = Field(
        60, description="rounds that training sees at once; more than the cluster takes to be as it was, if it has a period"
    )
    seed: Whole = Field(0, description="of training, and of samples")
    _trained: saved.Trained | None = PrivateAttr(None)
    _unread: bool = PrivateAttr(False)  # in a result, which needs neither a model's file nor the FRED that it came with

    @model_validator(mode="after")
    def _identified(self, info: ValidationInfo) -> Self:
        self._unread = bool((info.context or {}).get("recorded"))
        if self.model is None and (self.variant != "shared" or not saved.SHIPPED.exists()):  # it is just being made
            return self
        digest = _loaded(self._file).digest
        if self.digest not in (None, digest):
            raise ValueError(f"{self._named} is not the recorded one (its digest differs)")
        object.__setattr__(self, "digest", digest)  # found out, not changed
        return self

    @property
    def _file(self) -> Path:
        if self._unread:
            raise UnreadError(f"{self._named} is not read where a result is looked at")
        return self.model.located() if self.model else saved.SHIPPED

    @property
    def _named(self) -> str:
        return self.model or "the model that comes with FRED"

    def start(self, node_of: NodeOf) -> Chooser:
        trained = self._trained or self._of_file()
        trained = trained.alone() if self.alone else trained
        about = trained.about
        if about.variant != "shared" and about.workers != len(node_of):
            raise ValueError(f"the model was trained for {about.workers} workers, not {len(node_of)}")
        if about.variant != self.variant:
            raise ValueError(f"the model is of the variant `{about.variant}`, not `{self.variant}`")
        same = about.workers == len(node_of) and bool(self.model or self._trained)  # the cluster of the trace
        if about.variant != "shared":
            node_of = np.zeros_like(node_of)
        elif not node_of.any() and same:
            node_of = np.array(about.nodes)  # the cluster does not say; in the trace they were found
        objective = self.objective or about.objective
        plainer = about.plainer.on(same, objective).filter(node_of) if about.plainer else None
        decided = self.model_copy(update={"objective": objective, "by": self.by or about.by})
        believing = _Believing(decided, trained, node_of, plainer)
        if self.alone or not self._watched or self.variant != "shared":  # the others are as published
            return believing
        return decided.beside_averages(believing, node_of, self.seed)

    def _of_file(self) -> saved.Trained:
        if self.model is None and self.variant != "shared":
            raise ValueError("needs `model`: train one with `fred train-cutoff`")
        trained = _loaded(self._file)
        if self.digest not in (None, trained.digest):
            raise ValueError(f"{self._named} has changed since it was named")
        return trained

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """The same with other options; what was learned comes along."""
        if self._trained is None:
            return super().model_copy(update=update, deep=deep)
        return super().model_copy(update={**(update or {}), "digest": None})._with(self._trained)

    def doubts(self) -> tuple[str, ...]:
        try:
            about = (self._trained or self.model_copy()._of_file()).about
        except (FredError, ValueError):  # the model of a result that is looked at is gone
            return ()
        if self.alone and about.share:
            return (f"{self._named}: its network alone did worse in rounds held back than {about.parts}",)
        doubts = [about.held_back.doubt] if about.held_back and about.held_back.doubt else []
        if about.share == 1:
            doubts.append(f"it is {about.parts}")
        return tuple(f"{self._named}: {doubt}" for doubt in doubts)

    def of(self, trained: saved.Trained) -> Self:
        """The rule with this model."""
        return self.model_copy()._with(trained)

    def _with(self, trained: saved.Trained) -> Self:
        self._trained = trained
        object.__setattr__(self, "digest", trained.digest)
        return self

    def trained(self, seconds: NDArray[np.float64], node_of: NodeOf, progress: Progress = lambda share: None) -> Self:
        if self.model is not None or self._trained is not None:  # it has learnt what it will
            return self
        from fred.prediction.deep.choosing import best

        return self.of(best(self, seconds, node_of, progress))


class PlainDeepMarkov(DeepMarkov):
    """A deep Markov model with one output for each worker and one state for all; its guide does not look ahead."""

    variant: ClassVar[saved.Variant] = "plain"

    objective: Objective = Field("round", description="c / E[x_(c)] of the round, or c - rho E[x_(c)] of the long run")
    by: By = Field("count", description="what ends a round, as published its c-th worker; or `deadline`, or both")
    restarts: int = Field(1, ge=1, le=100, description="trainings, of which the best in rounds held back is kept")
    steps: int = Field(3000, ge=50, lt=2**31, description="of training")
    learning_rate: float = Field(5e-3, gt=0, description="of training: Adam's, after warming up and before a cosine decay")
    window: Count = Field(20, description="rounds that training sees at once")


class PrintedDeepMarkov(PlainDeepMarkov):
    """The deep Markov model as printed: normal times, a guide that looks ahead, dropped workers imputed one by one.

    It fails to predict: what its guide reads off the future is missing when it is needed (docs/errata.md).
    """

    variant: ClassVar[saved.Variant] = "printed"


class _Believing(Predictor):
    """A filter at work, in units of the first rounds' mean time."""

    def __init__(self, rule: DeepMarkov, trained: saved.Trained, node_of: NodeOf, plainer: Predictor | None):
        super().__init__(rule, len(node_of))
        self._plainer, self._share = plainer, trained.about.share  # of what is expected that is the plainer model's
        self._trained, self._grid, self._particles = trained, Grid(node_of), rule.particles
        self._warm_up, self._seed, self._rounds = rule.warm_up, rule.seed, 0
        self._first: list[tuple[NDArray[np.float64], NDArray[np.bool_]]] = []  # rounds before the normaliser is known

    def learn(self, seconds: NDArray[np.float64], finished: NDArray[np.bool_]) -> None:
        if self._plainer:
            self._plainer.learn(seconds, finished)
        self._rounds += 1
        self._ready = self._rounds >= self._warm_up
        if self._rounds > self._warm_up:
            self._believe(seconds, finished)
            return
        self._first.append((seconds, finished))
        if self._rounds == self._warm_up:
            level = math.fsum(np.concatenate([each for each, _ in self._first])) / (self._rounds * self.workers)
            self._begin(_FACTOR * level)
            for each in self._first:
                self._believe(*each)

    def _begin(self, normaliser: float) -> None:
        from fred.prediction.deep.networks import key_of

        share, time = self._trained.about.pace
        self._best.came_to(_KNOWN * share * self.workers, _KNOWN * time * normaliser)
        self._normaliser, self._key, self._step = normaliser, key_of(self._seed), 0
        self._filter, self._known = _filter(self._trained, self._grid.there, self._particles)
        self._belief, self._samples = self._filter.start(self._known, self._key)

    def _believe(self, seconds: NDArray[np.float64], finished: NDArray[np.bool_]) -> None:
        if not hasattr(self, "_filter"):
            self._begin(self._trained.about.normaliser)
        if self._share == 1:
            return
        times = self._grid.spread((seconds / self._normaliser).astype(np.float32))
        self._step += 1
        self._belief, self._samples = self._filter.after(
            self._known, self._belief, self._key, self._step, times, self._grid.spread(finished)
        )

    def ordered_samples(self) -> NDArray[np.float64]:
        """Samples of the next round, each worker's time in ascending order, s: [particles, workers]; only of a model in use."""
        assert self._share < 1, "the model is not asked, a plainer one is"
        return np.sort(np.asarray(self._samples), axis=1)[:, : self.workers].astype(np.float64) * self._normaliser

    def expected(self) -> NDArray[np.float64]:
        plain = self._share * self._plainer.expected() if self._plainer else 0.0
        if self._share == 1:
            return np.asarray(plain)
        ordered = np.sort(np.asarray(self._samples), axis=1)[:, : self.workers]
        deep = np.add.reduce(ordered, axis=0).astype(np.float64) * (self._normaliser / self._particles)
        return (1 - self._share) * deep + plain


def _filter(trained: saved.Trained, there: NDArray[np.bool_], particles: int) -> tuple["Filter", "Known"]:
    """A filter for the model, and what it is told of it."""
    import jax
    import jax.numpy as jnp

    environment.check()
    from fred.prediction.deep.filter import Filter, Known
    from fred.prediction.deep.networks import of_variant

    about = trained.about
    params = jax.tree.map(jnp.asarray, trained.params)
    known = Known.of(params, jnp.asarray(there), particles, about.bounds)
    return Filter(of_variant(about.variant, about.workers), particles, about.window), known


_known: dict[Path, tuple[tuple[int, ...], saved.Trained]] = {}


def _loaded(path: Path) -> saved.Trained:
    """A saved model, read once as long as its file stays the same."""
    try:
        facts = path.stat(), path.with_suffix(".json").stat()
    except (OSError, ValueError) as error:  # a folder may have no name
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"cannot read {path}: {reason}; `fred train-cutoff` writes such a file") from None
    stamp = tuple(fact for each in facts for fact in (each.st_mtime_ns, each.st_size))
    if path not in _known or _known[path][0] != stamp:
        _known[path] = stamp, saved.load(path)
    return _known[path][1]
