"""Models that draw random numbers in training, or are made by other libraries, and loss functions of one's own."""

from typing import Any

import equinox
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import fred
from fred.base.errors import FredError
from fred.commands import cli
from fred.components import registry
from fred.learning.loss import Loss
from fred.learning.loss_functions import CrossEntropy, SquaredError
from fred.outcomes.computed import Computed
from fred.running.execution import check, execute
from fred.schedule.schedule import Verb

pytestmark = pytest.mark.slow

DATA = {"name": "synthetic-classification", "examples": 60, "evaluation": 20, "features": 5, "classes": 3}
VALUES = {"name": "synthetic-regression", "examples": 50, "evaluation": 10, "features": 5}
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
        first, last = equinox.nn.Linear(5, 6, key=one), equinox.nn.Linear(6, 3, key=two)
        return equinox.nn.Sequential([first, equinox.nn.Dropout(self.rate), last])


MODELS = (Dropped, Linen, NNX, Equinox)


def run(model: fred.Model, inline: bool = False, seed: int = 0, updates: int = 12, **given: Any) -> Computed:
    """A run of a few updates."""
    task = {"data": DATA, "model": model, "batch_size": BATCH, **given.pop("task", {})}
    cluster = {"workers": 3, "compute": {"name": "lognormal", "median": 0.1, "sigma": 0.8}, **given.pop("cluster", {})}
    whole = {"task": task, "cluster": cluster, "stop": {"updates": updates}, "evaluate": {"points": 3}, **given}
    whole.setdefault("algorithm", {"name": "asgd", "learning_rate": RATE})
    return execute("mine", fred.scenario(runs={"mine": whole}).runs["mine"], seed, inline=inline)


def data_of(outcome: Computed) -> fred.Data:
    """Return the learned parameters and evaluations."""
    assert outcome.run.task is not None
    return outcome.run.task.data


def same(one: Computed, other: Computed) -> bool:
    """Bit for bit."""
    return one.metrics.equals(other.metrics) and all(
        np.array_equal(array, other.final[name]) for name, array in one.final.items()
    )


