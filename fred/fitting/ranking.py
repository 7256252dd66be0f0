"""Candidates fitted to the first part of a trace and judged by the rest: the simplest of those as good as the best."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fred.errors import FredError
from fred.fitting.candidates import Composed, Groups, Independent, fit_composed, fit_independent
from fred.fitting.delays import Delayed, fit_delayed
from fred.fitting.description import Matrix
from fred.fitting.judging import standard_error
from fred.fitting.latencies import FITS

HELD_OUT = 0.25  # share of the iterations, the last ones
_FEWEST = 8  # iterations
Model = Independent | Composed | Delayed
Fit = Callable[[Matrix, Groups], Model]
Progress = Callable[[float], None]  # told the share that is done


@dataclass(frozen=True)
class Judged:
    """A candidate and its log-likelihood per observation, in nats: where it was fitted, and of what it has not seen."""

    name: str
    fit: Fit
    parameters: int  # beside the workers' speeds
    seen: float
    unseen: float
    behind: float = 0.0  # the best, on what it has not seen,
    error: float = 0.0  # and the standard error of that: paired, by iteration

    @property
    def as_good(self) -> bool:
        """Whether it is behind the best by no more than a standard error."""
        return self.behind <= self.error


def candidates(group_of: Groups) -> dict[str, Fit]:
    """What is tried, by name."""
    found: dict[str, Fit] = {name: partial(_independent, name) for name in FITS}
    alone = np.arange(len(group_of))
    found["lognormal, worker switching"] = partial(_composed, fit_composed, alone, (False, False, True))
    found["lognormal, worker switching, worker noise"] = partial(_composed, fit_composed, alone, (True, False, True))
    parts = {"": (False, False, False), ", worker noise": (True, False, False)}
    if len(group_of) > int(group_of.max()) + 1:
        node = "node" if group_of.any() else "cluster"
        parts[f", {node} noise"] = (False, True, False)
        parts[f", worker and {node} noise"] = (True, True, False)
        parts[f", {node} switching"] = (False, False, True)
        parts[f", {node} switching, worker and {node} noise"] = (True, True, True)
    for name, chosen in parts.items():
        if name:
            found[f"lognormal{name}"] = partial(_composed, fit_composed, None, chosen)
        found[f"lognormal{name}, rare delays"] = partial(_composed, fit_delayed, None, chosen)
    return found


def rank(seconds: Matrix, group_of: Groups, progress: Progress = lambda share: None) -> list[Judged]:
    """All candidates: those that are as good as the best on held-out iterations, the simplest first; then the others.

    FredError if there are too few iterations.

    Args:
        seconds: run-times, s [iterations, workers], of which the last quarter is held out.
        group_of: the group of each worker, by number from 0 [workers].
        progress: told the share of the candidates that were tried.
    """
    if len(seconds) < _FEWEST:
        raise FredError(f"the trace has {len(seconds)} complete iterations; at least {_FEWEST} are needed to fit and to judge")
    fits = candidates(group_of)
    judged = list(_judged(seconds, group_of, fits, progress))
    return sorted(judged, key=lambda each: (not each.as_good, each.parameters if each.as_good else 0, -each.unseen))


def _judged(seconds: Matrix, group_of: Groups, fits: dict[str, Fit], progress: Progress) -> Iterator[Judged]:
    split = len(seconds) - max(2, round(HELD_OUT * len(seconds)))
    tried: dict[tuple[object, ...], tuple[str, int, NDArray[np.float64]]] = {}
    for number, (name, fit) in enumerate(fits.items()):
        progress(number / len(fits))
        try:
            model = fit(seconds[:split], group_of)
            scores = model.log_likelihood(seconds) / seconds.shape[1]
        except ValueError:  # it has no parameters for such times
            tried[(name,)] = name, 0, np.full(len(seconds), -math.inf)
        else:  # where nothing was found of what it adds to one before, it is that one
            tried.setdefault(model.parts, (name, model.parameters, np.where(np.isnan(scores), -math.inf, scores)))
    best = max((scores[split:] for _, _, scores in tried.values()), key=np.mean)
    for name, parameters, scores in tried.values():
        seen, unseen = float(scores[:split].mean()), float(scores[split:].mean())
        behind, error = _behind(best, scores[split:]) if math.isfinite(unseen) else (math.inf, 0.0)
        yield Judged(name, fits[name], parameters, seen, unseen, behind, error)


def _behind(best: NDArray[np.float64], scores: NDArray[np.float64]) -> tuple[float, float]:
    """By how much a candidate is worse on average, and the standard error of that."""
    differences = best - scores
    return float(differences.mean()), float(standard_error(differences))


def _independent(name: str, seconds: Matrix, group_of: Groups) -> Model:
    return fit_independent(name, seconds)


def _composed(
    how: Callable[..., Model], told: Groups | None, parts: tuple[bool, ...], seconds: Matrix, group_of: Groups
) -> Model:
    return how(seconds, group_of if told is None else told, *parts)
