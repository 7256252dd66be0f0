"""The networks of the deep Markov model [Teng & Wood 2018, section 3.1.3], and a variant with weights shared among workers.

A latent state z for each node moves by a gated transition and emits its workers' compute times. The last axis of an array
holds components, the one before it nodes; other axes come first. Parameters are dicts of dense layers, so that they are
saved by name.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

import fred.portable  # noqa: F401  the same bits on every CPU

Params = dict[str, dict[str, Array]]

_LEAST_SCALE = 1e-3
_CALM = -1.5  # bias of a softplus that gives a small scale
_CLOSED = -2.0  # bias that nearly closes the transition's gates
SLOW, FAST = 0.97, 0.7  # decay of the averages per round
_SLOW_PRIOR, _FAST_PRIOR = 3.0, 1.0  # weight of a prior difference of 0 in each average, in rounds


class Sizes(NamedTuple):
    """Widths of layers."""

    latent: int = 8
    summary: int = 24  # of the guide's summary of all rounds
    gate: int = 16
    proposal: int = 24
    emission: int = 16
    worker: int = 8


def dense(layer: dict[str, Array], x: Array) -> Array:
    """Apply one dense layer without its nonlinearity."""
    return x @ layer["weights"] + layer["bias"]


def scale_of(x: Array) -> Array:
    """Map any number to a positive standard deviation."""
    return jax.nn.softplus(x) + _LEAST_SCALE


def key_of(seed: int) -> Array:
    """Return a key of XLA's own generator.

    Its numbers are integers, so no CPU changes them. It compiles eight times as fast as JAX's default generator.
    """
    return jax.random.key(seed, impl="rbg")


class Network:
    """The base of all variants: a gated transition, a proposal for z, and a recurrent summary of the observations."""

    logarithmic = True  # times are log-normal; False: normal
    left_only = True  # the guide does not look ahead
    neighbours = False  # True: a node's transition depends on other nodes' states
    remembers = False  # True: it also depends on the guide's memory of earlier rounds

    def __init__(self, sizes: Sizes):
        self.sizes = sizes

    # The model.

    def init(self, key: Array, inputs: int) -> Params:
        """Return the initial parameters; `inputs` is the width of the guide's inputs.

        The initial transition is the identity, with gates nearly closed.
        """
        counter = Normals()
        self.layers(counter, inputs)  # only counts the normal numbers, so that one draw gives all
        return self.layers(Normals(jax.random.normal(key, (counter.count,))), inputs)

    def layers(self, normals: "Normals", inputs: int) -> Params:
        """Return the initial parameters, made from these normal numbers."""
        sizes = self.sizes
        latent, summary = sizes.latent, sizes.summary
        context = latent * (4 if self.neighbours else 1) + (summary if self.remembers else 0)  # width of `_context`
        return {
            "first": {"mean": jnp.zeros(latent), "scale": jnp.zeros(latent)},
            "keep": {"weights": jnp.eye(context, latent), "bias": jnp.zeros(latent)},
            "gate-1": layer(normals, context, sizes.gate),
            "gate-2": layer(normals, sizes.gate, latent, bias=_CLOSED),
            "move-1": layer(normals, context, sizes.proposal),
            "move-2": layer(normals, sizes.proposal, latent),
            "move-scale": layer(normals, latent, latent, 0.1, _CALM),
            "guide-state": layer(normals, latent, summary),
            "guide-mean": layer(normals, summary, latent),
            "guide-scale": layer(normals, summary if self.left_only else latent, latent, 0.1, _CALM),  # its input: `proposal`
            **self._summing_layers(normals, inputs),
        }

    def initial(self, params: Params) -> tuple[Array, Array]:
        """Return mean and standard deviation of the first z: [latent] each."""
        return params["first"]["mean"], scale_of(params["first"]["scale"])

    def transition(self, params: Params, z: Array, summary: Array) -> tuple[Array, Array]:
        """Return mean and deviation of the next z [..., nodes, latent], given z and the summary [section 3.1.3: G and H]."""
        context = self._context(z, summary)
        gate = jax.nn.sigmoid(dense(params["gate-2"], jax.nn.relu(dense(params["gate-1"], context))))
        move = dense(params["move-2"], jax.nn.relu(dense(params["move-1"], context)))
        mean = (1 - gate) * dense(params["keep"], context) + gate * move
        return mean, scale_of(dense(params["move-scale"], jax.nn.relu(mean)))

    def _context(self, z: Array, summary: Array) -> Array:
        """Return what a node's next z depends on: [..., nodes, context].

        That is its own z. With `neighbours`, also the mean over all nodes and the z of the two adjacent ones; the last node is
        next to the first. With `remembers`, also its summary.
        """
        parts = [z]
        if self.neighbours:
            parts += [jnp.broadcast_to(z.mean(-2, keepdims=True), z.shape), jnp.roll(z, 1, -2), jnp.roll(z, -1, -2)]
        if self.remembers:
            parts.append(summary)
        return jnp.concatenate(parts, -1)

    def emission(self, params: Params, z: Array, features: Array) -> tuple[Array, Array]:
        """Return mean and deviation of each worker's (log) time [..., nodes, workers]; z is [..., nodes, latent]."""
        raise NotImplementedError

    # The guide.

    def inputs(self, y: Array, baseline: Array, occupied: Array) -> Array:
        """Return the guide's inputs [..., nodes, inputs] for (log) times y [..., nodes, workers]."""
        raise NotImplementedError

    @property
    def memory(self) -> int:
        """Return the width of the guide's memory; the summary comes first in it."""
        return self.sizes.summary

    def _summing_layers(self, normals: "Normals", inputs: int) -> Params:
        width = self.sizes.summary
        return {"gru-in": layer(normals, inputs, width, copies=3), "gru": layer(normals, width, width, copies=3)}

    def sum_up(self, params: Params, memory: Array, inputs: Array) -> Array:
        """Return the memory after one more round, by a gated recurrent unit: [..., nodes, memory]."""
        of_inputs, of_memory = dense(params["gru-in"], inputs), dense(params["gru"], memory)
        (new_reset, new_keep, new_value), (old_reset, old_keep, old_value) = (
            jnp.split(of_inputs, 3, -1),
            jnp.split(of_memory, 3, -1),
        )
        keep = jax.nn.sigmoid(new_keep + old_keep + 1)  # + 1: initially, most of the memory persists
        return keep * memory + (1 - keep) * jnp.tanh(new_value + jax.nn.sigmoid(new_reset + old_reset) * old_value)

    def summary(self, memory: Array) -> Array:
        """Return the part of a memory that guide and transition see: [..., nodes, summary]."""
        return memory[..., : self.sizes.summary]

    def summaries(self, params: Params, inputs: Array) -> Array:
        """Return the summary after each round, [rounds, ..., nodes, summary], for inputs [rounds, ..., nodes, inputs]."""
        start = jnp.zeros((*inputs.shape[1:-1], self.memory))

        def step(memory: Array, inputs_of_round: Array) -> tuple[Array, Array]:
            memory = self.sum_up(params, memory, inputs_of_round)
            return memory, self.summary(memory)

        return jax.lax.scan(step, start, inputs)[1]

    def proposal(self, params: Params, z: Array, summary: Array) -> tuple[Array, Array]:
        """Return the guide's mean and deviation of z, given the last z and the summary so far: [..., nodes, latent] each."""
        combined = (jnp.tanh(dense(params["guide-state"], z)) + summary) / 2  # the combiner of Krishnan et al. 2017
        return dense(params["guide-mean"], combined), scale_of(dense(params["guide-scale"], combined))


