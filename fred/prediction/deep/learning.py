"""From run-times to a trained deep Markov model, with what is known of it."""

import importlib.metadata
import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fred.cluster import elementary
from fred.cluster.contention import NodeOf
from fred.prediction.contract import Objective, Progress
from fred.prediction.deep import saved, training
from fred.prediction.deep.grid import Grid
from fred.prediction.deep.networks import Network, of_variant
from fred.process import environment
from fred.traces.trace import Trace
from fred.version import __version__

_MORE = 0.3  # that the first rounds' mean may differ by
_FACTOR = 2.0  # the normaliser in mean times, as printed


class Learner(Protocol):
    """What has to be known of training: rules have these among their options (`rule.py`)."""

    @property
    def variant(self) -> saved.Variant:
        """Of the network."""

    @property
    def steps(self) -> int:
        """Of training."""

    @property
    def learning_rate(self) -> float:
        """Adam's."""

    @property
    def window(self) -> int:
        """Rounds that training sees at once."""

    @property
    def seed(self) -> int:
        """Of training."""

    @property
    def objective(self) -> Objective | None:
        """What the model is to be used for; none: not said."""


def learn(rule: Learner, seconds: NDArray[np.float64], node_of: NodeOf, progress: Progress, restart: int = 0) -> saved.Trained:
    """Train a model of the rule's variant on complete rounds, s [iterations, workers], at least four.

    Another `restart` begins with other weights, and sees other windows.
    """
    environment.check()
    if rule.variant != "shared":
        node_of = np.zeros_like(node_of)
    repaired = rule.variant != "printed"
    schedule = training.Training(rule.steps, rule.learning_rate, rule.window, rule.seed, restart, repaired, repaired)
    network = of_variant(rule.variant, seconds.shape[1])
    normaliser = _FACTOR * math.fsum(seconds.ravel()) / seconds.size
    params, losses = training.train(network, seconds, Grid(node_of), schedule, progress)
    if not np.isfinite(losses).all() or not all(np.isfinite(a).all() for layer in params.values() for a in layer.values()):
        raise ValueError("training has diverged; give a smaller `learning_rate`")
    about = saved.AboutModel(
        fred=__version__,
        environment=environment.describe() | {"numpyro": importlib.metadata.version("numpyro")},
        variant=rule.variant,
        workers=seconds.shape[1],
        nodes=node_of.tolist(),
        window=rule.window,
        normaliser=normaliser,
        objective=rule.objective or "round",
        pace=_pace(seconds / normaliser),
        bounds=_bounds(network, seconds / normaliser, Grid(node_of)),
        trace=Trace(seconds, ()).digest,
        steps=rule.steps,
        learning_rate=rule.learning_rate,
        seed=rule.seed,
        restart=restart,
        curve=[round(math.fsum(part) / len(part), 4) for part in np.array_split(losses.astype(float), -(-len(losses) // 50))],
    )
    return saved.Trained(about, {name: {part: np.asarray(a) for part, a in layer.items()} for name, layer in params.items()})


def _pace(times: NDArray[np.float64]) -> tuple[float, float]:
    """Of the best static cutoff in rounds of these times [rounds, workers]: its share of the workers, mean time."""
    mean = np.add.reduce(np.sort(times, axis=1), axis=0) / len(times)
    best = int(np.argmax(np.arange(1, len(mean) + 1) / mean))
    return (best + 1) / len(mean), float(mean[best])


def _bounds(network: Network, times: NDArray[np.float64], grid: Grid) -> tuple[float, float]:
    """Of the mean (log) times of nodes in all rounds [rounds, workers], and some more; of single workers, if all are one."""
    y = elementary.log(times) if network.logarithmic else times
    if network.neighbours:
        y = np.add.reduce(np.ascontiguousarray(np.moveaxis(grid.spread(y), -1, 0)), axis=0) / grid.there.sum(-1)
    return float(y.min()) - _MORE, float(y.max()) + _MORE
