"""The cluster of a fitted model, as scenarios write it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fred.cluster.latency import LogNormal
from fred.components.component import OneOf
from fred.fitting.candidates import Composed, Groups, Independent
from fred.fitting.delays import Delayed, Delays
from fred.fitting.description import Matrix
from fred.fitting.filtering import Noise
from fred.fitting.ranking import Model
from fred.specification.text import written

_PARTS = 4  # steps of the noise in a usual iteration: so that each iteration, a short one too, has a step of its own
_DIGITS = 4  # significant
_LEAST = 1e-4  # deviation of a logarithm that is told from none


@dataclass(frozen=True)
class Block:
    """A `cluster:`, and which of the trace's workers each of its workers stands for."""

    options: dict[str, Any]
    order: NDArray[np.int64]  # the trace's worker, by number, for each of the cluster's: [workers]

    def text(self, *comments: str) -> str:
        """YAML, with comments on top.

        Args:
            comments: a line each, without `#`.

        >>> print(Block({"workers": 2, "speeds": [1.0, 0.5]}, np.arange(2)).text("two of them"), end="")
        # two of them
        cluster:
          workers: 2
          speeds: [1.0, 0.5]
        """
        return written({"cluster": self.options}, *comments)


def cluster_block(model: Model, seconds: Matrix, group_of: Groups) -> Block:
    """The cluster that behaves like the model; run-times s [iterations, workers] say how long iterations take.

    An iteration takes as long as its slowest worker; nodes hold workers of successive numbers, so workers change places.

    Args:
        model: fitted to these run-times.
        seconds: run-times, s [iterations, workers].
        group_of: the node of each worker, by number from 0 [workers].
    """
    order = np.argsort(group_of, kind="stable")
    sizes = np.bincount(group_of).tolist()
    options: dict[str, Any] = {"workers": len(order)}
    delays = model.delays if isinstance(model, Delayed) else None
    model = model.model if isinstance(model, Delayed) else model
    if isinstance(model, Independent):
        speeds, latency, regimes = model.speeds, model.latency, []
    else:
        centre = float(model.levels.mean())
        speeds = np.exp(centre - model.levels)
        latency = LogNormal(median=float(np.exp(centre)), sigma=max(model.white, _LEAST))
        regimes = _regimes(model, seconds.max(1)) + ([_rare(delays)] if delays else [])
    options["compute"] = _rounded(OneOf("latency").dump(latency))
    if np.ptp(np.log(speeds)) > _LEAST:
        options["speeds"] = [_short(speed) for speed in speeds[order]]
    if len(sizes) > 1:
        options["nodes"] = len(sizes) if len(set(sizes)) == 1 else sizes
    if regimes:
        options["contention"] = regimes
    return Block(options, order)


def _regimes(model: Composed, rounds: NDArray[np.float64]) -> list[dict[str, Any]]:
    workers, nodes = len(model.group_of), int(model.group_of.max()) + 1
    shared = "worker" if nodes == workers else "node" if nodes > 1 else "cluster"
    noises = [("worker", model.worker), (shared, model.node)]
    if model.node_white > _LEAST:
        noises.append((shared, Noise(model.node_white, 0.0)))
    step = float(rounds.mean()) / _PARTS
    regimes = [
        {
            "name": "persistent-noise",
            "deviation": _short(noise.deviation),
            "persistence": round(noise.persistence ** (1 / _PARTS), 5),
            "every": _short(step),
            "of": of,
        }
        for of, noise in noises
        if noise is not None and noise.deviation > _LEAST
    ]
    if model.switching is not None:
        slow, states = model.slow, model.switching
        lengths = [float((share * rounds[:, None]).sum() / share.sum()) for share in (1 - slow, slow)]
        fast_seconds, slow_seconds = (
            -length / np.log1p(-change) for length, change in zip(lengths, (states.to_slow, states.to_fast), strict=True)
        )
        dwell = {"fast_seconds": _short(fast_seconds), "slow_seconds": _short(slow_seconds)}
        regimes.append({"name": "markov-switching", "slowdown": _short(np.exp(states.slowdown)), **dwell, "of": shared})
    return regimes


def _rare(delays: Delays) -> dict[str, Any]:
    seconds = _rounded(OneOf("latency").dump(delays.seconds))
    return {"name": "rare-delays", "probability": _short(delays.probability), "seconds": seconds}


def _rounded(options: dict[str, Any]) -> dict[str, Any]:
    return {name: _short(value) if isinstance(value, float) else value for name, value in options.items()}


def _short(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