class Shared(Network):
    """One small network for all workers, which sees a worker's own history, its node's summary, and the cluster's.

    So it has as many parameters for 10 workers as for 10,000, and works on clusters other than the one it was trained on.
    The memory holds the last rounds unchanged, next to the summary. They show how long ago a node changed; a recurrent unit
    alone would have to learn to count.
    """

    neighbours = True
    remembers = True
    features = 3
    recent = 12  # rounds
    # Indices in `inputs` of what is stored for each of them: the means of node and cluster, the highest.
    stored_inputs = (0, 2, 3)

    def layers(self, normals: "Normals", inputs: int) -> Params:
        sizes = self.sizes
        offsets = layer(normals, self.features, 2, 0.1)
        # Initially, a worker's offset from its node persists: with the factors in `History.features`, it is 0.6 times the slow
        # average plus 0.4 times the fast one.
        offsets["weights"] = offsets["weights"].at[:, 0].set(jnp.array([0.15, 0.1, 0.0]))
        return super().layers(normals, inputs) | {
            "emission-1": layer(normals, sizes.latent, sizes.emission),
            "emission-2": layer(normals, sizes.emission, 2, 0.3) | {"bias": jnp.array([0.0, _CALM])},
            "emission": layer(normals, sizes.latent, 2, 0.3),
            "worker": offsets,
            "worker-1": layer(normals, self.features, sizes.worker),
            "worker-2": layer(normals, sizes.worker, 2, 0.1),
        }

    def emission(self, params: Params, z: Array, features: Array) -> tuple[Array, Array]:
        # Both have two components: mean and (before the softplus) deviation of the node, offset and log factor of the worker.
        node = dense(params["emission"], z)
        node += dense(params["emission-2"], jnp.tanh(dense(params["emission-1"], z)))
        worker = dense(params["worker"], features)
        worker += dense(params["worker-2"], jnp.tanh(dense(params["worker-1"], features)))
        deviation = (jax.nn.softplus(node[..., 1]) + 0.01)[..., None] * jnp.exp(worker[..., 1])
        return node[..., :1] + worker[..., 0], deviation

    def inputs(self, y: Array, baseline: Array, occupied: Array) -> Array:
        residuals = jnp.where(occupied, y - baseline, 0.0)
        workers = occupied.sum(-1)  # of each node
        mean = residuals.sum(-1) / workers
        spread = jnp.sqrt(jnp.maximum((residuals**2).sum(-1) / workers - mean**2, 1e-6))
        mean_of_all = jnp.broadcast_to(mean.mean(-1, keepdims=True), mean.shape)
        highest = jnp.broadcast_to(mean.max(-1, keepdims=True), mean.shape)
        neighbour_means = jnp.roll(mean, 1, -1), jnp.roll(mean, -1, -1)
        return 2 * jnp.stack([mean, 2 * spread, mean_of_all, highest, *neighbour_means], -1)

    @property
    def memory(self) -> int:
        return self.sizes.summary + self.recent * len(self.stored_inputs)

    def _summing_layers(self, normals: "Normals", inputs: int) -> Params:
        return super()._summing_layers(normals, inputs + self.recent * len(self.stored_inputs))

    def sum_up(self, params: Params, memory: Array, inputs: Array) -> Array:
        recent = memory[..., self.sizes.summary :]  # stored inputs of the last rounds, newest first
        summary = super().sum_up(params, self.summary(memory), jnp.concatenate([inputs, recent], -1))
        latest = jnp.stack([inputs[..., index] for index in self.stored_inputs], -1)
        return jnp.concatenate([summary, latest, recent[..., : -len(self.stored_inputs)]], -1)


