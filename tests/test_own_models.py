"""Models that draw random numbers in training, or are made by other libraries, and loss functions of one's own."""

from typing import Any

import equinox
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import fred
from fred.outcomes.computed import Computed
from fred.running.execution import execute
from fred.schedule.schedule import Verb

DATA = {"name": "synthetic-classification", "examples": 60, "features": 5, "classes": 3}
VALUES = {"name": "synthetic-regression", "examples": 40, "features": 5}
RATE, BATCH = 0.1, 4


class Dropped(fred.Model):
    """Two layers with dropout between them, in plain JAX."""

    rate: float = 0.5
    width: int = 6

    def init(self, key: jax.Array, input_shape: tuple[int, ...], outputs: int) -> fred.Params:
        one, two = jax.random.split(key)
        return {"one": jax.random.normal(one, (*input_shape, self.width)), "two": jax.random.normal(two, (self.width, outputs))}

    def apply(self, params: fred.Params, inputs: jax.Array) -> jax.Array:
        return jnp.tanh(inputs @ params["one"]) @ params["two"]

    def training(self, params: fred.Params, inputs: jax.Array, key: jax.Array) -> jax.Array:
        hidden = jnp.tanh(inputs @ params["one"])
        kept = jax.random.bernoulli(key, 1 - self.rate, hidden.shape)
        return jnp.where(kept, hidden / (1 - self.rate), 0.0) @ params["two"]


class Undropped(Dropped):
    """The same without."""

    def training(self, params: fred.Params, inputs: jax.Array, key: jax.Array) -> jax.Array:
        return self.apply(params, inputs)


class Linen(fred.FlaxModel):
    """Flax's older interface."""

    rate: float = 0.5

    def module(self) -> linen.Module:
        return _Linen(self.rate)


class _Linen(linen.Module):
    rate: float

    @linen.compact
    def __call__(self, inputs: jax.Array, training: bool = False) -> jax.Array:
        hidden = linen.relu(linen.Dense(6)(inputs))
        return linen.Dense(3)(linen.Dropout(self.rate, deterministic=not training)(hidden))


class NNX(fred.NNXModel):
    """Flax's newer one."""

    rate: float = 0.5

    def module(self, rngs: nnx.Rngs) -> nnx.Module:
        one, two = nnx.Linear(5, 6, rngs=rngs), nnx.Linear(6, 3, rngs=rngs)
        return nnx.Sequential(one, nnx.relu, nnx.Dropout(self.rate, rngs=rngs), two)


class Equinox(fred.EquinoxModel):
    """Equinox."""

    rate: float = 0.5

    def module(self, key: jax.Array) -> equinox.Module:
        one, two = jax.random.split(key)
        layers = [equinox.nn.Linear(5, 6, key=one), equinox.nn.Dropout(self.rate), equinox.nn.Linear(6, 3, key=two)]
        return equinox.nn.Sequential(layers)


MODELS = (Dropped, Linen, NNX, Equinox)


def run(model: fred.Model, inline: bool = False, seed: int = 0, updates: int = 12, **given: Any) -> Computed:
    """A run of a few updates."""
    task = {"data": DATA, "model": model, "batch_size": BATCH, **given.pop("task", {})}
    cluster = {"workers": 3, "compute": {"name": "lognormal", "median": 0.1, "sigma": 0.8}, **given.pop("cluster", {})}
    whole = {"task": task, "cluster": cluster, "stop": {"updates": updates}, "evaluate": {"points": 3}, **given}
    whole.setdefault("algorithm", {"name": "asgd", "learning_rate": RATE})
    return execute("mine", fred.scenario(runs={"mine": whole}).runs["mine"], seed, inline=inline)


def same(one: Computed, other: Computed) -> bool:
    """Bit for bit."""
    return one.metrics.equals(other.metrics) and all(
        np.array_equal(array, other.final[name]) for name, array in one.final.items()
    )


