"""The worlds that tests share: small scenarios in one line, random clusters, and schedules without arithmetic."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

from fred.cluster.cluster import Cluster
from fred.components import registry
from fred.outcomes.outcome import Outcome
from fred.protocols.protocol import Protocol
from fred.running.execution import execute
from fred.running.recording import Recording
from fred.schedule.layout import Sizes
from fred.schedule.schedule import Schedule
from fred.specification.loading import validated
from fred.specification.shape import Run
from fred.timing.recorder import Listener, Recorder
from fred.timing.simulation import Simulation

TASK: dict[str, Any] = {
    "data": {"name": "synthetic-classification", "examples": 600, "evaluation": 100, "features": 8, "classes": 4},
    "model": "softmax",  # compiled twice as fast as a network
    "batch_size": 4,
}
LAYERS: dict[str, Any] = {**TASK, "model": {"name": "mlp", "hidden": [6]}}
COMPUTE = {"name": "lognormal", "median": 0.1, "sigma": 0.4}
UNEQUAL: dict[str, Any] = {"workers": 4, "compute": {"name": "lognormal", "median": 0.1, "sigma": 0.7}}
NETWORK: dict[str, Any] = {"latency": {"name": "exponential", "scale": 0.02}, "bandwidth": 1e5}
RATE = 0.125  # a power of two: products with it are exact


def make_run(algorithm: Any = "asgd", **options: Any) -> Run:
    """Return a small run; keyword arguments replace its parts."""
    if isinstance(algorithm, str):
        algorithm = {"name": algorithm, "learning_rate": 0.1}
    defaults = {"task": TASK, "cluster": {"workers": 4, "compute": COMPUTE}, "stop": {"gradients": 60}}
    specification = {"runs": {"run": {**defaults, "algorithm": algorithm, "evaluate": {"points": 3}, **options}}}
    return validated(specification, lambda keys: ".".join(map(str, keys))).runs["run"]


def outcome(
    algorithm: Any = "asgd", protocol: Any = None, cluster: Any = UNEQUAL, seed: int = 3, inline: bool = False, **options: Any
) -> Outcome:
    """Run an algorithm on a small task, or with `task=None` its timing alone; keyword arguments replace parts of the run."""
    return execute("run", _unequal_run(algorithm, protocol=protocol, cluster=cluster, **options), seed, inline)


def _unequal_run(algorithm: Any, **options: Any) -> Run:
    algorithm = {"learning_rate": RATE, **({"name": algorithm} if isinstance(algorithm, str) else algorithm)}
    return make_run(algorithm, **{"stop": {"gradients": 160}, **options})


def mostly_slow(values: Iterable[Any], quick: Iterable[Any]) -> list[Any]:
    """Return a test's parameters, marked as slow unless they are among the quick ones."""
    quick = list(quick)
    rows = [(value, value if isinstance(value, tuple) else (value,)) for value in values]
    return [pytest.param(*row, marks=() if value in quick else pytest.mark.slow) for value, row in rows]


def sized_schedule(algorithm: Any, protocol: Any = None, cluster: Any = UNEQUAL, seed: int = 3, **options: Any) -> Schedule:
    """Return a run's schedule, with the bytes of its task's messages; nothing is computed."""
    from fred.running.model_training import Problem  # imports jax

    run = _unequal_run(algorithm, protocol=protocol, cluster=cluster, **options)
    assert run.task is not None
    return Recording(run, seed, Problem(run.task, run, seed).sizes).schedule()


def constant(*seconds: float, **options: Any) -> dict[str, Any]:
    """Return a cluster of workers that always take these times, s."""
    return {
        "workers": len(seconds),
        "speeds": [1 / value for value in seconds],
        "compute": {"name": "constant", "seconds": 1.0},
        **options,
    }


def rows_of(schedule: Schedule) -> Iterable[Any]:
    """The rows of a schedule's table, as named tuples."""
    return schedule.frame().itertuples()


def stale_gradients(schedule: Schedule) -> list[int]:
    """Updates by gradients between the read and the use of each gradient, from the history of each block's changes."""
    history: dict[tuple[int, int], list[str]] = {}
    stale = []
    for row in rows_of(schedule):
        changes = history.setdefault((row.replica, row.block), [])
        if row.verb in ("PUSH", "ADD"):
            stale.append(sum(verb != "SYNC" for verb in changes[row.timestamp :]))
        if row.verb in ("PUSH", "COMMIT", "SYNC"):
            changes.append(row.verb)
    return stale


