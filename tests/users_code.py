"""A user's program with annotations: an example of each kind of class that a user may write, and a run with all of them.

`python -m tests.typed` checks it with type checkers, `tests/test_users_code.py` runs it.
"""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pandas as pd
from pydantic import Field

import fred


class Patient(fred.Server):
    """Full steps for fresh gradients, shorter ones beyond `patience` updates of staleness."""

    patience: int = Field(default=10, ge=1, description="staleness that costs nothing, updates")

    def apply_update(self, state: fred.State, grads: fred.Message, timestamp: fred.Scalar, worker: fred.Scalar) -> fred.State:
        scale = jnp.minimum(1.0, self.patience / jnp.maximum(state.clock - timestamp, 1))
        return self.step(state, grads, scale=scale)


class HalvedDiLoCo(fred.systems.DiLoCo):
    """DiLoCo with halved pseudo-gradients."""

    protocol_options = {"period": 4}

    def apply_round(self, state: fred.State, mean: fred.Message, timestamp: fred.Scalar, count: fred.Scalar) -> fred.State:
        return super().apply_round(state, {name: leaf / 2 for name, leaf in mean.items()}, timestamp, count)


class Ahead(fred.Protocol):
    """Workers read the next model while their gradients are on the way."""

    def start(self, sim: fred.Simulation) -> None:
        for worker in range(sim.workers):
            sim.process(self.work(sim, worker))

    def work(self, sim: fred.Simulation, worker: int) -> fred.Process:
        while True:
            gradient = sim.compute(worker, sim.read(worker))
            yield gradient.finished
            sim.process(self.deliver(sim, gradient))

    def deliver(self, sim: fred.Simulation, gradient: fred.Gradient) -> fred.Process:
        yield from sim.send(gradient)
        sim.push(gradient)


class Triangular(fred.Latency):
    """Between 0 and twice the width, most often near the width."""

    width: float = Field(gt=0, examples=[0.1], description="mean, s")

    def sample(self, u: np.ndarray) -> np.ndarray:
        return self.width * np.where(u < 0.5, (2 * u) ** 0.5, 2 - (2 - 2 * u) ** 0.5)

    @property
    def mean(self) -> float:
        return self.width


class Alternating(fred.Gate):
    """One of several messages of a worker passes."""

    several: int = Field(default=2, description="messages")

    def passes(self, offer: fred.Offer) -> bool:
        return offer.number % self.several == 0


def scenario() -> fred.Scenario:
    """Return the runs with all of these classes."""
    task = fred.Task(data=fred.data.Digits(), model=fred.models.SoftmaxRegression(), loss=fred.losses.CrossEntropy())
    cluster = fred.Cluster(
        workers=4,
        compute=Triangular(width=0.1),
        nodes=2,
        contention=(fred.contention.Job(nodes=(1,), slowdown=2.0),),
        faults=(fred.faults.Outage(workers=(0,), begin=1.0, end=2.0),),
        network=fred.network.Network(latency=fred.latency.LogNormal(median=0.01, sigma=0.5), bandwidth=1e9),
    )
    algorithms: dict[str, fred.Server] = {
        "patient": Patient(learning_rate=0.1, patience=4, codec=fred.codecs.TopK(share=0.5)),
        "diloco": HalvedDiLoCo(learning_rate=0.1),
        "asgd": fred.systems.ASGD(learning_rate=0.1),
    }
    runs: dict[str, dict[str, fred.Component]] = {name: {"algorithm": algorithm} for name, algorithm in algorithms.items()}
    runs["patient"]["protocol"] = Ahead()
    runs["gossip"] = {
        "algorithm": fred.systems.DPSGD(learning_rate=0.1),
        "protocol": fred.protocols.Gossip(topology=fred.topology.Ring(), order="mix-first"),
    }
    runs["gated"] = {"algorithm": algorithms["asgd"], "protocol": fred.protocols.Gated(push_gate=Alternating())}
    return fred.scenario(task=task, cluster=cluster, stop=fred.Stop(updates=24), evaluate=fred.Evaluate(points=2), runs=runs)


def losses(progress: Callable[[fred.Outcome], float] = lambda outcome: float(outcome.summary["loss"])) -> pd.Series:
    """Return the loss of each run."""
    result: fred.Result = fred.run(scenario())
    run: fred.Run = result.outcome("patient").run
    if not isinstance(run.algorithm, Patient):
        raise fred.FredError("a run has another algorithm than its scenario")
    return pd.Series({name: progress(result.outcome(name)) for name in result.scenario.runs})
