"""How many of N + b workers to wait for [Chen, Pan, Monga, Bengio, Jozefowicz 2017, sections 3.1-3.2, figures 3-6]."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.special import betainc, expit, gammaln

from fred.cluster.latency import Latency

Floats = NDArray[np.float64]
Curve = Literal["linear", "fitted"]
_CELLS, _REACH = 8192, 36.0  # of the integral over quantiles: number; log-odds of the outermost


@dataclass(frozen=True, eq=False)
class Plan:
    """What every N that has a number of iterations would take of so many workers; the others are backups."""

    workers: int  # N + b
    waited_for: NDArray[np.int64]  # N [plans]
    iterations: Floats  # to the target [plans]
    arrival: Floats  # mean time of the N-th of N + b gradients, s [plans]

    @property
    def seconds(self) -> Floats:
        """Time to the target [plans]."""
        return self.iterations * self.arrival

    @property
    def best(self) -> int:
        """Which plan converges first."""
        return int(np.argmin(self.seconds))

    def json(self) -> str:
        """All of it as one JSON object."""
        columns = {name: getattr(self, name).tolist() for name in ("waited_for", "iterations", "arrival", "seconds")}
        plans = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return json.dumps({"workers": self.workers, "best": plans[self.best], "plans": plans}, indent=2)


def plan(arrivals: Floats, table: Mapping[int, float], curve: Curve = "linear") -> Plan:
    """Iterations to the target at N x mean time of the N-th arrival, for every N that both are known of.

    `arrivals`: mean times of the first to the last of N + b arrivals, s [workers]; `table`: iterations at some N. Raises
    ValueError if no N is left.
    """
    counts = np.arange(1, len(arrivals) + 1)
    iterations = iterations_at(counts, table, curve)
    known = np.isfinite(iterations)
    if not known.any():
        raise ValueError(f"iterations are known for N = {min(table)} to {max(table)}, but there are {len(arrivals)} workers")
    return Plan(len(arrivals), counts[known], iterations[known], np.asarray(arrivals, float)[known])


def iterations_at(counts: NDArray[np.int64], table: Mapping[int, float], curve: Curve = "linear") -> Floats:
    """Iterations to the target when N gradients are averaged, from a table of some N.

    `linear` interpolates, as the paper does, and says NaN beyond the table. `fitted` is least + noise / N, with the smallest
    relative squares and neither below 0: what is left with the whole gradient, and what the gradient's noise adds [McCandlish
    et al. 2018]. Raises ValueError for a table that is empty, has too few N to fit, or what is not positive.
    """
    known = np.array(sorted(table), float)
    measured = np.array([table[int(count)] for count in known], float)
    least = 1 if curve == "linear" else 2
    if len(known) < least or not (known > 0).all() or not ((measured > 0) & np.isfinite(measured)).all():
        raise ValueError(
            f"expected a positive number of iterations for each of {least} or more positive N, found {dict(table)}"
        )
    if curve == "linear":
        return np.interp(counts, known, measured, left=np.nan, right=np.nan)
    terms = np.stack([1 / measured, 1 / (known * measured)], axis=1)
    whole, noise = nnls(terms, np.ones(len(known)))[0]
    return np.asarray(whole + noise / counts)


def mean_arrivals(seconds: Floats, workers: int | None = None) -> Floats:
    """Mean time of the k-th arrival in recorded rounds, s [workers]; `seconds`: [rounds, workers], in any order.

    `workers`: what fewer of them would show, the mean over all ways to choose so many: the k-th of m is the i-th of n in
    (i-1 over k-1) (n-i over m-k) of (n over m) cases. Raises ValueError for more workers than were recorded.
    """
    ordered = np.sort(seconds, axis=1).mean(axis=0)
    recorded = len(ordered)
    chosen = recorded if workers is None else workers
    if not 1 <= chosen <= recorded:
        raise ValueError(f"expected 1 to {recorded} workers, as many as were recorded, found {workers}")
    if chosen == recorded:
        return ordered
    i, k = np.arange(1, recorded + 1), np.arange(1, chosen + 1)[:, None]
    possible = (i >= k) & (recorded - i >= chosen - k)
    ways = _log_choices(i - 1, k - 1, possible) + _log_choices(recorded - i, chosen - k, possible)
    shares = np.where(possible, np.exp(ways - _log_choices(recorded, chosen)), 0.0)
    return shares @ ordered


def expected_arrivals(latency: Latency, workers: int) -> Floats:
    """E[x_(1)] .. E[x_(n)] of n independent durations of one latency, s [workers].

    The k-th smallest of n uniform draws has a beta distribution of k and n - k + 1: its probabilities, times the quantiles.
    Raises ValueError if the latency has no mean: then the last arrivals have none.
    """
    if not np.isfinite(latency.mean):
        raise ValueError("the latency has an infinite mean, so no time can be expected of the last arrivals")
    odds = np.linspace(-_REACH, _REACH, _CELLS + 1)
    quantiles = latency.sample(np.clip(expit((odds[:-1] + odds[1:]) / 2), 2.0**-53, 1 - 2.0**-53))
    k = np.arange(1, workers + 1)[:, None]
    below = betainc(k, workers - k + 1, expit(odds))
    above = betainc(workers - k + 1, k, expit(-odds))  # exact where `below` is nearly 1
    shares = np.where(below[:, 1:] < 0.5, np.diff(below), -np.diff(above))
    return np.asarray((shares * quantiles).sum(axis=1))


def _log_choices(
    of: NDArray[np.int64] | int, some: NDArray[np.int64] | int, possible: NDArray[np.bool_] | bool = True
) -> Floats:
    """log of (of over some), where that is possible."""
    kept, left = np.where(possible, some, 0), np.where(possible, np.subtract(of, some), 0)
    return gammaln(kept + left + 1) - gammaln(kept + 1) - gammaln(left + 1)
