"""The particle filter of the model: the belief about the nodes' states, and samples of the next round's compute times.

`Grid` arranges workers by node, so that shared values are computed once per node and sums run along an axis. The normal
distribution has functions that are accurate in 32 bits, also in its far tail, where dropped workers lie.
"""

import math
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import log_ndtr, ndtri
from numpy.typing import NDArray

from fred.prediction.deep.networks import History, Network, Params, key_of

_FAR = 3.0  # from here on the inverse of the distribution function loses too many digits
_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
_STREAMS = 10  # most imputations of a round; each has the same number of particles
_SHORTEST_TIME = 1e-3  # least sampled time under the normal model, in units of the normaliser


@dataclass(frozen=True, eq=False)
class Grid:
    """A grid of nodes x places; nodes with fewer workers than the largest have empty places."""

    node_of: NDArray[np.int64]  # [workers], nodes numbered from 0

    @cached_property
    def place(self) -> NDArray[np.int64]:
        """Return the index of each worker in the flattened grid: [workers]."""
        order = np.argsort(self.node_of, kind="stable")  # the workers, node by node
        place = np.empty(len(order), np.int64)
        starts = np.cumsum(self._sizes) - self._sizes  # of each node in that order
        rank_on_node = np.arange(len(order)) - np.repeat(starts, self._sizes)
        first_place = np.repeat(np.arange(self.shape[0]), self._sizes) * self.shape[1]
        place[order] = first_place + rank_on_node
        return place

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Return the number of nodes, and of workers on the largest node."""
        return len(self._sizes), int(self._sizes.max())

    @cached_property
    def _sizes(self) -> NDArray[np.int64]:
        return np.bincount(self.node_of)

    @cached_property
    def occupied(self) -> NDArray[np.bool_]:
        """Return True for places that hold a worker: [nodes, places]."""
        return np.arange(self.shape[1]) < self._sizes[:, None]

    def spread(self, values: NDArray[Any]) -> NDArray[Any]:
        """Place the workers' values [..., workers] on the grid [..., nodes, places]; empty places get zeros."""
        flat = np.zeros((*values.shape[:-1], self.occupied.size), values.dtype)
        flat[..., self.place] = values
        return flat.reshape(*values.shape[:-1], *self.shape)


def log_density(y: Array, mean: Array, scale: Array) -> Array:
    """Return the log density of a normal variable."""
    return -0.5 * ((y - mean) / scale) ** 2 - jnp.log(scale) - _HALF_LOG_TWO_PI


def log_survival(y: Array, mean: Array, scale: Array) -> Array:
    """Return the log probability that a normal variable exceeds y."""
    return log_ndtr((mean - y) / scale)


def truncated_quantile(bound: Array, u: Array) -> Array:
    """Return the quantile 1 - u of a standard normal variable truncated to values above `bound`; u in (0, 1], any shape.

    Far out, Newton's method solves log sf(x) = log sf(bound) + log u. It starts from sqrt(bound^2 - 2 log u), which is
    exact for the leading term of the tail.
    """
    target = log_ndtr(-bound) + jnp.log(u)
    direct = -ndtri(jnp.exp(jnp.maximum(target, -20.0)))  # unused below -6.6, the log survival of _FAR
    x = jnp.sqrt(jnp.maximum(bound, 1.0) ** 2 - 2 * jnp.log(u))
    for _ in range(3):
        survival = log_ndtr(-x)
        x = x + (survival - target) * jnp.exp(survival + 0.5 * x * x + _HALF_LOG_TWO_PI)  # one over the hazard
    return jnp.maximum(jnp.where(target < log_ndtr(-_FAR), x, direct), bound)


class Belief(NamedTuple):
    """The state that a filter carries from round to round."""

    z: Array  # samples of the last round's z [particles, nodes, latent]
    next_z: Array  # samples of the coming round's z
    memory: Array  # of the guide: [streams, nodes, memory], or the last rounds [rounds, nodes, inputs]
    history: History


