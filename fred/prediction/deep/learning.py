"""Training of a deep Markov model on compute times, with a record of how it was trained."""

import importlib.metadata
import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fred.base import elementary, environment
from fred.base.version import __version__
from fred.cluster.contention import NodeOf
from fred.prediction.contract import Objective, Progress
from fred.prediction.deep import saved, training
from fred.prediction.deep.grid import Grid
from fred.prediction.deep.networks import Network, of_variant
from fred.traces.trace import Trace

_MORE = 0.3  # margin for the mean of the first rounds
_FACTOR = 2.0  # the normaliser in mean times, as printed


class Learner(Protocol):
    """The options that training needs; rules have them (`rule.py`)."""

    @property
    def variant(self) -> saved.Variant:
        """Return the variant of the network."""

    @property
    def steps(self) -> int:
        """Return the number of training steps."""

    @property
    def learning_rate(self) -> float:
        """Return Adam's learning rate."""

    @property
    def window(self) -> int:
        """Return the number of rounds in a training window."""

    @property
    def seed(self) -> int:
        """Return the seed of training."""

    @property
    def objective(self) -> Objective | None:
        """Return the objective that the model is used for; None: not given."""


def learn(rule: Learner, seconds: NDArray[np.float64], node_of: NodeOf, progress: Progress, restart: int = 0) -> saved.Trained:
    """Train a model of the rule's variant on complete rounds, s [iterations, workers], at least four.

    Another `restart` uses other initial parameters and other windows. Raises ValueError if training diverges.
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
    """Return the best static cutoff for these times [rounds, workers], as a share of the workers, and its mean time."""
    mean = np.add.reduce(np.sort(times, axis=1), axis=0) / len(times)
    best = int(np.argmax(np.arange(1, len(mean) + 1) / mean))
    return (best + 1) / len(mean), float(mean[best])


def _bounds(network: Network, times: NDArray[np.float64], grid: Grid) -> tuple[float, float]:
    """Return the range, with a margin, of the nodes' mean (log) times over all rounds [rounds, workers].

    Where the network has no nodes, the range is that of the single workers' times.
    """
    y = elementary.log(times) if network.logarithmic else times
    if network.neighbours:
        y = np.add.reduce(np.ascontiguousarray(np.moveaxis(grid.spread(y), -1, 0)), axis=0) / grid.there.sum(-1)
    return float(y.min()) - _MORE, float(y.max()) + _MORE