def same_outcome(a: Outcome, b: Outcome) -> bool:
    """Return whether two runs agree to the last bit."""
    return a.schedule.digest() == b.schedule.digest() and a.params_digest == b.params_digest and a.metrics.equals(b.metrics)


LATENCIES = st.sampled_from(
    [
        {"name": "constant", "seconds": 0.1},
        {"name": "constant", "seconds": 0.0},
        {"name": "exponential", "scale": 0.1},
        {"name": "pareto", "minimum": 0.02, "alpha": 1.1},
        {"name": "bimodal", "fast": 0.1, "slow": 2.0, "slow_fraction": 0.1},
    ]
)
_SLOW = {"name": "markov-switching", "slowdown": 4.0, "fast_seconds": 1.0, "slow_seconds": 0.5}
NETWORKS = st.none() | st.fixed_dictionaries(
    {"latency": LATENCIES, "bandwidth": st.none() | st.just(1e5), "server_bandwidth": st.none() | st.just(1e5)},
    optional={
        "within": st.fixed_dictionaries({"latency": LATENCIES}),
        "node_bandwidth": st.just(1e5),
        "servers": st.just([{"servers": [0], "latency": {"name": "constant", "seconds": 0.3}}]),
        "contention": st.sampled_from([[{"of": of, "regime": _SLOW}] for of in ("workers", "servers")]),
        "collective": st.sampled_from(["recursive-doubling", "tree"]),
        "sharing": st.sampled_from(["queue", "fair"]),
    },
)
CLUSTERS = st.builds(
    lambda speeds, compute, network, servers, nodes, contention: Cluster(
        workers=len(speeds),
        speeds=speeds,
        compute=compute,
        network=network,
        servers=servers,
        nodes=min(nodes, len(speeds)),
        contention=contention,
    ),
    st.lists(st.sampled_from([0.1, 0.5, 1.0, 3.0]), min_size=1, max_size=7),
    LATENCIES.filter(lambda latency: latency.get("seconds") != 0),
    NETWORKS,
    st.sampled_from([1, 1, 3]),
    st.sampled_from([1, 2]),
    st.sampled_from([[], [], [_SLOW]]),
)
PROTOCOLS = st.sampled_from(sorted(registry.REGISTRY["protocol"]))


class Blind(Listener):
    """Computes nothing; where timing follows values, they are always the same."""

    def statistic(self, cell: int) -> float:
        """Always the same."""
        return 0.05


def record(
    protocol: Protocol,
    cluster: Cluster,
    gradients: float = np.inf,
    seconds: float = np.inf,
    seed: int = 0,
    listener: Listener | None = None,
    sizes: Sizes | int = 1000,
) -> Schedule:
    """Record a run's events; a listener may receive them."""
    recorder = Recorder(cluster.size, protocol.layout(cluster), gradients=gradients, listener=listener or Blind())
    simulation = Simulation(cluster, recorder, seed, sizes)
    protocol.start(simulation)
    simulation.run(seconds)
    return simulation.schedule()


def fitting_protocol(name: str, cluster: Cluster, **overrides: Any) -> Protocol:
    """An instance of the protocol, with options away from their defaults where that is more interesting; clusters that do not fit are left out."""
    options: dict[str, dict[str, Any]] = {
        "gated": {"push_gate": {"name": "statistical", "c": 0.1}, "fetch_gate": {"name": "statistical", "c": 0.1}},
        "partial": {"gradients": 1 + cluster.size // 2, "blocks_percent": 60, "push_timeout": 0.03, "pull_timeout": 0.01},
        "stale-synchronous": {"bound": 2, "clocks": "each", "cut": "layers", "overlap": True},
        "softsync": {"n": 2, "clocks": "each"},
        "fixed-lag": {"lag": 3, "ramp": 5},
        "dispatcher": {"push_gate": {"name": "periodic", "k": 3}, "fetch_gate": {"name": "periodic", "k": 2}},
        "cutoff": {"rule": {"name": "elfving"}},
        "group-averaging": {"period": 3},
        "local-steps": {"period": 3},
        "outer-steps": {"period": 3},
        "overlapped-steps": {"period": 3},
        "local-servers": {"period": 3, "pushes": 4},
        "in-pairs": {"period": 3},
        "quorum": {"period": 3},
        "streaming": {"period": 4, "delay": 1, "mixing": 0.5},
        "eager": {"period": 4, "start_by": "solo"},
        "synchronous": {"backup_workers": cluster.size // 3, "late": "interrupt"},
    }
    protocol = registry.lookup("protocol", name).model_validate({**options.get(name, {}), **overrides})
    try:
        protocol.check(cluster)
    except ValueError:
        assume(False)
    return protocol