class Plain(Network):
    """A network with one output for each worker and one state for all, as in the paper; the guide does not look ahead."""

    def __init__(self, sizes: Sizes, workers: int):
        super().__init__(sizes._replace(latent=16, summary=32, emission=32))
        self.workers = workers

    def layers(self, normals: "Normals", inputs: int) -> Params:
        width = self.sizes.emission
        return super().layers(normals, inputs) | {
            "mean-1": layer(normals, self.sizes.latent, width),
            "mean-2": layer(normals, width, self.workers, 0.3),
            "scale-1": layer(normals, self.workers, width),
            "scale-2": layer(normals, width, self.workers, 0.1, _CALM),
        }

    def emission(self, params: Params, z: Array, features: Array) -> tuple[Array, Array]:
        mean = dense(params["mean-2"], dense(params["mean-1"], z))
        return mean, scale_of(dense(params["scale-2"], jax.nn.relu(dense(params["scale-1"], mean))))

    def inputs(self, y: Array, baseline: Array, occupied: Array) -> Array:
        return y


class Printed(Plain):
    """The network as printed: normal times, and a guide that sees the rounds before and after t, but not t itself."""

    logarithmic = False
    left_only = False

    def _summing_layers(self, normals: "Normals", inputs: int) -> Params:
        width = self.sizes.summary
        return {
            f"{side}{part}": layer(normals, size, width)
            for side in ("left", "right")
            for part, size in (("-in", inputs), ("", width))
        }

    def summaries(self, params: Params, inputs: Array) -> Array:
        start = jnp.zeros((*inputs.shape[1:-1], self.sizes.summary))

        def summarise_before(side: str, rounds: Array) -> Array:
            def step(summary: Array, inputs_of_round: Array) -> tuple[Array, Array]:
                after = jax.nn.relu(dense(params[f"{side}-in"], inputs_of_round) + dense(params[side], summary))
                return after, summary  # the summary before the round, as printed

            return jax.lax.scan(step, start, rounds)[1]

        return summarise_before("left", inputs) + summarise_before("right", inputs[::-1])[::-1]

    def proposal(self, params: Params, z: Array, summary: Array) -> tuple[Array, Array]:
        # The combiner averages three terms: the summary is the sum of one from each side.
        mean = dense(params["guide-mean"], (jnp.tanh(dense(params["guide-state"], z)) + summary) / 3)
        return mean, scale_of(dense(params["guide-scale"], mean))


