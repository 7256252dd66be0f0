"""The model at work: what is believed of the nodes now, and samples of the next round's run-times."""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fred.prediction.deep.history import History
from fred.prediction.deep.networks import Network, Params, key_of
from fred.prediction.deep.normal import above, log_density, log_survival

_STREAMS = 10  # completions of what was seen at most; they have equally many particles
_SHORTEST = 1e-3  # of a normal run-time, in units of the normaliser


class Belief(NamedTuple):
    """What a filter carries from round to round."""

    z: Array  # samples of the last round's z, [particles, nodes, latent]
    next: Array  # and of the coming round's
    summary: Array  # what the guide remembers: its sums [streams, nodes, summary], or the last rounds [rounds, nodes, inputs]
    history: History


class Filter:
    """Particles of each node's state, drawn by the guide from completed rounds, and moved on by the transition.

    Dropped workers are imputed jointly: of each node some particles are chosen, weighted by the density of what was observed
    and the survival of what was not, and from each all the node's dropped workers are drawn. Every such completion of the
    round is a stream with a memory of the guide's own; particles are drawn from all of them. A network whose guide looks ahead
    runs on the last `window` rounds each time, and imputes each dropped worker by itself, once, as printed.
    """

    def __init__(
        self,
        network: Network,
        params: Params,
        there: Array,
        particles: int,
        window: int,
        bounds: tuple[float, float] = (-math.inf, math.inf),
    ):
        self._network, self._params, self._there, self._window = network, params, there, window
        self._bounds = bounds  # of what may be believed of a worker's mean
        self._streams = next(number for number in range(_STREAMS, 0, -1) if particles % number == 0)
        self._particles = particles
        self._noise = jax.random.normal(key_of(1), (particles, *there.shape))

    @partial(jax.jit, static_argnums=0)
    def start(self, key: Array) -> tuple[Belief, Array]:
        """Before the first round."""
        network, (nodes, _) = self._network, self._there.shape
        nothing = jnp.zeros((self._particles, nodes, network.sizes.latent))
        mean, scale = network.first(self._params)
        history = History.none(self._there.shape)
        inputs = network.inputs(jnp.zeros(self._there.shape), history.baseline, self._there).shape[-1]
        shape = (self._streams, nodes, network.sizes.summary) if network.left_only else (self._window, nodes, inputs)
        belief = Belief(nothing, _drawn(key, mean + nothing, scale), jnp.zeros(shape), history)
        return belief, self._sample(belief)

    @partial(jax.jit, static_argnums=0)
    def after(self, belief: Belief, key: Array, step: int, times: Array, finished: Array) -> tuple[Belief, Array]:
        """After a round of normalised times [nodes, places], lower bounds where not finished; and samples of the next round.

        Samples are in the order of the grid, infinite where nobody is: [particles, nodes * places].
        """
        y = jnp.where(self._there, times, 1.0)
        y = jnp.log(y) if self._network.logarithmic else y
        believe = self._completed if self._network.left_only else self._windowed
        believe_key, move_key = jax.random.split(jax.random.fold_in(key, step))
        z, summary, completed = believe(believe_key, belief, y, finished)
        seen = jnp.repeat(summary, self._particles // self._streams, axis=0) if self._network.remembers else summary
        coming = _drawn(move_key, *self._network.transition(self._params, z, seen))
        after = Belief(z, coming, summary, belief.history.after(completed, finished, self._there))
        return after, self._sample(after)

    def _completed(self, key: Array, belief: Belief, y: Array, finished: Array) -> tuple[Array, Array, Array]:
        """z by the guide, one stream for each completion; what it remembers; and the mean completion."""
        choice_key, tail_key, guide_key = jax.random.split(key, 3)
        emitted = self._emission(belief.next, belief.history)
        each = jnp.where(finished, log_density(y, *emitted), log_survival(y, *emitted))
        weight = jnp.where(self._there, each, 0.0).sum(-1)
        chosen = _resampled(choice_key, weight, self._streams)[..., None]
        completed = jnp.where(finished, y, _tail(tail_key, y, *(jnp.take_along_axis(each, chosen, 0) for each in emitted)))
        inputs = self._network.inputs(completed, belief.history.baseline, self._there)
        own = self._particles // self._streams
        summary = jnp.take_along_axis(belief.summary, chosen // own, 0)
        summary = self._network.sum_up(self._params, summary, inputs)
        before = jnp.take_along_axis(belief.z, chosen, 0)
        proposal = self._network.proposal(self._params, before, summary)
        z = _drawn(guide_key, *(jnp.repeat(each, own, axis=0) for each in proposal))
        return z, summary, completed.mean(0)

    def _windowed(self, key: Array, belief: Belief, y: Array, finished: Array) -> tuple[Array, Array, Array]:
        """z by a guide that looks at all of the last rounds, those rounds, and the completed one."""
        choice_key, tail_key, guide_key = jax.random.split(key, 3)
        chosen = jax.random.randint(choice_key, (1, *y.shape), 0, self._particles)
        emitted = (jnp.take_along_axis(each, chosen, 0)[0] for each in self._emission(belief.next, belief.history))
        completed = jnp.where(finished, y, _tail(tail_key, y, *emitted))
        inputs = self._network.inputs(completed, belief.history.baseline, self._there)
        rounds = jnp.concatenate([belief.summary[1:], inputs[None]])

        def step(z: Array, now: tuple[Array, Array]) -> tuple[Array, None]:
            return _drawn(now[0], *self._network.proposal(self._params, z, now[1])), None

        summaries = self._network.summaries(self._params, rounds)
        z, _ = jax.lax.scan(step, jnp.zeros_like(belief.z), (jax.random.split(guide_key, len(rounds)), summaries))
        return z, rounds, completed

    def _emission(self, z: Array, history: History) -> tuple[Array, Array]:
        mean, scale = self._network.emission(self._params, z, history.features)
        return jnp.clip(mean, *self._bounds), scale

    def _sample(self, belief: Belief) -> Array:
        mean, scale = self._emission(belief.next, belief.history)
        samples = mean + scale * self._noise
        times = jnp.exp(samples) if self._network.logarithmic else jnp.maximum(samples, _SHORTEST)
        return jnp.where(self._there, times, jnp.inf).reshape(self._particles, -1)


def _drawn(key: Array, mean: Array, scale: Array) -> Array:
    return mean + scale * jax.random.normal(key, mean.shape)


def _resampled(key: Array, weight: Array, number: int) -> Array:
    """Numbers of particles, of each node as often as its log weight says, up to one [Kitagawa 1996]: [number, nodes]."""
    share = jnp.cumsum(jax.nn.softmax(weight, axis=0), axis=0)
    ticks = (jnp.arange(number)[:, None] + jax.random.uniform(key, weight.shape[1:])) / number
    chosen = jax.vmap(partial(jnp.searchsorted, side="right"), in_axes=1, out_axes=1)(share, ticks * share[-1])
    return jnp.minimum(chosen, len(weight) - 1)


def _tail(key: Array, y: Array, mean: Array, scale: Array) -> Array:
    """Draws above y."""
    u = jax.random.uniform(key, mean.shape, minval=1e-7, maxval=1.0)
    return mean + scale * above((y - mean) / scale, u)
