"""The deep Markov model and its guide in NumPyro [Teng & Wood 2018, section 3.1.3], and the objective of training."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array, lax
from jax.scipy.special import logsumexp

from fred.prediction.deep.networks import Network, Params
from fred.prediction.deep.normal import log_density

_SAMPLES = 4  # of the next z, for the predictive term


class Windows(NamedTuple):
    """Stretches of rounds of recorded times, normalised; time comes first."""

    y: Array  # (log) times [rounds, windows, nodes, places]
    features: Array  # of each worker's history before the round [rounds, windows, nodes, places, features]
    inputs: Array  # of the guide [rounds, windows, nodes, inputs]
    weight: Array  # how many workers one stands for, 0 where nobody is [nodes, places]


class Chain(dist.Distribution):  # type: ignore[misc]
    """Normal variables one after another, z_t ~ N(moved(z_(t-1), given_t)), z_(-1) = 0: [rounds, windows, nodes, latent].

    Drawn one by one, but scored all at once: a chain is one site, whose density needs no loop.
    """

    support = dist.constraints.real
    reparametrized_params: ClassVar[list[str]] = []

    def __init__(self, moved: Callable[[Array, Any], tuple[Array, Array]], given: Any, shape: tuple[int, ...]):
        self._moved, self._given, self._shape = moved, given, shape
        super().__init__(event_shape=(len(jax.tree.leaves(given)[0]), *shape))

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """A draw that gradients pass through."""
        assert not sample_shape

        def step(z: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
            mean, scale = self._moved(z, now[0])
            z = mean + scale * now[1]
            return z, z

        noise = jax.random.normal(key, self.event_shape)
        return lax.scan(step, jnp.zeros(self._shape), (self._given, noise))[1]

    def log_prob(self, value: Array) -> Array:
        """Log density of a whole chain."""
        before = jnp.concatenate([jnp.zeros((1, *self._shape)), value[:-1]])
        return log_density(value, *self._moved(before, self._given)).sum()


def model(network: Network, params: Params, windows: Windows, predictive: bool) -> None:
    """p(x, z). With `predictive` the last round is not observed but predicted, and so is every one before it.

    The predictive term of a round is log sum_k p(x_t | z_t^(k)), z_t^(k) ~ p(z_t | z_(t-1)), z_(t-1) from the guide; of each
    node, and of each worker. With that of the nodes in the last round alone it would be a lower bound of log p(x), up to a
    constant; the others let predictions weigh as much as the rest.
    """
    params = numpyro.param("network", params)
    observed = windows.y[:-1] if predictive else windows.y
    there, weight = windows.weight > 0, jnp.where(windows.weight > 0, windows.weight, 1.0)
    first, begun = network.first(params), (jnp.arange(len(observed)) > 0)[:, None, None, None]
    summaries = network.summaries(params, windows.inputs[: len(observed)])
    before = jnp.concatenate([jnp.zeros_like(summaries[:1]), summaries[:-1]])

    def moved(z: Array, given: tuple[Array, Array]) -> tuple[Array, Array]:
        mean, scale = network.transition(params, z, given[1])
        return jnp.where(given[0], mean, first[0]), jnp.where(given[0], scale, first[1])

    z = numpyro.sample("z", Chain(moved, (begun, before), (*windows.inputs.shape[1:-1], network.sizes.latent)))
    with numpyro.handlers.scale(scale=weight):
        emitted = network.emission(params, z, windows.features[: len(observed)])
        numpyro.sample("x", dist.Normal(*emitted).mask(there), obs=observed)
    if predictive:
        numpyro.factor("next", _predictive(network, params, z, summaries, windows).sum())


def _predictive(network: Network, params: Params, z: Array, summaries: Array, windows: Windows) -> Array:
    """Log of the mean probability of what each node's workers do next, together and each by itself: [rounds, windows, nodes].

    Together they tell when a node will change. But few samples of its level are too few for all of them at once, and deviations
    would make up for that; of each worker by itself they are enough.
    """
    mean, scale = network.transition(params, z, summaries)
    noise = jax.random.normal(numpyro.prng_key(), (_SAMPLES, *z.shape))
    location, deviation = network.emission(params, mean + scale * noise, windows.features[1:])
    each = log_density(windows.y[1:], location, deviation)
    together = logsumexp((each * windows.weight).sum(-1), axis=0)
    alone = (logsumexp(each, axis=0) * windows.weight).sum(-1)
    return together + alone


def guide(network: Network, params: Params, windows: Windows, predictive: bool) -> None:
    """q(z | x) of the rounds that the model observes."""
    params = numpyro.param("network", params)
    inputs = windows.inputs[:-1] if predictive else windows.inputs
    chain = Chain(
        partial(network.proposal, params), network.summaries(params, inputs), (*inputs.shape[1:-1], network.sizes.latent)
    )
    numpyro.sample("z", chain)
