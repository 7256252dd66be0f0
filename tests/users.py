"""Models, a protocol and gates, as users write them, which know nothing of what FRED does to keep their bits the same."""

import random
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax

from fred import Cluster, Copy, FlaxModel, Gate, Gradient, Layout, Model, Offer, Params, Process, Protocol, Simulation


class PlainConvolution(Model):
    """`lax.conv_general_dilated` in NHWC with stride and dilation, then a linear layer."""

    stride: int = 1
    dilation: int = 1

    def init(self, key: jax.Array, input_shape: tuple[int, ...], outputs: int) -> Params:
        first_key, second_key = jax.random.split(key)
        kernel = 0.3 * jax.random.normal(first_key, (3, 3, input_shape[2], 4))
        features = self._features(kernel, jnp.zeros((1, *input_shape))).size
        return {"kernel": kernel, "weights": 0.1 * jax.random.normal(second_key, (features, outputs))}

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

    Rounds hold any number of messages, of any workers, some of them twice, some of them used before; some are empty. Models are
    mixed, composed of blocks, synchronised and taken from each other, whatever they are.
    """

    number: int = 0
    peers: bool = False  # whether workers have replicas of their own, or share one; the servers' number of blocks in each

    def layout(self, cluster: Cluster) -> Layout:
        replicas = cluster.size if self.peers else 1
        return Layout(replicas, range(replicas), range(0 if self.peers else 1), cluster.servers)

    def start(self, sim: Simulation) -> None:
        copies = [_read_copy(sim, worker, self.peers) for worker in range(sim.workers)]
        sim.process(_run(sim, random.Random(self.number), self.peers, copies))


ACTIONS = ["compute", "compute", "read", "push", "add", "add", "commit", "drop", "mix", "sync", "pseudo_gradient"]


def _run(sim: Simulation, rng: random.Random, peers: bool, copies: list[Copy]) -> Process:
    gradients: list[Gradient] = []
    while True:
        worker, block, action = rng.randrange(sim.workers), rng.randrange(sim.servers), rng.choice(ACTIONS)
        replica = worker if peers else 0
        if action == "compute":
            gradient = sim.compute(worker, copies[worker])
            yield gradient.finished
            gradients = [*gradients[-5:], gradient]
        elif action == "read":
            copies[worker] = _read_copy(sim, worker, peers)
        elif action == "push" and gradients:
            sim.push(rng.choice(gradients), replica, block=block)
        elif action == "add" and gradients:
            sim.add(rng.choice(gradients), replica, block=block, weight=rng.choice([1.0, 1.0, 0.5]))
        elif action == "commit":
            sim.commit(replica, block, rng.choice([None, None, 0.3]))
        elif action == "drop" and gradients:
            sim.drop(gradients.pop(0), replica, block=block)
        elif action == "mix":
            copies[worker] = _mix(sim, rng, worker, block, copies)
        elif action == "sync":
            keep, weight = rng.choice([(0.0, 1.0), (0.5, 0.5)])
            sim.sync(worker, rng.choice(copies), keep, weight, replica=replica, block=block)
        elif action == "pseudo_gradient":
            gradients.append(sim.pseudo_gradient(worker, rng.choice(copies), rng.choice(copies)))


def _read_copy(sim: Simulation, worker: int, peers: bool) -> Copy:
    blocks = [sim.read(worker, worker if peers else 0, block=block) for block in range(sim.servers)]
    return blocks[0] if len(blocks) == 1 else sim.compose(worker, blocks)


def _mix(sim: Simulation, rng: random.Random, worker: int, block: int, copies: list[Copy]) -> Copy:
    """One block of some copies, weighed, beside the other blocks of another."""
    parts = [(rng.choice(copies), weight) for weight in rng.choice([(1.0,), (0.5, 0.25, 0.25), (0.5, 0.5)])]
    mixed = sim.mix(worker, parts, block)
    if sim.servers == 1:
        return mixed
    other = rng.choice(copies)
    return sim.compose(worker, [mixed if number == block else other for number in range(sim.servers)])


class Attention(Model):
    """One head of attention over an image's rows, then their mean."""

    width: int = 5

    def init(self, key: jax.Array, input_shape: tuple[int, ...], outputs: int) -> Params:
        keys = jax.random.split(key, 4)
        sizes = [(input_shape[1], self.width)] * 3 + [(self.width, outputs)]
        return {name: 0.3 * jax.random.normal(subkey, size) for name, subkey, size in zip("qkvo", keys, sizes, strict=True)}

    def apply(self, params: Params, inputs: jax.Array) -> jax.Array:
        rows = inputs[..., 0]
        queries, keys, values = (rows @ params[name] for name in "qkv")
        weights = jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", queries, keys))
        return jnp.einsum("bqk,bkd->bqd", weights, values).mean(1) @ params["o"]


class Recurrent(Model):
    """A recurrent network that reads an image row by row, in a `lax.scan`."""

    width: int = 5

    def init(self, key: jax.Array, input_shape: tuple[int, ...], outputs: int) -> Params:
        input_key, hidden_key, output_key = jax.random.split(key, 3)
        input_weights = 0.3 * jax.random.normal(input_key, (input_shape[1], self.width))
        hidden_weights = 0.3 * jax.random.normal(hidden_key, (self.width, self.width))
        return {"in": input_weights, "around": hidden_weights, "out": jax.random.normal(output_key, (self.width, outputs))}

    def apply(self, params: Params, inputs: jax.Array) -> jax.Array:
        def step(state: jax.Array, row: jax.Array) -> tuple[jax.Array, None]:
            return jnp.tanh(row @ params["in"] + state @ params["around"]), None

        state, _ = lax.scan(step, jnp.zeros((len(inputs), self.width)), inputs[..., 0].swapaxes(0, 1))
        return state @ params["out"]


class Choosy(Gate):
    """A gate that passes old messages, messages after many withheld ones, and some of worker 0's."""

    oldest: int = 5
    longest: int = 3

    def passes(self, offer: Offer) -> bool:
        lucky = offer.worker == 0 and offer.draw < 0.5
        return lucky or offer.staleness > self.oldest or offer.withheld >= self.longest


class Measured(Gate):
    """Odena's eq. 9, written by somebody who does not know that FRED has it."""

    c: float = 0.2

    @property
    def needs_values(self) -> bool:
        return True

    def passes(self, offer: Offer) -> bool:
        v = offer.statistic + 1e-4
        return offer.draw < 1 / (1 + self.c / v)