@lru_cache(maxsize=8)
def create_network(variant: str, workers: int) -> Network:
    """Return the network of a variant, for this number of workers."""
    sizes = Sizes()
    if variant == "shared":
        return Shared(sizes)
    return {"plain": Plain, "printed": Printed}[variant](sizes, workers)


def layer(normals: "Normals", inputs: int, outputs: int, gain: float = 1.0, bias: float = 0.0, copies: int = 1) -> Any:
    """Return the initial parameters of `copies` dense layers, normal with variance gain^2 / inputs, in one array."""
    weights = gain * normals.take(inputs, copies * outputs) / jnp.sqrt(inputs)
    return {"weights": weights, "bias": jnp.full(copies * outputs, bias)}


class Normals:
    """A supply of independent normal numbers, drawn all at once: every separate draw takes a tenth of a second to compile.

    Without values it returns zeros and only counts the numbers taken.
    """

    def __init__(self, values: Array | None = None):
        self._values, self.count = values, 0

    def take(self, *shape: int) -> Array:
        """Return the next numbers, in this shape."""
        first, self.count = self.count, self.count + math.prod(shape)
        return jnp.zeros(shape) if self._values is None else self._values[first : self.count].reshape(shape)


class History(NamedTuple):
    """Decaying sums of each worker's difference from its node's mean, and of the rounds in which it finished.

    All arrays are [..., nodes, places]. A round in which a worker was dropped leaves its history unchanged.
    """

    slow: Array
    fast: Array
    last: Array
    slow_rounds: Array
    fast_rounds: Array

    @classmethod
    def initial(cls, shape: tuple[int, ...]) -> "History":
        """Return the history before the first round."""
        zeros = jnp.zeros(shape)
        return cls(zeros, zeros, zeros, zeros, zeros)

    def update(self, y: Array, finished: Array, occupied: Array) -> "History":
        """Return the history after one more round of (log) times y [nodes, places]."""
        mean = jnp.where(occupied, y, 0.0).sum(-1, keepdims=True) / occupied.sum(-1, keepdims=True)
        residuals = jnp.where(occupied, y - mean, 0.0)
        extended = History(
            SLOW * self.slow + residuals,
            FAST * self.fast + residuals,
            residuals,
            SLOW * self.slow_rounds + 1,
            FAST * self.fast_rounds + 1,
        )
        return History(*(jnp.where(finished, new, old) for new, old in zip(extended, self, strict=True)))

    @property
    def baseline(self) -> Array:
        """Return how much slower each worker is than its node in the long run, in (log) time."""
        return self.slow / (self.slow_rounds + _SLOW_PRIOR)

    @property
    def features(self) -> Array:
        """Return the inputs of the network: [..., nodes, places, 3]."""
        return jnp.stack([4 * self.baseline, 4 * self.fast / (self.fast_rounds + _FAST_PRIOR), 2 * self.last], -1)
