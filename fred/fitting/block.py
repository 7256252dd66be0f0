"""The `cluster:` block of a fitted model, as scenarios write it."""

from copy import deepcopy
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fred.cluster.latency import Mixture
from fred.components.one_of import OneOf
from fred.fitting.entities import Groups, Model
from fred.fitting.entity_regimes import InSpells, InWaves, Regime
from fred.fitting.latencies import FITS, log_density
from fred.fitting.moments import Noise
from fred.specification.text import written

_PARTS = 4  # steps of the noise in a usual iteration, so that even a short iteration has its own step
_DIGITS = 4  # significant digits
_LEAST = 1e-4  # deviation of a logarithm below which it counts as none
_STEPS = 48  # steps of a wave


@dataclass(frozen=True)
class Block:
    """A `cluster:` block, and the trace's worker behind each of its workers.

    Args:
        options: options of the cluster.
        order: the trace's worker, by number, for each of the cluster's [workers].
        family: name of the latency of the compute times.
    """

    options: dict[str, Any]
    order: NDArray[np.int64]
    family: str = ""

    def text(self, *comments: str) -> str:
        """Return the block as YAML, with comments on top.

        Args:
            comments: one line each, without `#`.

        >>> print(Block({"workers": 2, "speeds": [1.0, 0.5]}, np.arange(2)).text("two of them"), end="")
        # two of them
        cluster:
          workers: 2
          speeds: [1.0, 0.5]
        """
        return written({"cluster": self.options}, *comments)


def families(model: Model) -> list[str]:
    """Return the names of latencies, best first by the Bayesian information criterion.

    Args:
        model: model with the compute times to fit, without levels and regimes.
    """
    scores = {}
    for name in FITS:
        try:
            fitted = [(FITS[name](times), times) for times in _compute_times(model)]
            likelihood = sum(float(log_density(latency, times).sum()) for latency, times in fitted)
        except ValueError:  # the latency cannot fit such times
            continue
        parameters = sum(3 * len(latency.components) - 1 if isinstance(latency, Mixture) else 2 for latency, _ in fitted)
        scores[name] = likelihood - 0.5 * parameters * np.log(model.rest.size)
    return sorted((name for name in scores if np.isfinite(scores[name])), key=lambda name: -scores[name])


def cluster_block(model: Model, family: str, rounds: NDArray[np.float64], group_of: Groups) -> Block:
    """Write a model as a cluster.

    Workers of a node must have successive numbers, so the workers are reordered.

    Args:
        model: model fitted to a trace.
        family: name of the latency of the compute times.
        rounds: duration of each iteration, s [iterations].
        group_of: node number of each worker, from 0 [workers].
    """
    order = np.argsort(group_of, kind="stable")
    sizes = np.bincount(group_of).tolist()
    latencies = [_round_options(OneOf("latency").dump(FITS[family](times))) for times in _compute_times(model)]
    speeds = [_round(speed) for speed in np.exp(np.median(model.levels) - model.levels)[order]]
    options: dict[str, Any] = {"workers": len(order)}
    kind_of = model.kind_of[order]
    main_kind = int(np.bincount(kind_of).argmax())
    options["compute"] = latencies[main_kind]
    if len(latencies) > 1:
        options["groups"] = _worker_groups(speeds, [None if kind == main_kind else latencies[kind] for kind in kind_of])
    elif np.ptp(np.log(speeds)) > _LEAST:
        options["speeds"] = speeds
    if len(sizes) > 1:
        options["nodes"] = len(sizes) if len(set(sizes)) == 1 else sizes
    if regimes := [
        *_noise(model, float(rounds.mean()), sizes),
        *(_contention(regime, order, group_of, rounds) for regime in model.regimes),
    ]:
        options["contention"] = regimes
    return Block(options, order, family)


def _compute_times(model: Model) -> list[NDArray[np.float64]]:
    """Return the compute times of each kind of workers without levels, regimes and noise, s."""
    # The block simulates persistent and shared noise as contention. The latency must not contain them a second time, so the
    # remaining logarithms are scaled down to the deviation of the independent noise; their shape stays.
    deviation = np.maximum(model.rest.std(0), 1e-12)
    rest = model.rest * np.minimum(model.white / deviation, 1.0) if model.noisy else model.rest
    centred = np.exp(np.median(model.levels) + rest)
    return [centred[:, model.kind_of == kind].ravel() for kind in range(int(model.kind_of.max()) + 1)]


def _worker_groups(speeds: list[float], latencies: list[dict[str, Any] | None]) -> list[dict[str, Any]]:
    """Merge successive equal workers into groups; a group without a latency uses the cluster's."""
    runs = [(key, len(list(members))) for key, members in groupby(zip(speeds, latencies, strict=True))]
    return [
        {"workers": count, "speed": speed} | ({"compute": deepcopy(latency)} if latency else {})
        for (speed, latency), count in runs
    ]


def _noise(model: Model, mean: float, sizes: list[int]) -> list[dict[str, Any]]:
    shared = "node" if len(sizes) > 1 else "cluster"
    white = Noise(model.noise.node_white, 0.0)
    noises = [("worker", model.noise.worker), (shared, model.noise.node), (shared, white)]
    return [_persistent(noise, scope, mean) for scope, noise in noises if noise is not None and noise.deviation > _LEAST]


def _persistent(noise: Noise, scope: str, mean: float) -> dict[str, Any]:
    return {
        "name": "persistent-noise",
        "deviation": _round(noise.deviation),
        "persistence": round(noise.persistence ** (1 / _PARTS), 5),
        "every": _round(mean / _PARTS),
        "of": scope,
    }


def _contention(regime: Regime, order: NDArray[np.int64], group_of: Groups, rounds: NDArray[np.float64]) -> dict[str, Any]:
    if isinstance(regime, InSpells):
        seconds = {"fast_seconds": _round(regime.fast_seconds), "slow_seconds": _round(regime.slow_seconds)}
        options = {"name": "markov-switching", "slowdown": _round(regime.slowdown), **seconds, "of": regime.of}
    elif isinstance(regime, InWaves):
        times = {"period": _round(regime.period), "peak": _round(regime.peak), "steps": _STEPS}
        shape = "linear" if regime.linear else "cosine"
        options = {"name": "diurnal", "slowdown": _round(regime.slowdown), **times, "shape": shape}
    else:
        options = _persistent(Noise(regime.deviation, regime.persistence), regime.of, float(rounds.mean()))
    workers = _affected_workers(regime, order, group_of)
    return {**options, "only": workers} if workers else options


def _affected_workers(regime: Regime, order: NDArray[np.int64], group_of: Groups) -> list[int]:
    """Return the cluster's workers that a regime applies to; empty: all."""
    if regime.of == "cluster" or not regime.entities:
        return []
    entity_of = group_of if regime.of == "node" else np.arange(len(group_of))
    return np.flatnonzero(np.isin(entity_of[order], regime.entities)).tolist()


def _round_options(options: Any) -> Any:
    if isinstance(options, dict):
        return {name: _round_options(value) for name, value in options.items() if value not in (None, 0.0)}
    if isinstance(options, list | tuple):
        return [_round_options(value) for value in options]
    return _round(options) if isinstance(options, float) else options


def _round(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