class TestDropout:
    @pytest.mark.parametrize("model", MODELS)
    def test_inline_and_replayed_rounds_have_the_same_bits(self, model):
        how = {"algorithm": {"name": "ssgd", "learning_rate": RATE}}
        assert same(run(model(), **how), run(model(), inline=True, **how))

    @pytest.mark.parametrize(
        "how",
        [
            {},
            {"protocol": {"name": "softsync", "n": 2}, "cluster": {"servers": 2}},
            {"algorithm": {"name": "d-psgd", "learning_rate": RATE}},
        ],
        ids=["alone", "blocks", "peers"],
    )
    def test_inline_and_replayed_runs_have_the_same_bits(self, how):
        assert same(run(Dropped(), **how), run(Dropped(), inline=True, **how))

    def test_the_same_seed_gives_the_same_run_and_another_seed_another(self):
        assert same(run(Dropped()), run(Dropped()))
        assert not same(run(Dropped()), run(Dropped(), seed=1))

    def test_a_gradient_kept_until_it_is_used_has_the_mask_it_would_have_at_once(self):
        """Of a large model what lies between parameters and gradient is kept, which is not the mask's whole history."""
        wide = Dropped(width=4000)
        assert same(run(wide, updates=6), run(wide, updates=6, inline=True))

    @pytest.mark.parametrize("algorithm", ["asgd", "ssgd"])
    def test_every_gradient_is_recomputed_from_the_schedule_and_the_documented_key(self, algorithm):
        outcome = run(Dropped(), algorithm={"name": algorithm, "learning_rate": RATE}, seed=3)
        data, model = outcome.run.task.data.load(3), Dropped()
        params = {name: np.asarray(array, float) for name, array in outcome.initial.items()}
        mailboxes, round_ = {}, []
        for row in outcome.schedule:
            if row.verb == Verb.PULL:
                mailboxes[row.mailbox] = params
            elif row.verb in (Verb.PUSH, Verb.ADD):
                own = by_hand(model, mailboxes[row.mailbox], data, row.worker, row.step)
                round_.append(own)
            if row.verb in (Verb.PUSH, Verb.COMMIT):
                params = {name: params[name] - RATE * np.mean([each[name] for each in round_], 0) for name in params}
                round_ = []
        for name, array in outcome.final.items():
            assert np.allclose(array, params[name], rtol=1e-4, atol=1e-5)

    def test_workers_and_steps_have_masks_of_their_own(self):
        keys = fred.key_words(0, np.arange(50)[:, None], np.arange(200)).reshape(-1, 2)
        assert len(np.unique(keys, axis=0)) == 50 * 200
        assert (fred.key_words(0, 7, np.arange(3)) == fred.key_words(0, np.arange(9)[:, None], np.arange(3))[7]).all()
        masks = [jax.random.bernoulli(jax.random.wrap_key_data(key), 0.5, (64,)) for key in keys[:40]]
        assert np.isclose(np.mean(masks), 0.5, atol=0.05)

    @pytest.mark.parametrize("algorithm", ["asgd", "ssgd"])
    def test_without_dropout_the_run_is_that_of_a_model_that_knows_none(self, algorithm):
        class Plain(fred.Model):
            width: int = 6
            init, apply = Dropped.init, Dropped.apply

        how = {"name": algorithm, "learning_rate": RATE}
        assert not Plain().draws and Undropped().draws
        runs = [run(model, algorithm=how) for model in (Plain(), Dropped(rate=0.0), Undropped())]
        assert same(runs[0], runs[1]) and same(runs[0], runs[2])

    @pytest.mark.parametrize("model", MODELS[1:])
    def test_what_is_evaluated_draws_nothing_and_training_does(self, model):
        params, inputs = model().init(jax.random.key(0), (5,), 3), jnp.ones((8, 5))
        trained = [model().training(params, inputs, jax.random.key(number)) for number in (0, 0, 1)]
        assert (trained[0] == trained[1]).all() and (trained[0] != trained[2]).any()
        assert (model().apply(params, inputs) == model(rate=0.0).training(params, inputs, jax.random.key(5))).all()
        assert model().draws

    def test_modules_without_dropout_draw_nothing(self):
        class Flat(fred.FlaxModel):
            def module(self) -> linen.Module:
                return linen.Dense(3)

        class Newer(fred.NNXModel):
            def module(self, rngs: nnx.Rngs) -> nnx.Module:
                return nnx.Linear(5, 3, rngs=rngs)

        class Other(fred.EquinoxModel):
            def module(self, key: jax.Array) -> equinox.Module:
                return equinox.nn.MLP(5, 3, 4, 1, key=key)

        assert not any(model().draws for model in (Flat, Newer, Other))


def by_hand(model: Dropped, params: dict[str, np.ndarray], data: fred.Dataset, worker: int, step: int) -> dict[str, np.ndarray]:
    """A gradient by NumPy, its mask by jax.random from the seed, the worker and the step alone."""
    indices = fred.batch_indices(3, worker, step, batch_size=BATCH, examples=len(data.train))
    key = jax.random.wrap_key_data(fred.key_words(3, worker, step))
    inputs, answers = data.train.inputs[indices], data.train.answers[indices]
    tanh = np.tanh(inputs @ params["one"])
    mask = np.asarray(jax.random.bernoulli(key, 1 - model.rate, tanh.shape)) / (1 - model.rate)
    hidden = tanh * mask
    outputs = hidden @ params["two"]
    chances = np.exp(outputs) / np.exp(outputs).sum(1, keepdims=True)
    deltas = (chances - np.eye(outputs.shape[1])[answers]) / len(indices)
    return {"one": inputs.T @ (deltas @ params["two"].T * mask * (1 - tanh**2)), "two": hidden.T @ deltas}
