"""The deep Markov model and its guide in NumPyro [Teng & Wood 2018, section 3.1.3], with the training objective."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array, lax
from jax.scipy.special import logsumexp

from fred.prediction.deep.filter import log_density
from fred.prediction.deep.networks import Network, Params

_SAMPLES = 4  # samples of the next z in the predictive term


class Windows(NamedTuple):
    """Windows of recorded rounds, with normalised times; time is the first axis."""

    y: Array  # (log) times [rounds, windows, nodes, places]
    features: Array  # each worker's history before the round [rounds, windows, nodes, places, features]
    inputs: Array  # inputs of the guide [rounds, windows, nodes, inputs]
    weight: Array  # number of workers that a place stands for, 0 at empty places [nodes, places]


class Chain(dist.Distribution):  # type: ignore[misc]
    """A Markov chain of normal variables, z_t ~ N(transition(z_(t-1), condition_t)), z_(-1) = 0.

    Its shape is [rounds, windows, nodes, latent]. Sampling goes step by step. Scoring takes all steps at once: a chain is one
    site, whose density needs no loop.
    """

    support = dist.constraints.real
    reparametrized_params: ClassVar[list[str]] = []

    def __init__(self, transition: Callable[[Array, Any], tuple[Array, Array]], conditions: Any, shape: tuple[int, ...]):
        self._transition, self._conditions, self._shape = transition, conditions, shape
        super().__init__(event_shape=(len(jax.tree.leaves(conditions)[0]), *shape))

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Return a reparametrised draw, which gradients pass through."""
        assert not sample_shape

        def step(z: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
            mean, scale = self._transition(z, now[0])
            z = mean + scale * now[1]
            return z, z

        noise = jax.random.normal(key, self.event_shape)
        return lax.scan(step, jnp.zeros(self._shape), (self._conditions, noise))[1]

    def log_prob(self, value: Array) -> Array:
        """Return the log density of a whole chain."""
        last = jnp.concatenate([jnp.zeros((1, *self._shape)), value[:-1]])
        return log_density(value, *self._transition(last, self._conditions)).sum()


def model(network: Network, params: Params, windows: Windows, predictive: bool) -> None:
    """Sample from p(x, z). With `predictive`, the last round is not observed; it and every earlier round are predicted.

    The predictive term of a round is log sum_k p(x_t | z_t^(k)), z_t^(k) ~ p(z_t | z_(t-1)), with z_(t-1) from the guide.
    There is one term per node and one per worker. With the nodes' terms of the last round alone, the objective would be a
    lower bound of log p(x), up to a constant. The other terms give predictions as much weight as the rest.
    """
    params = numpyro.param("network", params)
    observed = windows.y[:-1] if predictive else windows.y
    is_worker, weight = windows.weight > 0, jnp.where(windows.weight > 0, windows.weight, 1.0)
    initial, has_predecessor = network.initial(params), (jnp.arange(len(observed)) > 0)[:, None, None, None]
    summaries = network.summaries(params, windows.inputs[: len(observed)])
    before = jnp.concatenate([jnp.zeros_like(summaries[:1]), summaries[:-1]])

    def transition(z: Array, conditions: tuple[Array, Array]) -> tuple[Array, Array]:
        mean, scale = network.transition(params, z, conditions[1])
        return jnp.where(conditions[0], mean, initial[0]), jnp.where(conditions[0], scale, initial[1])

    z = numpyro.sample("z", Chain(transition, (has_predecessor, before), (*windows.inputs.shape[1:-1], network.sizes.latent)))
    with numpyro.handlers.scale(scale=weight):
        emitted = network.emission(params, z, windows.features[: len(observed)])
        numpyro.sample("x", dist.Normal(*emitted).mask(is_worker), obs=observed)
    if predictive:
        numpyro.factor("next", _predictive(network, params, z, summaries, windows).sum())


def _predictive(network: Network, params: Params, z: Array, summaries: Array, windows: Windows) -> Array:
    """Return the log mean probability of the next round, of each node's workers jointly and singly.

    The shape is [rounds, windows, nodes].

    The joint term teaches the model when a node will change. But few samples of a node's level are too few to fit all its
    workers at once, and larger deviations would make up for that. For each worker by itself, they suffice.
    """
    mean, scale = network.transition(params, z, summaries)
    noise = jax.random.normal(numpyro.prng_key(), (_SAMPLES, *z.shape))
    location, deviation = network.emission(params, mean + scale * noise, windows.features[1:])
    log_densities = log_density(windows.y[1:], location, deviation)
    together = logsumexp((log_densities * windows.weight).sum(-1), axis=0)
    by_worker = (logsumexp(log_densities, axis=0) * windows.weight).sum(-1)
    return together + by_worker


def guide(network: Network, params: Params, windows: Windows, predictive: bool) -> None:
    """Sample from q(z | x) for the rounds that the model observes."""
    params = numpyro.param("network", params)
    inputs = windows.inputs[:-1] if predictive else windows.inputs
    chain = Chain(
        partial(network.proposal, params), network.summaries(params, inputs), (*inputs.shape[1:-1], network.sizes.latent)
    )
    numpyro.sample("z", chain)
