"""Two states of each node, fast and slow, by expectation maximisation [Baum et al. 1970]."""

import numpy as np
from numpy.typing import NDArray

from fred.fitting.filtering import Matrix, Switching

_ROUNDS = 40
_CLOSE = 1e-3  # changes of the parameters after which no more rounds are made
_PRIOR = 0.5  # changes, and iterations without one, added to those seen


def fit_switching(means: Matrix) -> tuple[Switching | None, NDArray[np.float64], Matrix]:
    """The states behind the nodes' mean logarithms [iterations, nodes]; the fast level of each node; how surely each is slow.

    All nodes share the slow-down and the probabilities of a change. None where the states cannot be told apart.
    """
    level = np.median(means, axis=0)
    late = np.quantile(means - level, 0.98)
    spread = float(np.median(np.abs(means - level))) * 1.48
    if late <= 0 or spread <= 0:
        return None, level, np.zeros_like(means)
    switching, variance = Switching(float(late), 0.02, 0.1), spread**2
    for _ in range(_ROUNDS):
        slow, changes = _smoothed(means - level, switching, variance)
        level = (means - slow * switching.slowdown).mean(0)
        rest = means - level
        jump = float((slow * rest).sum() / max(slow.sum(), 1e-12))
        variance = float(((1 - slow) * rest**2 + slow * (rest - jump) ** 2).mean())
        fast_time, slow_time = (1 - slow[:-1]).sum(), slow[:-1].sum()
        if not (jump > 0 and variance > 0 and 1 < slow_time < slow.size - 1):
            return None, np.median(means, axis=0), np.zeros_like(means)
        to_slow, to_fast = (np.array(changes) + _PRIOR) / (np.array([fast_time, slow_time]) + 2 * _PRIOR)
        before, switching = switching, Switching(jump, float(to_slow), float(to_fast))
        if abs(jump - before.slowdown) < _CLOSE and abs(to_slow - before.to_slow) < _CLOSE * to_slow:
            break
    return switching, level, slow


def _smoothed(rest: Matrix, switching: Switching, variance: float) -> tuple[Matrix, tuple[float, float]]:
    """Probability that each node is slow [iterations, nodes], and the expected numbers of changes to slow and to fast."""
    odds = np.exp(np.clip((rest**2 - (rest - switching.slowdown) ** 2) / (2 * variance), -500, 500))  # slow : fast
    to_slow, to_fast = switching.to_slow, switching.to_fast
    prior, before = np.empty_like(rest), np.full(rest.shape[1], switching.slow_share)
    filtered = np.empty_like(rest)
    for step, ratio in enumerate(odds):
        prior[step] = before
        filtered[step] = before * ratio / (before * ratio + 1 - before)
        before = filtered[step] * (1 - to_fast) + (1 - filtered[step]) * to_slow
    slow = filtered.copy()
    up = down = 0.0
    for step in range(len(rest) - 2, -1, -1):
        ahead_slow = slow[step + 1] / np.maximum(prior[step + 1], 1e-300)
        ahead_fast = (1 - slow[step + 1]) / np.maximum(1 - prior[step + 1], 1e-300)
        rises = (1 - filtered[step]) * to_slow * ahead_slow
        stays = filtered[step] * (1 - to_fast) * ahead_slow
        falls = filtered[step] * to_fast * ahead_fast
        slow[step] = np.clip(stays + falls, 0, 1)
        up, down = up + float(rises.sum()), down + float(falls.sum())
    return slow, (up, down)
