"""The deep Markov model and its guide in NumPyro [Teng & Wood 2018, section 3.1.3], and its training on recorded rounds.

`train` fits a network by stochastic variational inference on random windows, and `learn` makes a model with a record of how it
was trained.
"""

import importlib.metadata
import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from jax import Array, lax
from jax.scipy.special import logsumexp
from numpy.typing import NDArray
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.svi import SVIState
from numpyro.optim import optax_to_numpyro

from fred.base import environment, numerics
from fred.base.environment import __version__
from fred.base.types import OnProgress
from fred.cluster.contention import NodeOf
from fred.prediction.contract import Objective
from fred.prediction.deep import saved
from fred.prediction.deep.filter import Grid, log_density
from fred.prediction.deep.networks import History, Network, Params, create_network, key_of
from fred.traces.trace import Trace

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

        def step(z: Array, condition_and_noise: tuple[Any, Array]) -> tuple[Array, Array]:
            condition, noise = condition_and_noise
            mean, scale = self._transition(z, condition)
            z = mean + scale * noise
            return z, z

        noise = jax.random.normal(key, self.event_shape)
        return lax.scan(step, jnp.zeros(self._shape), (self._conditions, noise))[1]

    def log_prob(self, value: Array) -> Array:
        """Return the log density of a whole chain."""
        previous = jnp.concatenate([jnp.zeros((1, *self._shape)), value[:-1]])
        return log_density(value, *self._transition(previous, self._conditions)).sum()


def model(network: Network, params: Params, windows: Windows, predictive: bool) -> None:
    """Sample from p(x, z). With `predictive`, the last round is not observed; it and every earlier round are predicted.

    The predictive term of a round is log sum_k p(x_t | z_t^(k)), z_t^(k) ~ p(z_t | z_(t-1)), with z_(t-1) from the guide.
    There is one term per node and one per worker. With the nodes' terms of the last round alone, the objective would be a
    lower bound of log p(x), up to a constant. The other terms give predictions as much weight as the rest.
    """
    params = numpyro.param("network", params)
    observed = windows.y[:-1] if predictive else windows.y
    is_worker, weight = windows.weight > 0, jnp.where(windows.weight > 0, windows.weight, 1.0)  # scales must be positive
    initial_mean, initial_scale = network.initial(params)
    summaries = network.summaries(params, windows.inputs[: len(observed)])
    previous_summaries = jnp.concatenate([jnp.zeros_like(summaries[:1]), summaries[:-1]])
    has_predecessor = (jnp.arange(len(observed)) > 0)[:, None, None, None]

    def transition(z: Array, condition: tuple[Array, Array]) -> tuple[Array, Array]:
        continues, previous_summary = condition  # the first z of a window has no predecessor
        mean, scale = network.transition(params, z, previous_summary)
        return jnp.where(continues, mean, initial_mean), jnp.where(continues, scale, initial_scale)

    conditions, shape = (has_predecessor, previous_summaries), (*windows.inputs.shape[1:-1], network.sizes.latent)
    z = numpyro.sample("z", Chain(transition, conditions, shape))
    with numpyro.handlers.scale(scale=weight):
        emitted = network.emission(params, z, windows.features[: len(observed)])
        numpyro.sample("x", dist.Normal(*emitted).mask(is_worker), obs=observed)
    if predictive:
        numpyro.factor("next", _predictive(network, params, z, summaries, windows).sum())


def _predictive(network: Network, params: Params, z: Array, summaries: Array, windows: Windows) -> Array:
    """Return the log mean probability of the next round, of each node's workers jointly and singly, up to a constant.

    The shape is [rounds, windows, nodes]. The mean is over samples of the next z.

    The joint term teaches the model when a node will change. But few samples of a node's level are too few to fit all its
    workers at once, and larger deviations would make up for that. For each worker by itself, they suffice.
    """
    mean, scale = network.transition(params, z, summaries)
    noise = jax.random.normal(numpyro.prng_key(), (_SAMPLES, *z.shape))
    location, deviation = network.emission(params, mean + scale * noise, windows.features[1:])
    log_densities = log_density(windows.y[1:], location, deviation)
    jointly = logsumexp((log_densities * windows.weight).sum(-1), axis=0)
    singly = (logsumexp(log_densities, axis=0) * windows.weight).sum(-1)
    return jointly + singly


def guide(network: Network, params: Params, windows: Windows, predictive: bool) -> None:
    """Sample from q(z | x) for the rounds that the model observes."""
    params = numpyro.param("network", params)
    inputs = windows.inputs[:-1] if predictive else windows.inputs
    chain = Chain(
        partial(network.proposal, params), network.summaries(params, inputs), (*inputs.shape[1:-1], network.sizes.latent)
    )
    numpyro.sample("z", chain)


_STEPS_PER_CALL = 50  # most steps in one compiled call
_CLIP = 10.0  # maximum norm of the gradient
_WINDOWS = 32  # windows per step, for networks without nodes
_WINDOWS_OF_NODES = 4  # most windows per step, where each node is an example
_BATCH = 256  # approximate number of workers per step in that case
_MARGIN = 0.3  # margin for the mean of the first rounds
_FACTOR = 2.0  # the normaliser in mean times, as printed


