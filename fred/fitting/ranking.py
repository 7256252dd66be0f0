"""Every candidate fitted to the first part of a trace and judged by the rest; the best, fitted to all of it."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from fred.errors import FredError
from fred.fitting.candidates import Composed, Groups, Independent, fit_composed, fit_independent
from fred.fitting.delays import Delayed, fit_delayed
from fred.fitting.description import Matrix
from fred.fitting.latencies import FITS

HELD_OUT = 0.25  # share of the iterations, the last ones
_FEWEST = 8  # iterations
Model = Independent | Composed | Delayed
Fit = Callable[[Matrix, Groups], Model]
Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Judged:
    """A candidate and its log-likelihood per observation, in nats: where it was fitted, and of what it has not seen."""

    name: str
    fit: Fit
    seen: float
    unseen: float


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


def rank(seconds: Matrix, group_of: Groups, progress: Progress = lambda name, share: None) -> list[Judged]:
    """All candidates, the best on held-out iterations first. FredError if there are too few iterations."""
    if len(seconds) < _FEWEST:
        raise FredError(f"the trace has {len(seconds)} complete iterations; at least {_FEWEST} are needed to fit and to judge")
    fits = candidates(group_of)
    return sorted(_judged(seconds, group_of, fits, progress), key=lambda each: -each.unseen)


def _judged(seconds: Matrix, group_of: Groups, fits: dict[str, Fit], progress: Progress) -> Iterator[Judged]:
    split = len(seconds) - max(2, round(HELD_OUT * len(seconds)))
    for number, (name, fit) in enumerate(fits.items()):
        progress(name, number / len(fits))
        try:
            each = fit(seconds[:split], group_of).log_likelihood(seconds) / seconds.shape[1]
        except ValueError:  # it has no parameters for such times
            each = np.full(len(seconds), math.nan)
        seen, unseen = float(np.mean(each[:split])), float(np.mean(each[split:]))
        yield Judged(name, fit, *(-math.inf if math.isnan(score) else score for score in (seen, unseen)))


def _independent(name: str, seconds: Matrix, group_of: Groups) -> Model:
    return fit_independent(name, seconds)


def _composed(
    how: Callable[..., Model], told: Groups | None, parts: tuple[bool, ...], seconds: Matrix, group_of: Groups
) -> Model:
    return how(seconds, group_of if told is None else told, *parts)
