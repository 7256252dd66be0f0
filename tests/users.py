"""Models, and a protocol, as users write them, which know nothing of what FRED does to keep their bits the same."""

import random
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax

from fred.layout import Layout
from fred.learning.models.adapters import FlaxModel
from fred.learning.models.model import Model, Params
from fred.timing.cluster import Cluster
from fred.timing.protocol import Protocol
from fred.timing.recorder import Copy, Gradient
from fred.timing.simulation import Process, Simulation


class PlainConvolution(Model):
    """`lax.conv_general_dilated` in NHWC with stride and dilation, then a linear layer."""

    stride: int = 1
    dilation: int = 1

    def init(self, key: jax.Array, input_shape: tuple[int, ...], outputs: int) -> Params:
        one, two = jax.random.split(key)
        kernel = 0.3 * jax.random.normal(one, (3, 3, input_shape[2], 4))
        features = self._features(kernel, jnp.zeros((1, *input_shape))).size
        return {"kernel": kernel, "weights": 0.1 * jax.random.normal(two, (features, outputs))}

    def apply(self, params: Params, inputs: jax.Array) -> jax.Array:
        return self._features(params["kernel"], inputs).reshape(len(inputs), -1) @ params["weights"]

    def _features(self, kernel: jax.Array, inputs: jax.Array) -> jax.Array:
        strides, dilations = (self.stride,) * 2, (self.dilation,) * 2
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.nn.relu(
            lax.conv_general_dilated(inputs, kernel, strides, "SAME", rhs_dilation=dilations, dimension_numbers=numbers)
        )


class Flax(FlaxModel):
    """A Flax network with two convolutions, normalised layers, and pooling."""

    width: int = 6

    def module(self) -> nn.Module:
        layers: list[Callable] = [nn.Conv(self.width, (3, 3)), nn.LayerNorm(), nn.gelu, nn.Conv(3, (2, 2), strides=2), nn.relu]
        return nn.Sequential([*layers, lambda x: x.mean((1, 2)), nn.Dense(10)])


class Anything(Protocol):
    """Does one thing after another that no sensible protocol would: a random program of verbs, drawn from `number`.

    Rounds hold any number of gradients, of any workers, some of them twice, some of them used before; some are empty.
    """

    number: int = 0
    peers: bool = False  # whether workers have replicas of their own, or share one that is cut into the servers' blocks

    def layout(self, cluster: Cluster) -> Layout:
        return Layout.peers(cluster.size) if self.peers else Layout.central(cluster.servers)

    def start(self, sim: Simulation) -> None:
        sim.process(self._work(sim, random.Random(self.number)))

    def _work(self, sim: Simulation, rng: random.Random) -> Process:
        copies = [self._read(sim, worker) for worker in range(sim.workers)]
        held: list[Gradient] = []
        while True:
            worker = rng.randrange(sim.workers)
            replica, block = (worker, 0) if self.peers else (0, rng.randrange(sim.servers))
            action = rng.choice(["compute", "compute", "read", "push", "add", "add", "commit", "drop", "meet"])
            if action == "compute":
                gradient = sim.compute(worker, copies[worker])
                yield gradient.finished
                held = [*held[-5:], gradient]
            elif action == "read":
                copies[worker] = self._read(sim, worker)
            elif action == "push" and held:
                sim.push(rng.choice(held), replica, block=block)
            elif action == "add" and held:
                sim.add(rng.choice(held), replica, block=block, weight=rng.choice([1.0, 1.0, 0.5]))
            elif action == "commit":
                sim.commit(replica, block, rng.choice([None, None, 0.3]))
            elif action == "drop" and held:
                sim.drop(held.pop(0), replica, block=block)
            elif action == "meet" and self.peers:
                parts = [(copies[rng.randrange(sim.workers)], weight) for weight in rng.choice([(1.0,), (0.5, 0.25, 0.25)])]
                sim.sync(worker, sim.mix(worker, parts), *rng.choice([(0.0, 1.0), (0.5, 0.5)]))

    def _read(self, sim: Simulation, worker: int) -> Copy:
        if self.peers:
            return sim.own(worker)
        if sim.servers == 1:
            return sim.read(worker)
        return sim.compose(worker, [sim.read_block(worker, server)[0] for server in range(sim.servers)])


class Attention(Model):
    """One head of attention over an image's rows, then their mean."""

    width: int = 5

    def init(self, key: jax.Array, input_shape: tuple[int, ...], outputs: int) -> Params:
        keys = jax.random.split(key, 4)
        sizes = [(input_shape[1], self.width)] * 3 + [(self.width, outputs)]
        return {name: 0.3 * jax.random.normal(own, size) for name, own, size in zip("qkvo", keys, sizes, strict=True)}

    def apply(self, params: Params, inputs: jax.Array) -> jax.Array:
        rows = inputs[..., 0]
        queries, keys, values = (rows @ params[name] for name in "qkv")
        weights = jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", queries, keys))
        return jnp.einsum("bqk,bkd->bqd", weights, values).mean(1) @ params["o"]


class Recurrent(Model):
    """A recurrent network that reads an image row by row, in a `lax.scan`."""

    width: int = 5

    def init(self, key: jax.Array, input_shape: tuple[int, ...], outputs: int) -> Params:
        one, two, three = jax.random.split(key, 3)
        into = 0.3 * jax.random.normal(one, (input_shape[1], self.width))
        around = 0.3 * jax.random.normal(two, (self.width, self.width))
        return {"in": into, "around": around, "out": jax.random.normal(three, (self.width, outputs))}

    def apply(self, params: Params, inputs: jax.Array) -> jax.Array:
        def step(state: jax.Array, row: jax.Array) -> tuple[jax.Array, None]:
            return jnp.tanh(row @ params["in"] + state @ params["around"]), None

        state, _ = lax.scan(step, jnp.zeros((len(inputs), self.width)), inputs[..., 0].swapaxes(0, 1))
        return state @ params["out"]
