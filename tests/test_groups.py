"""The nodes that generated a trace are found from its step times; independent workers have none."""

import numpy as np
import pytest

from fred.traces.trace import find_groups


def autoregressive(rng: np.random.Generator, coefficient: float, deviation: float, shape: tuple[int, int]) -> np.ndarray:
    values = rng.normal(scale=deviation, size=shape)
    for step in range(1, len(values)):
        values[step] = coefficient * values[step - 1] + np.sqrt(1 - coefficient**2) * values[step]
    return values


def make_trace(seed: int, node: np.ndarray, iterations: int, kind: str) -> np.ndarray:
    """Run-times s [iterations, workers] of workers on nodes that share slow regimes, AR(1) noise, or both with the cluster."""
    rng = np.random.default_rng(seed)
    shape, of_nodes = (iterations, len(node)), (iterations, int(node.max()) + 1)
    logs = rng.normal(scale=0.12, size=shape) + rng.normal(scale=0.1, size=len(node))
    if kind in ("noise", "both"):
        logs += (autoregressive(rng, 0.95, 0.06, of_nodes) + rng.normal(scale=0.04, size=of_nodes))[:, node]
    if kind in ("regimes", "both"):
        logs += (autoregressive(rng, 0.97, 1.0, of_nodes) > 1)[:, node] * 0.7
    if kind == "both":
        logs += autoregressive(rng, 0.9, 0.2, (iterations, 1))
    return np.exp(logs)


@pytest.mark.parametrize("sizes", [(5, 5, 10), (40, 40, 40, 38), pytest.param((68,) * 15 + (67,), marks=pytest.mark.slow)])
def test_the_nodes_of_a_trace_are_found(sizes):
    node = np.repeat(np.arange(len(sizes)), sizes)
    for kind in ("noise", "regimes", "both"):
        for seed in range(2):
            assert np.array_equal(find_groups(make_trace(seed, node, 1500, kind)), node), (kind, seed)


def test_groups_are_numbered_in_the_order_of_their_first_workers_and_loners_are_alone():
    node = np.tile([2, 0, 1], 10)
    seconds = make_trace(0, node, 1500, "noise")
    seconds[:, 4] = np.random.default_rng(1).lognormal(size=1500)
    assert find_groups(seconds).tolist() == [0, 1, 2, 0, 3, 2] + [0, 1, 2] * 8, "worker 4 is alone"


@pytest.mark.parametrize(("iterations", "workers"), [(30, 256), (300, 10), (100, 64), (1500, 100)])
def test_independent_workers_are_one_group(iterations, workers):
    rng = np.random.default_rng(5)
    noise = rng.normal(size=(iterations, workers))
    for _ in range(3):
        for kind, logs in {
            "lognormal": noise,
            "random walk": 0.1 * noise.cumsum(0),
            "pareto": rng.pareto(0.7, noise.shape),
            "uneven": noise * rng.lognormal(sigma=0.5, size=workers) + 0.3 * rng.normal(size=(iterations, 1)),
        }.items():
            assert not find_groups(np.exp(np.minimum(logs, 100))).any(), kind


def test_workers_that_never_vary_and_short_traces_are_one_group():
    for shape in ((1, 5), (5, 100), (300, 1), (300, 2)):
        assert find_groups(np.random.default_rng(0).lognormal(size=shape)).tolist() == [0] * shape[1], shape
    assert not find_groups(np.ones((100, 6))).any()
    seconds = make_trace(0, np.repeat([0, 1], 10), 1500, "noise")
    seconds[:, 3] = 1.0
    assert find_groups(seconds)[[2, 3, 4, 10]].tolist() == [0, 1, 0, 2]