class Constants(NamedTuple):
    """The constants of a filter, as arrays, so that the compiled code also serves other models on a grid of the same size."""

    params: Params
    occupied: Array  # True for places of the grid that hold a worker [nodes, places]
    lowest: float | Array  # bounds of a worker's believed mean
    highest: float | Array
    noise: Array  # noise of each particle's compute times [particles, nodes, places]

    @classmethod
    def create(
        cls, params: Params, occupied: Array, particles: int, bounds: tuple[float, float] = (-math.inf, math.inf)
    ) -> "Constants":
        """Return the constants, with the same noise for all filters of this number of particles."""
        return cls(params, occupied, *bounds, jax.random.normal(key_of(1), (particles, *occupied.shape)))


@dataclass(frozen=True)
class Filter:
    """A particle filter of each node's state: the guide proposes from completed rounds, the transition moves particles on.

    Dropped workers are imputed jointly. For each node some particles are resampled. Their weights are the density of the
    observed times and the survival probability of the censored ones. Each resampled particle imputes all the dropped
    workers of the node. Every such completion of the round is a stream with its own memory of the guide; particles are
    drawn from all streams. A network whose guide looks ahead instead runs on the last `window` rounds each time. It imputes
    every dropped worker by itself, once, as printed.
    """

    network: Network
    particles: int
    window: int

    @property
    def streams(self) -> int:
        """Return the number of completions of a round."""
        return next(number for number in range(_STREAMS, 0, -1) if self.particles % number == 0)

    @partial(jax.jit, static_argnums=0)
    def start(self, constants: Constants, key: Array) -> tuple[Belief, Array]:
        """Return the belief before the first round, and samples of that round."""
        network, (nodes, _) = self.network, constants.occupied.shape
        zeros = jnp.zeros((self.particles, nodes, network.sizes.latent))
        mean, scale = network.initial(constants.params)
        history = History.initial(constants.occupied.shape)
        width = network.inputs(jnp.zeros(constants.occupied.shape), history.baseline, constants.occupied).shape[-1]
        memory_shape = (self.streams, nodes, network.memory) if network.left_only else (self.window, nodes, width)
        belief = Belief(zeros, _draw(key, mean + zeros, scale), jnp.zeros(memory_shape), history)
        return belief, self._sample(constants, belief)

    @partial(jax.jit, static_argnums=0)
    def update(
        self, constants: Constants, belief: Belief, key: Array, step: int, times: Array, finished: Array
    ) -> tuple[Belief, Array]:
        """Return the belief after a round, and samples of the next round.

        `times` are normalised [nodes, places], lower bounds where not `finished`. Samples are in the order of the grid,
        infinite at empty places: [particles, nodes * places].
        """
        y = jnp.where(constants.occupied, times, 1.0)
        y = jnp.log(y) if self.network.logarithmic else y
        propose = self._propose_completed if self.network.left_only else self._propose_windowed
        propose_key, move_key = jax.random.split(jax.random.fold_in(key, step))
        z, memory, completed = propose(constants, propose_key, belief, y, finished)
        summary = memory  # only a network that remembers uses it
        if self.network.remembers:
            summary = jnp.repeat(self.network.summary(memory), self.particles // self.streams, axis=0)
        next_z = _draw(move_key, *self.network.transition(constants.params, z, summary))
        updated = Belief(z, next_z, memory, belief.history.update(completed, finished, constants.occupied))
        return updated, self._sample(constants, updated)

    def _propose_completed(
        self, constants: Constants, key: Array, belief: Belief, y: Array, finished: Array
    ) -> tuple[Array, Array, Array]:
        """Return z drawn by the guide, one stream per completion; the guide's memory; and the mean completion."""
        # Particle k belongs to stream k // particles_per_stream. Each stream resamples one particle per node, by how well it
        # explains the round; completes the round by that particle's emission; and goes on from its z, with the memory of its
        # stream. Then the guide draws particles_per_stream particles for each stream.
        choice_key, tail_key, guide_key = jax.random.split(key, 3)
        emitted = self._emission(constants, belief.next_z, belief.history)
        log_weights = jnp.where(finished, log_density(y, *emitted), log_survival(y, *emitted))
        node_log_weights = jnp.where(constants.occupied, log_weights, 0.0).sum(-1)  # [particles, nodes]
        ancestors = _resample(choice_key, node_log_weights, self.streams)[..., None]  # [streams, nodes, 1]
        completed = jnp.where(
            finished, y, _draw_tail(tail_key, y, *(jnp.take_along_axis(part, ancestors, 0) for part in emitted))
        )
        inputs = self.network.inputs(completed, belief.history.baseline, constants.occupied)
        particles_per_stream = self.particles // self.streams
        memory = jnp.take_along_axis(belief.memory, ancestors // particles_per_stream, 0)
        memory = self.network.sum_up(constants.params, memory, inputs)
        last_z = jnp.take_along_axis(belief.z, ancestors, 0)
        proposal = self.network.proposal(constants.params, last_z, self.network.summary(memory))
        z = _draw(guide_key, *(jnp.repeat(part, particles_per_stream, axis=0) for part in proposal))
        return z, memory, completed.mean(0)

    def _propose_windowed(
        self, constants: Constants, key: Array, belief: Belief, y: Array, finished: Array
    ) -> tuple[Array, Array, Array]:
        """Return z drawn by a guide that sees all of the last rounds; those rounds; and the completed round."""
        choice_key, tail_key, guide_key = jax.random.split(key, 3)
        particles = jax.random.randint(choice_key, (1, *y.shape), 0, self.particles)  # one for each worker, at random
        emitted = (
            jnp.take_along_axis(part, particles, 0)[0] for part in self._emission(constants, belief.next_z, belief.history)
        )
        completed = jnp.where(finished, y, _draw_tail(tail_key, y, *emitted))
        inputs = self.network.inputs(completed, belief.history.baseline, constants.occupied)
        rounds = jnp.concatenate([belief.memory[1:], inputs[None]])

        def step(z: Array, key_and_summary: tuple[Array, Array]) -> tuple[Array, None]:
            draw_key, summary = key_and_summary
            return _draw(draw_key, *self.network.proposal(constants.params, z, summary)), None

        summaries = self.network.summaries(constants.params, rounds)
        z, _ = jax.lax.scan(step, jnp.zeros_like(belief.z), (jax.random.split(guide_key, len(rounds)), summaries))
        return z, rounds, completed

    def _emission(self, constants: Constants, z: Array, history: History) -> tuple[Array, Array]:
        """Return mean and deviation of each worker's (log) time, the mean within its bounds [particles, nodes, places]."""
        mean, scale = self.network.emission(constants.params, z, history.features)
        return jnp.clip(mean, constants.lowest, constants.highest), scale

    def _sample(self, constants: Constants, belief: Belief) -> Array:
        """Return samples of the coming round's times, as `update` does."""
        mean, scale = self._emission(constants, belief.next_z, belief.history)
        samples = mean + scale * constants.noise
        times = jnp.exp(samples) if self.network.logarithmic else jnp.maximum(samples, _SHORTEST_TIME)
        return jnp.where(constants.occupied, times, jnp.inf).reshape(self.particles, -1)


def _draw(key: Array, mean: Array, scale: Array) -> Array:
    return mean + scale * jax.random.normal(key, mean.shape)


def _resample(key: Array, log_weights: Array, count: int) -> Array:
    """Return indices of particles, from systematic resampling per node by log weight [Kitagawa 1996]: [count, nodes]."""
    cumulated = jnp.cumsum(jax.nn.softmax(log_weights, axis=0), axis=0)
    ticks = (jnp.arange(count)[:, None] + jax.random.uniform(key, log_weights.shape[1:])) / count
    indices = jax.vmap(partial(jnp.searchsorted, side="right"), in_axes=1, out_axes=1)(cumulated, ticks * cumulated[-1])
    return jnp.minimum(indices, len(log_weights) - 1)  # a tick may be rounded up to the total


def _draw_tail(key: Array, y: Array, mean: Array, scale: Array) -> Array:
    """Draw from the normal distribution truncated to values above y."""
    u = jax.random.uniform(key, mean.shape, minval=1e-7, maxval=1.0)  # above 0, as its logarithm is taken
    return mean + scale * truncated_quantile((y - mean) / scale, u)
