"""Mistakes in a user's own components: each is refused in one line that says what the method must do instead."""

import math
import random
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import fred
from fred.base.errors import FredError

DATA = (np.random.default_rng(0).normal(size=(40, 4)), np.arange(40) % 2)
BASE: dict[str, Any] = {
    "task": {"data": DATA, "model": "softmax"},
    "cluster": {"workers": 4},
    "stop": {"updates": 4},
    "algorithm": {"name": "asgd", "learning_rate": 0.1},
}


def make_class(base: type[Any], **members: Any) -> Any:
    """Return an instance of a user's class with these members."""
    return type("Mine", (base,), {"__module__": "__main__", **members})()


def server(update: Callable[..., Any]) -> dict[str, Any]:
    """Return an algorithm with this update, as settings."""
    return {"algorithm": type("Mine", (fred.Server,), {"__module__": "__main__", "apply_update": update})(learning_rate=0.1)}


def make_gossip(receivers: Callable[..., Any]) -> dict[str, Any]:
    """Return gossip along a topology of the user's."""
    topology = make_class(fred.Topology, receivers=receivers)
    return {"algorithm": {"name": "sgp", "learning_rate": 0.1}, "protocol": {"topology": topology}}


def make_coded(**members: Any) -> dict[str, Any]:
    """Return an algorithm with a codec of the user's."""
    usual = {"decoded": lambda self, message, memory, key: (message, memory), "wire_bits": lambda self, message: 8}
    return {"algorithm": fred.ASGD(learning_rate=0.1, codec=make_class(fred.Codec, **usual | members))}


def work(self: Any, sim: Any, worker: int) -> Any:
    """Wait for a gradient instead of its end."""
    yield sim.compute(worker, sim.read(worker))


def start(self: Any, sim: Any) -> None:
    """Start one worker."""
    sim.process(work(self, sim, 0))


def make_latency(sample: Callable[..., Any]) -> dict[str, Any]:
    """Return a cluster with a latency of the user's."""
    return {"cluster": {"workers": 2, "compute": make_class(fred.Latency, sample=sample, mean=property(lambda self: 0.5))}}


MISTAKES: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "a receiver that is the sender": (
        lambda: make_gossip(lambda self, worker, iteration, workers: [worker]),
        r"`receivers` of Mine returns \[1\] for worker 1 in iteration 0; .* of 0 to 3 without 1",
    ),
    "a receiver that does not exist": (
        lambda: make_gossip(lambda self, worker, iteration, workers: [worker + 1]),
        r"`receivers` of Mine returns \[4\] for worker 3 in iteration 0",
    ),
    "one receiver instead of a list": (
        lambda: make_gossip(lambda self, worker, iteration, workers: (worker + 1) % workers),
        r"`receivers` of Mine returns 2 for worker 1 .*; expected a list of other workers, each once",
    ),
    "a codec without its new state": (
        lambda: make_coded(decoded=lambda self, message, memory, key: message),
        r"`decoded` of Mine returns a dict; expected two values, .*: `return message, memory`",
    ),
    "a size that is not whole": (
        lambda: make_coded(wire_bits=lambda self, message: 1.5),
        r"`wire_bits` of Mine returns 1.5; expected a whole number, such as `math.ceil\(...\)`",
    ),
    "a codec without a size": (
        lambda: {
            "algorithm": fred.ASGD(
                learning_rate=0.1, codec=make_class(fred.Codec, decoded=lambda self, message, memory, key: 0)
            )
        },
        r"^Mine lacks the method `wire_bits\(self, message\)`: Return the size of a coded message on the wire, in bits$",
    ),
    "a latency without a mean": (
        lambda: {"cluster": {"workers": 2, "compute": make_class(fred.Latency, sample=lambda self, u: u)}},
        r"^Mine lacks the property `mean`: Return the expected duration, s",
    ),
    "a latency that draws": (
        lambda: make_latency(lambda self, u: np.random.random(len(u))),
        "draw no random numbers in `sample`",
    ),
    "durations that are no numbers": (lambda: make_latency(lambda self, u: u * math.nan), "its median is nan s"),
    "an update that draws": (
        lambda: server(lambda self, state, grads, timestamp, worker: self.step(state, grads, scale=np.random.random())),
        r"draws from `random` or `numpy.random`, .* expected `jax.random`, with a key from the state",
    ),
    "an update that draws with Python's generator": (
        lambda: server(lambda self, state, grads, timestamp, worker: self.step(state, grads, scale=random.random())),
        "draws from `random` or `numpy.random`",
    ),
    "gradients times a number": (
        lambda: server(lambda self, state, grads, timestamp, worker: self.step(state, grads * 0.5)),
        r"trees of arrays: write `jax.tree.map\(lambda array: 0.5 \* array, grads\)`",
    ),
    "a misspelt method that is called": (
        lambda: server(lambda self, state, grads, timestamp, worker: self.stp(state, grads)),
        "no attribute 'stp'; did you mean `step`",
    ),
    "a process that waits for a gradient": (
        lambda: {"protocol": make_class(fred.Protocol, start=start)},
        "not <.*>: write `yield gradient.finished`",
    ),
    "a model with other parameters": (
        lambda: {
            "task": {"data": DATA, "model": make_class(fred.Model, init=lambda self, key: {}, apply=lambda self, params, x: x)}
        },
        r"`init` of Mine must take \(self, key, input_shape, outputs\): too many positional arguments \(.*, line \d+\)",
    ),
    "an update with other parameters": (
        lambda: server(lambda self, state, grads, timestamp: self.step(state, grads)),
        r"`apply_update` of Mine must take \(self, state, message, timestamp, worker\): too many .*test_own_mistakes.py, line \d+\)",
    ),
    "data with other parameters": (
        lambda: {"task": {"data": make_class(fred.Data, load=lambda self: None), "model": "softmax"}},
        r"`load` of Mine must take \(self, seed\)",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_an_own_class_is_refused_with_what_the_method_must_do(name):
    make, words = MISTAKES[name]
    with pytest.raises(FredError, match=words) as refusal:
        fred.run(BASE | make())
    assert "\n" not in str(refusal.value)


def test_the_cure_for_gradients_times_a_number_runs():
    half = server(
        lambda self, state, grads, timestamp, worker: self.step(state, jax.tree.map(lambda array: 0.5 * array, grads))
    )
    halved = BASE | {"algorithm": {"name": "asgd", "learning_rate": 0.05}}
    assert fred.run(BASE | half)["Mine"].params_digest == fred.run(halved)["asgd"].params_digest


def test_a_module_that_does_not_fit_is_named_in_the_refusal():
    nnx = pytest.importorskip("flax.nnx")
    with pytest.raises(FredError, match=r"model `.*Linear` gives \[2, 3\] for 2 examples; expected \[2, 2\]"):
        fred.run(BASE | {"task": {"data": DATA, "model": nnx.Linear(4, 3, rngs=nnx.Rngs(0))}})
