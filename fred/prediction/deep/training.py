"""Training on recorded rounds by stochastic variational inference on random windows, with the same bits on every run."""

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax
from numpy.typing import NDArray
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.svi import SVIState
from numpyro.optim import optax_to_numpyro

from fred.prediction.deep.grid import Grid
from fred.prediction.deep.networks import History, Network, Params, key_of
from fred.prediction.deep.programs import Windows, guide, model

_AT_ONCE = 50  # most steps in one compiled call
_CLIP = 10.0  # maximum norm of the gradient
_WINDOWS = 32  # windows per step, for networks without nodes
_WINDOWS_OF_NODES = 4  # most windows per step, where each node is an example
_BATCH = 256  # approximate number of workers per step in that case


class Training(NamedTuple):
    """The training schedule and its options."""

    steps: int
    learning_rate: float
    window: int  # observed rounds per window
    seed: int
    restart: int  # which of several trainings
    predictive: bool
    random_normaliser: bool  # normalise by another random window; False: by the window's own rounds


class Record(NamedTuple):
    """All recorded rounds before normalisation; [rounds, ...]."""

    y: Array  # (log) times [rounds, nodes, places]
    features: Array
    baseline: Array
    level: Array  # mean time of each round, s
    there: Array  # [nodes, places]


def record(network: Network, seconds: NDArray[np.float64], grid: Grid) -> Record:
    """Compute what training needs from a trace [rounds, workers], s, once."""
    placed, there = jnp.asarray(grid.spread(seconds.astype(np.float32))), jnp.asarray(grid.there)
    y = jnp.where(there, jnp.log(jnp.where(there, placed, 1.0)), 0.0)

    def step(history: History, now: Array) -> tuple[History, tuple[Array, Array]]:
        return history.after(now, there, there), (history.features, history.baseline)

    _, (features, baseline) = lax.scan(step, History.none(grid.shape), y)
    level = placed.sum((1, 2)) / there.sum()
    return Record(y if network.logarithmic else placed, features, baseline, level, there)


def train(
    network: Network, seconds: NDArray[np.float64], grid: Grid, schedule: Training, progress: Callable[[float], None]
) -> tuple[Params, NDArray[np.float32]]:
    """Train the network; return its parameters, and the loss per observed time of every step."""
    recorded = record(network, seconds, grid)
    machine = _machine(network, schedule._replace(window=min(schedule.window, len(seconds) - 2), seed=0, restart=0))
    key, first, begin = jax.random.split(jax.random.fold_in(key_of(schedule.seed), schedule.restart), 3)
    state = machine.begin(first, begin, recorded)
    losses = []
    at_once = math.gcd(schedule.steps, _AT_ONCE)  # a remainder would need another compilation
    for start in range(0, schedule.steps, at_once):
        numbers = jnp.arange(start, start + at_once)
        state, loss = machine.steps(state, jax.vmap(partial(jax.random.fold_in, key))(numbers), recorded)
        losses.append(np.asarray(loss))
        progress((start + len(numbers)) / schedule.steps)
    return machine.params(state), np.concatenate(losses)


class _Machine(NamedTuple):
    """The compiled functions, shared by all trainings that differ only in seed or trace."""

    begin: Callable[[Array, Array, Record], SVIState]
    steps: Callable[[SVIState, Array, Record], tuple[SVIState, Array]]
    params: Callable[[SVIState], Params]


@lru_cache(maxsize=4)
def _machine(network: Network, schedule: Training) -> _Machine:
    """Compile the training functions for a schedule without its seed."""
    rates = optax.warmup_cosine_decay_schedule(0.0, schedule.learning_rate, schedule.steps // 20, schedule.steps)
    optimizer = optax.chain(optax.clip_by_global_norm(_CLIP), optax.adam(rates))
    svi = SVI(model, guide, optax_to_numpyro(optimizer), Trace_ELBO(), predictive=schedule.predictive)
    draw = partial(_windows, network, schedule.window, schedule.random_normaliser)

    @jax.jit
    def begin(first: Array, key: Array, recorded: Record) -> SVIState:
        windows = draw(recorded, first)
        return svi.init(key, network, network.init(first, windows.inputs.shape[-1]), windows)

    @jax.jit
    def steps(state: SVIState, keys: Array, recorded: Record) -> tuple[SVIState, Array]:
        def step(state: SVIState, key: Array) -> tuple[SVIState, Array]:
            windows = draw(recorded, key)
            state, loss = svi.update(state, network, {}, windows)
            return state, loss / (windows.y[:, :, 0, 0].size * windows.weight.sum())

        return lax.scan(step, state, keys)

    return _Machine(begin, steps, lambda state: svi.get_params(state)["network"])


def _windows(network: Network, window: int, random_normaliser: bool, recorded: Record, key: Array) -> Windows:
    """Draw random normalised windows, one round longer than the observed part, of some workers of every node."""
    nodes, places = recorded.there.shape
    some, number = places, _WINDOWS
    if network.neighbours:
        some = min(places, 16 if nodes <= 8 else 8)
        number = min(_WINDOWS_OF_NODES, max(2, _BATCH // (nodes * some)))
    starts_key, normal_key, workers_key = jax.random.split(key, 3)
    starts = jax.random.randint(starts_key, (number,), 0, len(recorded.y) - window)
    elsewhere = jax.random.randint(normal_key, (number,), 0, len(recorded.y) - window + 1) if random_normaliser else starts
    level = jax.vmap(lambda start: lax.dynamic_slice_in_dim(recorded.level, start, window).mean())(elsewhere)

    def cut(values: Array) -> Array:
        return jax.vmap(lambda start: lax.dynamic_slice_in_dim(values, start, window + 1), out_axes=1)(starts)

    y = normalised(network, cut(recorded.y), 2 * level[:, None, None])
    inputs = network.inputs(y, cut(recorded.baseline), recorded.there)
    lots = jnp.where(recorded.there, jax.random.uniform(workers_key, (nodes, places)), 2.0)
    chosen = jnp.argsort(lots, axis=-1)[:, :some]
    present = jnp.take_along_axis(recorded.there, chosen, -1)
    weight = present * (recorded.there.sum(-1, keepdims=True) / present.sum(-1, keepdims=True))
    features = jnp.take_along_axis(cut(recorded.features), chosen[None, None, :, :, None], 3)
    return Windows(jnp.take_along_axis(y, chosen[None, None], 3), features, inputs, weight)


def normalised(network: Network, y: Array, normaliser: Array) -> Array:
    """Return (log) times in units of the normaliser, s."""
    return y - jnp.log(normaliser) if network.logarithmic else y / normaliser