class TestDropout:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        "model", [pytest.param(each, marks=[] if each in (Dropped, NNX) else [pytest.mark.slow]) for each in MODELS]
    )
    def test_inline_and_replayed_rounds_have_the_same_bits(self, model):
        rounds = {"name": "ssgd", "learning_rate": RATE}
        assert same(run(model(), algorithm=rounds), run(model(), inline=True, algorithm=rounds))

    @pytest.mark.parametrize(
        "how",
        [
            {},
            {"protocol": {"name": "softsync", "n": 2, "clocks": "each"}, "cluster": {"servers": 2}},
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
        data, model = data_of(outcome).load(3), Dropped()
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
        masks = [jax.random.bernoulli(jax.random.wrap_key_data(jnp.asarray(key)), 0.5, (64,)) for key in keys[:40]]
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
    key = jax.random.wrap_key_data(jnp.asarray(fred.key_words(3, worker, step)))
    inputs, answers = data.train.inputs[indices], data.train.answers[indices]
    tanh = np.tanh(inputs @ params["one"])
    mask = np.asarray(jax.random.bernoulli(key, 1 - model.rate, tanh.shape)) / (1 - model.rate)
    hidden = tanh * mask
    outputs = hidden @ params["two"]
    chances = np.exp(outputs) / np.exp(outputs).sum(1, keepdims=True)
    deltas = (chances - np.eye(outputs.shape[1])[answers]) / len(indices)
    return {"one": inputs.T @ (deltas @ params["two"].T * mask * (1 - tanh**2)), "two": hidden.T @ deltas}


class Huber(fred.LossFunction):
    """Squared where it is near, absolute where it is far."""

    delta: float = 1.0

    def losses(self, outputs: jax.Array, answers: jax.Array) -> jax.Array:
        apart = jnp.abs(outputs - answers)
        near = jnp.minimum(apart, self.delta)
        return (near * (apart - 0.5 * near)).sum(-1)


class Worst(Huber):
    """With an error of its own."""

    def error(self, outputs: jax.Array, answers: jax.Array) -> jax.Array:
        return jnp.abs(outputs - answers).max()


def regression(loss: Any = None, **given: Any) -> Computed:
    """A linear model of values."""
    task: dict[str, Any] = {"data": VALUES, "batch_size": BATCH, **({"loss": loss} if loss else {})}
    return run("softmax", task=task, algorithm={"name": "ssgd", "learning_rate": RATE}, **given)  # type: ignore[arg-type]


class Normalised(fred.NNXModel):
    """Batch normalisation, and dropout before it."""

    rate: float = 0.5

    def module(self, rngs: nnx.Rngs) -> nnx.Module:
        one, two, norm = nnx.Linear(5, 6, rngs=rngs), nnx.Linear(6, 3, rngs=rngs), nnx.BatchNorm(6, rngs=rngs)
        return nnx.Sequential(one, nnx.Dropout(self.rate, rngs=rngs), norm, nnx.relu, two)


class TestBatchNormalisation:
    @pytest.mark.parametrize("algorithm", ["ssgd", "d-psgd"])
    def test_inline_and_replayed_runs_have_the_same_bits(self, algorithm):
        how = {"name": algorithm, "learning_rate": RATE}
        assert same(run(Normalised(), algorithm=how), run(Normalised(), inline=True, algorithm=how))

    def test_what_is_evaluated_is_normalised_by_the_training_examples(self):
        """By NumPy, from the parameters that a run came to; nothing but parameters is in them."""
        outcome = run(Normalised())
        data, params = data_of(outcome).load(0), {name.split("layers/")[1]: array for name, array in outcome.final.items()}
        assert {name.split("/")[1] for name in params} == {"kernel", "bias", "scale"}
        hidden = [part.inputs @ params["0/kernel"] + params["0/bias"] for part in (data.train, data.evaluation)]
        normal = (hidden[1] - hidden[0].mean(0)) / np.sqrt(hidden[0].var(0) + 1e-5)
        outputs = np.maximum(normal * params["2/scale"] + params["2/bias"], 0) @ params["4/kernel"] + params["4/bias"]
        losses = np.log(np.exp(outputs).sum(1)) - outputs[np.arange(len(outputs)), data.evaluation.answers]
        assert outcome.summary["loss"] == pytest.approx(losses.mean(), rel=1e-4)

    def test_a_minibatch_is_normalised_by_itself_also_in_a_round(self):
        model = Normalised(rate=0.0)
        params, inputs = model.init(jax.random.key(0), (5,), 3), np.random.default_rng(0).normal(size=(8, 5))
        examples, rows = (jnp.array(inputs, jnp.float32), jnp.zeros(8, jnp.int32)), np.arange(8).reshape(2, 4)
        gradient = jax.jit(Loss(model, CrossEntropy()).gradient, static_argnames="members")
        minibatches = np.concatenate((rows, fred.key_words(0, [0, 1], 0).view(np.int32)), axis=1).astype(np.int32)
        together = gradient(params, examples, jnp.array(minibatches.ravel()), members=2)
        apart = [gradient(params, examples, jnp.array(each)) for each in minibatches]
        mean = jax.tree.map(lambda one, other: (one + other) / 2, *apart)
        assert all(jax.tree.leaves(jax.tree.map(lambda one, other: np.allclose(one, other, atol=1e-6), together, mean)))

    def test_state_of_other_kinds_is_refused(self):
        class Counting(fred.FlaxModel):
            def module(self) -> linen.Module:
                return linen.BatchNorm(use_running_average=False)

        with pytest.raises(FredError, match="has state beside its parameters"):
            Counting().init(jax.random.key(0), (5,), 3)


class TestLoss:
    def test_what_a_task_does_not_name_follows_from_the_data(self):
        assert same(regression(), regression("squared-error"))
        assert same(run(Dropped()), run(Dropped(), task={"loss": "cross-entropy"}))
        assert not same(run(Dropped()), run(Dropped(), task={"loss": {"name": "cross-entropy", "smoothing": 0.2}}))

    @pytest.mark.parametrize(
        ("loss", "slope"),
        [
            ("squared-error", lambda apart: 2 * apart),
            (Huber(delta=0.3), lambda apart: np.clip(apart, -0.3, 0.3)),
        ],
    )
    def test_a_linear_regression_is_recomputed_by_numpy(self, loss, slope):
        outcome = regression(loss)
        data = data_of(outcome).load(0)
        params = {name: np.asarray(array, float) for name, array in outcome.initial.items()}
        for step in range(outcome.summary["updates"]):
            seen = fred.batch_indices(0, np.arange(3), step, batch_size=BATCH, examples=len(data.train)).ravel()
            inputs, answers = data.train.inputs[seen], data.train.answers[seen]
            deltas = slope(inputs @ params["weights"] + params["biases"] - answers) / len(seen)
            params["weights"] -= RATE * inputs.T @ deltas
            params["biases"] -= RATE * deltas.sum(0)
        assert all(np.allclose(array, params[name], rtol=1e-4, atol=1e-5) for name, array in outcome.final.items())

    def test_curves_and_targets_show_the_loss_that_is_named_and_its_error(self):
        target = float(regression(Worst(delta=0.3), evaluate={"points": 12}).metrics["error"].iloc[6])
        outcome = regression(Worst(delta=0.3), evaluate={"points": 12, "target_error": target})
        data, params = data_of(outcome).load(0), outcome.final
        apart = np.abs(data.evaluation.inputs @ params["weights"] + params["biases"] - data.evaluation.answers)
        assert outcome.summary["error"] == pytest.approx(apart.max(), rel=1e-5)
        near = np.minimum(apart, 0.3)
        assert outcome.summary["loss"] == pytest.approx((near * (apart - near / 2)).sum(1).mean(), rel=1e-5)
        reached = outcome.metrics["updates"][outcome.metrics["error"] <= target]
        assert outcome.summary["target"]["updates"] == reached.iloc[0]

    def test_smooth_labels_are_mixed_with_all_classes(self):
        outputs, answers = np.random.default_rng(0).normal(size=(5, 3)), np.array([0, 2, 1, 1, 0])
        labels = 0.7 * np.eye(3)[answers] + 0.1
        expected = -(labels * np.log(np.exp(outputs) / np.exp(outputs).sum(1, keepdims=True))).sum(1)
        assert np.allclose(CrossEntropy(smoothing=0.3).losses(jnp.array(outputs), jnp.array(answers)), expected, rtol=1e-5)

    def test_squared_error_of_classes_is_that_of_their_indicators(self):
        outputs, answers = np.random.default_rng(0).normal(size=(5, 3)), np.array([0, 2, 1, 1, 0])
        expected = np.square(outputs - np.eye(3)[answers]).mean(1)
        assert np.allclose(SquaredError().losses(jnp.array(outputs), jnp.array(answers)), expected, rtol=1e-5)
        assert run(Dropped(), task={"loss": "squared-error"}).summary["error"] <= 1


@pytest.mark.slow
def test_a_model_and_a_loss_of_ones_own_are_named_stored_and_verified(tmp_path):
    registry.allow_import(["tests.test_own_models"])
    (tmp_path / "own.yaml").write_text(
        "task:\n  data: {name: synthetic-regression, examples: 50, evaluation: 10, features: 5, outputs: 3}\n"
        "  model: {name: 'tests.test_own_models:NNX', rate: 0.25}\n"
        "  loss: {name: 'tests.test_own_models:Huber', delta: 0.5}\n"
        "cluster: {workers: 2}\nstop: {updates: 4}\nalgorithm: {name: asgd, learning_rate: 0.1}\n"
    )
    scenario = fred.load(tmp_path / "own.yaml")
    task = scenario.runs["asgd"].task
    assert task is not None and task.loss is not None and (task.loss.delta, task.model.rate) == (0.5, 0.25)
    result = fred.run(scenario, out=tmp_path / "results")
    read = fred.load_result(tmp_path / "results")
    assert read.summary["loss"].tolist() == result.summary["loss"].tolist()
    assert cli.main(["verify", str(tmp_path / "results"), "--import", "tests.test_own_models"]) == 0


class Shapeless(Huber):
    """Of all examples together."""

    def losses(self, outputs: jax.Array, answers: jax.Array) -> jax.Array:
        return jnp.square(outputs - answers).mean()


class Blind(fred.LossFunction):
    """Is told less than it is told."""

    def losses(self, outputs: jax.Array) -> jax.Array:  # type: ignore[override]
        return outputs.sum(-1)


class Keyless(Dropped):
    """Wants no key."""

    def training(self, params: fred.Params, inputs: jax.Array) -> jax.Array:  # type: ignore[override]
        return self.apply(params, inputs)


class Other(Dropped):
    """Makes something else in training."""

    def training(self, params: fred.Params, inputs: jax.Array, key: jax.Array) -> jax.Array:
        return self.apply(params, inputs).sum(-1)


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ({"data": VALUES, "model": "softmax", "loss": "cross-entropy"}, "loss `cross-entropy` needs classes"),
        (
            {"data": VALUES, "model": "softmax", "loss": Shapeless()},
            r"`losses` of loss `.*Shapeless` gives \[\].*one number for",
        ),
        (
            {"data": VALUES, "model": "softmax", "loss": Blind()},
            r"`losses` of loss `.*Blind` must take \(self, outputs, answers\)",
        ),
        ({"data": DATA, "model": Keyless()}, r"`training` of model `.*Keyless` must take \(self, params, inputs, key\)"),
        ({"data": DATA, "model": Other()}, r"`training` of model `.*Other` gives \[2\] for 2 examples; expected \[2, 3\]"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(task, said):
    whole = fred.scenario(
        task=task, cluster={"workers": 2}, stop={"updates": 2}, algorithm={"name": "asgd", "learning_rate": 1}
    )
    with pytest.raises(FredError, match=said) as refusal:
        check("asgd", whole.runs["asgd"], 0)
    assert "\n" not in str(refusal.value)
