"""The number N of N + b workers to wait for [Chen, Pan, Monga, Bengio, Jozefowicz 2017, sections 3.1-3.2, figures 3-6]."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.special import gammaln

Floats = NDArray[np.float64]
Curve = Literal["linear", "fitted"]


@dataclass(frozen=True, eq=False)
class Plan:
    """The time to the target for every N with a known number of iterations; the other workers are backups."""

    workers: int  # N + b
    waited_for: NDArray[np.int64]  # N [plans]
    iterations: Floats  # to the target [plans]
    arrival: Floats  # mean time of the N-th of N + b gradients, s [plans]

    @property
    def seconds(self) -> Floats:
        """Return the time to the target, s [plans]."""
        return self.iterations * self.arrival

    @property
    def best(self) -> int:
        """Return the index of the plan that converges first."""
        return int(np.argmin(self.seconds))

    def json(self) -> str:
        """Return all of it as one JSON object."""
        columns = {name: getattr(self, name).tolist() for name in ("waited_for", "iterations", "arrival", "seconds")}
        plans = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return json.dumps({"workers": self.workers, "best": plans[self.best], "plans": plans}, indent=2)


def plan(arrivals: Floats, table: Mapping[int, float], curve: Curve = "linear") -> Plan:
    """Return, for every N where both are known, iterations to the target times mean time of the N-th arrival.

    `arrivals`: mean times of the first to the last of N + b arrivals, s [workers]. `table`: iterations at some N. Raises
    ValueError if no N is left.
    """
    counts = np.arange(1, len(arrivals) + 1)
    iterations = iterations_at(counts, table, curve)
    known = np.isfinite(iterations)
    if not known.any():
        raise ValueError(f"iterations are known for N = {min(table)} to {max(table)}, but there are {len(arrivals)} workers")
    return Plan(len(arrivals), counts[known], iterations[known], np.asarray(arrivals, float)[known])


def iterations_at(counts: NDArray[np.int64], table: Mapping[int, float], curve: Curve = "linear") -> Floats:
    """Return the iterations to the target when N gradients are averaged, from a table of some N.

    `linear` interpolates, as the paper does, and returns NaN beyond the table. `fitted` is least + noise / N, fitted to the
    smallest relative squares with neither below 0. `least` is what the exact gradient would need; noise / N is what
    gradient noise adds [McCandlish et al. 2018]. Raises ValueError for a table that is empty, has too few N to fit, or has
    values that are not positive.
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
    """Return the mean time of the k-th arrival in recorded rounds, s [workers]; `seconds`: [rounds, workers], in any order.

    `workers`: number of workers, by default all that were recorded. Fewer are averaged over all ways to choose them. The
    k-th of m is the i-th of n in (i-1 over k-1) (n-i over m-k) of (n over m) cases. Raises ValueError for more workers than
    were recorded.
    """
    ordered = np.sort(seconds, axis=1).mean(axis=0)
    recorded = len(ordered)
    chosen = recorded if workers is None else workers
    if not 1 <= chosen <= recorded:
        raise ValueError(f"expected 1 to {recorded} workers, the number recorded; found {workers}")
    if chosen == recorded:
        return ordered
    i, k = np.arange(1, recorded + 1), np.arange(1, chosen + 1)[:, None]
    possible = (i >= k) & (recorded - i >= chosen - k)
    ways = _log_choices(i - 1, k - 1, possible) + _log_choices(recorded - i, chosen - k, possible)
    shares = np.where(possible, np.exp(ways - _log_choices(recorded, chosen)), 0.0)
    return shares @ ordered


def _log_choices(
    of: NDArray[np.int64] | int, some: NDArray[np.int64] | int, possible: NDArray[np.bool_] | bool = True
) -> Floats:
    """Return log of (of over some), where that is possible."""
    kept, left = np.where(possible, some, 0), np.where(possible, np.subtract(of, some), 0)
    return gammaln(kept + left + 1) - gammaln(kept + 1) - gammaln(left + 1)