class Training(NamedTuple):
    """The options of a training."""

    steps: int
    learning_rate: float
    window: int  # observed rounds per window
    seed: int
    restart: int  # which of several trainings
    predictive: bool
    random_normaliser: bool  # normalise by another random window; False: by the window's own rounds


class PreparedRounds(NamedTuple):
    """All recorded rounds before normalisation; [rounds, ...]."""

    y: Array  # (log) times [rounds, nodes, places]
    features: Array
    baseline: Array
    level: Array  # mean time of each round, s
    occupied: Array  # [nodes, places]


def prepare_rounds(network: Network, seconds: NDArray[np.float64], grid: Grid) -> PreparedRounds:
    """Compute what training needs from a trace [rounds, workers], s, once."""
    placed, occupied = jnp.asarray(grid.spread(seconds.astype(np.float32))), jnp.asarray(grid.occupied)
    logs = jnp.where(occupied, jnp.log(jnp.where(occupied, placed, 1.0)), 0.0)

    def step(history: History, y: Array) -> tuple[History, tuple[Array, Array]]:
        return history.update(y, occupied, occupied), (history.features, history.baseline)  # those before the round

    _, (features, baseline) = lax.scan(step, History.initial(grid.shape), logs)
    level = placed.sum((1, 2)) / occupied.sum()
    return PreparedRounds(logs if network.logarithmic else placed, features, baseline, level, occupied)


def train(
    network: Network, seconds: NDArray[np.float64], grid: Grid, training: Training, progress: Callable[[float], None]
) -> tuple[Params, NDArray[np.float32]]:
    """Train the network; return its parameters, and the loss per observed time of every step."""
    rounds = prepare_rounds(network, seconds, grid)
    window = min(training.window, len(seconds) - 2)  # so that a window, with its next round, has two places to start
    machine = _machine(network, training._replace(window=window, seed=0, restart=0))
    key, initial_key, state_key = jax.random.split(jax.random.fold_in(key_of(training.seed), training.restart), 3)
    state = machine.begin(initial_key, state_key, rounds)
    losses = []
    steps_per_call = math.gcd(training.steps, _STEPS_PER_CALL)  # a remainder would need another compilation
    for start in range(0, training.steps, steps_per_call):
        keys = jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(start, start + steps_per_call))
        state, loss = machine.steps(state, keys, rounds)
        losses.append(np.asarray(loss))
        progress((start + steps_per_call) / training.steps)
    return machine.params(state), np.concatenate(losses)


class _Machine(NamedTuple):
    """The compiled functions, shared by all trainings that differ only in seed or trace."""

    begin: Callable[[Array, Array, PreparedRounds], SVIState]
    steps: Callable[[SVIState, Array, PreparedRounds], tuple[SVIState, Array]]
    params: Callable[[SVIState], Params]


@lru_cache(maxsize=4)
def _machine(network: Network, training: Training) -> _Machine:
    """Compile the training functions. The options are without a seed, so that trainings with other seeds share them."""
    rates = optax.warmup_cosine_decay_schedule(0.0, training.learning_rate, training.steps // 20, training.steps)
    optimizer = optax.chain(optax.clip_by_global_norm(_CLIP), optax.adam(rates))
    svi = SVI(model, guide, optax_to_numpyro(optimizer), Trace_ELBO(), predictive=training.predictive)
    draw = partial(_draw_windows, network, training.window, training.random_normaliser)

    @jax.jit
    def begin(initial_key: Array, state_key: Array, rounds: PreparedRounds) -> SVIState:
        windows = draw(rounds, initial_key)
        return svi.init(state_key, network, network.init(initial_key, windows.inputs.shape[-1]), windows)

    @jax.jit
    def steps(state: SVIState, keys: Array, rounds: PreparedRounds) -> tuple[SVIState, Array]:
        def step(state: SVIState, key: Array) -> tuple[SVIState, Array]:
            windows = draw(rounds, key)
            state, loss = svi.update(state, network, {}, windows)  # {}: the state has the parameters
            rounds_and_windows = windows.y.shape[0] * windows.y.shape[1]  # every place has a time in each of them
            return state, loss / (rounds_and_windows * windows.weight.sum())

        return lax.scan(step, state, keys)

    return _Machine(begin, steps, lambda state: svi.get_params(state)["network"])


def _draw_windows(network: Network, window: int, random_normaliser: bool, rounds: PreparedRounds, key: Array) -> Windows:
    """Draw random normalised windows, one round longer than the observed part, of some workers of every node."""
    nodes, places = rounds.occupied.shape
    width, count = places, _WINDOWS  # workers of each node; windows
    if network.neighbours:
        width = min(places, 16 if nodes <= 8 else 8)
        count = min(_WINDOWS_OF_NODES, max(2, _BATCH // (nodes * width)))
    starts_key, level_key, workers_key = jax.random.split(key, 3)
    starts = jax.random.randint(starts_key, (count,), 0, len(rounds.y) - window)
    level_starts = jax.random.randint(level_key, (count,), 0, len(rounds.y) - window + 1) if random_normaliser else starts
    level = jax.vmap(lambda start: lax.dynamic_slice_in_dim(rounds.level, start, window).mean())(level_starts)

    def take_windows(values: Array) -> Array:
        return jax.vmap(lambda start: lax.dynamic_slice_in_dim(values, start, window + 1), out_axes=1)(starts)

    y = normalised(network, take_windows(rounds.y), _FACTOR * level[:, None, None])
    inputs = network.inputs(y, take_windows(rounds.baseline), rounds.occupied)
    draws = jnp.where(rounds.occupied, jax.random.uniform(workers_key, (nodes, places)), 2.0)  # empty places are the last
    sample = jnp.argsort(draws, axis=-1)[:, :width]
    occupied = jnp.take_along_axis(rounds.occupied, sample, -1)
    weight = occupied * (rounds.occupied.sum(-1, keepdims=True) / occupied.sum(-1, keepdims=True))
    features = jnp.take_along_axis(take_windows(rounds.features), sample[None, None, :, :, None], 3)
    return Windows(jnp.take_along_axis(y, sample[None, None], 3), features, inputs, weight)


def normalised(network: Network, y: Array, normaliser: Array) -> Array:
    """Return (log) times in units of the normaliser, s."""
    return y - jnp.log(normaliser) if network.logarithmic else y / normaliser


class Learner(Protocol):
    """The options that training needs; rules have them (`rule.py`)."""

    @property
    def variant(self) -> saved.Variant:
        """Return the variant of the network."""

    @property
    def steps(self) -> int:
        """Return the number of training steps."""

    @property
    def learning_rate(self) -> float:
        """Return Adam's learning rate."""

    @property
    def window(self) -> int:
        """Return the number of rounds in a training window."""

    @property
    def seed(self) -> int:
        """Return the seed of training."""

    @property
    def objective(self) -> Objective | None:
        """Return the objective that the model is used for; None: not given."""


def learn(
    rule: Learner, seconds: NDArray[np.float64], node_of: NodeOf, progress: OnProgress, restart: int = 0
) -> saved.Trained:
    """Train a model of the rule's variant on complete rounds, s [iterations, workers], at least four.

    Another `restart` uses other initial parameters and other windows. Raises ValueError if training diverges.
    """
    environment.check()
    if rule.variant != "shared":  # one state for all workers
        node_of = np.zeros_like(node_of)
    is_corrected = rule.variant != "printed"  # the method as printed neither predicts nor varies the normaliser
    training = Training(
        steps=rule.steps,
        learning_rate=rule.learning_rate,
        window=rule.window,
        seed=rule.seed,
        restart=restart,
        predictive=is_corrected,
        random_normaliser=is_corrected,
    )
    network = create_network(rule.variant, seconds.shape[1])
    normaliser = _FACTOR * math.fsum(seconds.ravel()) / seconds.size
    params, losses = train(network, seconds, Grid(node_of), training, progress)
    if not np.isfinite(losses).all() or not all(np.isfinite(a).all() for layer in params.values() for a in layer.values()):
        raise ValueError("training has diverged; give a smaller `learning_rate`")
    record = saved.ModelRecord(
        fred=__version__,
        environment=environment.describe() | {"numpyro": importlib.metadata.version("numpyro")},
        variant=rule.variant,
        workers=seconds.shape[1],
        nodes=node_of.tolist(),
        window=rule.window,
        normaliser=normaliser,
        objective=rule.objective or "round",
        pace=_pace(seconds / normaliser),
        bounds=_bounds(network, seconds / normaliser, Grid(node_of)),
        trace=Trace(seconds, ()).digest,
        steps=rule.steps,
        learning_rate=rule.learning_rate,
        seed=rule.seed,
        restart=restart,
        curve=[round(math.fsum(part) / len(part), 4) for part in np.array_split(losses.astype(float), -(-len(losses) // 50))],
    )
    return saved.Trained(record, {name: {part: np.asarray(a) for part, a in layer.items()} for name, layer in params.items()})


def _pace(times: NDArray[np.float64]) -> tuple[float, float]:
    """Return the best static cutoff for these times [rounds, workers], as a share of the workers, and its mean time."""
    mean = np.add.reduce(np.sort(times, axis=1), axis=0) / len(times)
    best = int(np.argmax(np.arange(1, len(mean) + 1) / mean))
    return (best + 1) / len(mean), float(mean[best])


def _bounds(network: Network, times: NDArray[np.float64], grid: Grid) -> tuple[float, float]:
    """Return the range, with a margin, of the nodes' mean (log) times over all rounds [rounds, workers].

    Where the network has no nodes, the range is that of the single workers' times.
    """
    y = numerics.log(times) if network.logarithmic else times
    if network.neighbours:
        y = np.add.reduce(np.ascontiguousarray(np.moveaxis(grid.spread(y), -1, 0)), axis=0) / grid.occupied.sum(-1)
    return float(y.min()) - _MARGIN, float(y.max()) + _MARGIN
