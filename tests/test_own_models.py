"""Models that draw random numbers in training, or are made by other libraries, and users' loss functions."""

from functools import partial
from typing import Any

import equinox
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import fred
from fred import FredError, Verb
from fred.learning.loss import CrossEntropy, Loss, SquaredError
from fred.learning.models.built_in_models import SoftmaxRegression
from fred.running.execution import check
from tests.worlds import RATE, TASK, make_run, outcome, same_outcome

VALUES = {"name": "synthetic-regression", "examples": 50, "evaluation": 10, "features": 8}
BATCH, SEED = 4, 3


class Dropped(fred.Model):
    """Two layers with dropout between them, in plain JAX."""

    rate: float = 0.5
    width: int = 6

    def init(self, key: jax.Array, input_shape: tuple[int, ...], outputs: int) -> fred.Params:
        first_key, second_key = jax.random.split(key)
        return {
            "one": jax.random.normal(first_key, (*input_shape, self.width)),
            "two": jax.random.normal(second_key, (self.width, outputs)),
        }

    def apply(self, params: fred.Params, inputs: jax.Array) -> jax.Array:
        return jnp.tanh(inputs @ params["one"]) @ params["two"]

    def training(self, params: fred.Params, inputs: jax.Array, key: jax.Array) -> jax.Array:
        hidden = jnp.tanh(inputs @ params["one"])
        mask = jax.random.bernoulli(key, 1 - self.rate, hidden.shape)
        return jnp.where(mask, hidden / (1 - self.rate), 0.0) @ params["two"]


def derive(base: type, **members: Any) -> Any:
    return type("Derived", (base,), {"__module__": __name__, **members})()


class _Linen(linen.Module):
    rate: float

    @linen.compact
    def __call__(self, inputs: jax.Array, training: bool = False) -> jax.Array:
        hidden = linen.relu(linen.Dense(6)(inputs))
        return linen.Dense(4)(linen.Dropout(self.rate, deterministic=not training)(hidden))


class Linen(fred.FlaxModel):
    """Flax's older interface."""

    rate: float = 0.5

    def module(self) -> linen.Module:
        return _Linen(self.rate)


class NNX(fred.NNXModel):
    """Flax's newer one."""

    rate: float = 0.5

    def module(self, rngs: nnx.Rngs) -> nnx.Module:
        hidden, output = nnx.Linear(8, 6, rngs=rngs), nnx.Linear(6, 4, rngs=rngs)
        return nnx.Sequential(hidden, nnx.relu, nnx.Dropout(self.rate, rngs=rngs), output)


class Normalised(fred.NNXModel):
    """Batch normalisation, and dropout before it."""

    rate: float = 0.5

    def module(self, rngs: nnx.Rngs) -> nnx.Module:
        hidden, output, norm = nnx.Linear(8, 6, rngs=rngs), nnx.Linear(6, 4, rngs=rngs), nnx.BatchNorm(6, rngs=rngs)
        return nnx.Sequential(hidden, nnx.Dropout(self.rate, rngs=rngs), norm, nnx.relu, output)


class Equinox(fred.EquinoxModel):
    """Equinox."""

    rate: float = 0.5

    def module(self, key: jax.Array) -> equinox.Module:
        first_key, second_key = jax.random.split(key)
        first, last = equinox.nn.Linear(8, 6, key=first_key), equinox.nn.Linear(6, 4, key=second_key)
        return equinox.nn.Sequential([first, equinox.nn.Dropout(self.rate), last])


def run(model: Any, algorithm: str = "asgd", **options: Any) -> Any:
    return outcome(algorithm, seed=SEED, **{"task": {**TASK, "model": model}, "stop": {"updates": 12}, **options})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "options"),
    [
        *((model, {"algorithm": "ssgd"}) for model in (Dropped(), Linen(), NNX(), Equinox(), Normalised())),
        (Dropped(), {"protocol": {"name": "softsync", "n": 2, "clocks": "each"}, "cluster": {"workers": 3, "servers": 2}}),
        *((model, {"algorithm": "d-psgd"}) for model in (Dropped(), Normalised())),
        (Dropped(width=4000), {"stop": {"updates": 6}}),  # the replay keeps what lies between parameters and gradient
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, fred.Model) else "-".join(value),
)
def test_inline_and_replayed_runs_have_the_same_bits(model, options):
    assert same_outcome(run(model, **options), run(model, inline=True, **options))


class TestDropout:
    @pytest.mark.slow
    @pytest.mark.parametrize("algorithm", ["asgd", "ssgd"])
    def test_every_gradient_is_recomputed_from_the_schedule_and_the_documented_key(self, algorithm):
        replayed = run(Dropped(), algorithm)
        data = replayed.run.task.data.load(SEED)
        params = {name: np.asarray(array, float) for name, array in replayed.initial.items()}
        mailboxes, grads = {}, []
        for row in replayed.schedule:
            if row.verb == Verb.PULL:
                mailboxes[row.mailbox] = params
            elif row.verb in (Verb.PUSH, Verb.ADD):
                grads.append(plain_gradient(Dropped(), mailboxes[row.mailbox], data, row.worker, row.step))
            if row.verb in (Verb.PUSH, Verb.COMMIT):
                params = {name: params[name] - RATE * np.mean([grad[name] for grad in grads], 0) for name in params}
                grads = []
        assert all(np.allclose(array, params[name], rtol=1e-4, atol=1e-5) for name, array in replayed.final.items())

    @pytest.mark.slow
    def test_without_dropout_the_run_is_that_of_a_model_that_knows_none(self):
        base_model = derive(fred.Model, __annotations__={"width": int}, width=6, init=Dropped.init, apply=Dropped.apply)
        undropped = derive(Dropped, training=lambda self, params, inputs, key: self.apply(params, inputs))
        assert not base_model.draws and undropped.draws
        expected = run(base_model, "ssgd")
        assert all(same_outcome(expected, run(model, "ssgd")) for model in (undropped, Dropped(rate=0.0)))

    @pytest.mark.slow
    def test_what_is_evaluated_draws_nothing_and_training_does(self):
        @partial(jax.jit, static_argnums=0)
        def outputs(model, key, other):
            params, inputs = model.init(key, (8,), 4), jnp.ones((8, 8))
            undropped = type(model)(rate=0.0).training(params, inputs, key)
            return (
                *(model.training(params, inputs, subkey) for subkey in (key, other)),
                model.apply(params, inputs),
                undropped,
            )

        for model in (Linen(), NNX(), Equinox()):
            first, second, evaluated, undropped = outputs(model, jax.random.key(0), jax.random.key(1))
            assert (first != second).any() and (evaluated == undropped).all(), model
            assert model.draws, model

    def test_modules_without_dropout_draw_nothing_and_compute_what_numpy_does(self):
        inputs = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)
        for base, module in (
            (fred.FlaxModel, lambda self: linen.Dense(4)),
            (fred.NNXModel, lambda self, rngs: nnx.Linear(8, 4, rngs=rngs)),
            (fred.EquinoxModel, lambda self, key: equinox.nn.Linear(8, 4, key=key)),
        ):
            model = derive(base, module=module)
            assert not model.draws, base
            params = model.init(jax.random.key(0), (8,), 4)
            biases, weights = sorted(map(np.asarray, jax.tree.leaves(params)), key=np.ndim)
            weights = weights.T if base is fred.EquinoxModel else weights
            assert np.allclose(model.apply(params, inputs), inputs @ weights + biases, rtol=1e-5, atol=1e-5), base
            assert weights.std() > 0.1


def plain_gradient(model: Dropped, params: dict[str, np.ndarray], data: fred.Dataset, worker: int, step: int) -> dict:
    """A gradient by NumPy, its mask by jax.random from the seed, the worker and the step alone."""
    indices = fred.batch_indices(SEED, worker, step, batch_size=BATCH, examples=len(data.train))
    key = jax.random.wrap_key_data(jnp.asarray(fred.key_words(SEED, worker, step)))
    inputs, answers = data.train.inputs[indices], data.train.answers[indices]
    tanh = np.tanh(inputs @ params["one"])
    mask = np.asarray(jax.random.bernoulli(key, 1 - model.rate, tanh.shape)) / (1 - model.rate)
    outputs = tanh * mask @ params["two"]
    chances = np.exp(outputs) / np.exp(outputs).sum(1, keepdims=True)
    deltas = (chances - np.eye(outputs.shape[1])[answers]) / len(indices)
    return {"one": inputs.T @ (deltas @ params["two"].T * mask * (1 - tanh**2)), "two": (tanh * mask).T @ deltas}


class TestBatchNormalisation:
    @pytest.mark.slow
    def test_what_is_evaluated_is_normalised_by_the_training_examples(self):
        """NumPy evaluates the final parameters of a run, which hold nothing but parameters."""
        replayed = run(Normalised(), "ssgd")
        data, params = replayed.run.task.data.load(SEED), {k.split("layers/")[1]: v for k, v in replayed.final.items()}
        assert {name.split("/")[1] for name in params} == {"kernel", "bias", "scale"}
        hidden = [part.inputs @ params["0/kernel"] + params["0/bias"] for part in (data.train, data.evaluation)]
        normal = (hidden[1] - hidden[0].mean(0)) / np.sqrt(hidden[0].var(0) + 1e-5)
        outputs = np.maximum(normal * params["2/scale"] + params["2/bias"], 0) @ params["4/kernel"] + params["4/bias"]
        losses = np.log(np.exp(outputs).sum(1)) - outputs[np.arange(len(outputs)), data.evaluation.answers]
        assert replayed.summary["loss"] == pytest.approx(losses.mean(), rel=1e-4)

    def test_state_of_other_kinds_is_refused(self):
        counting = derive(fred.FlaxModel, module=lambda self: linen.BatchNorm(use_running_average=False))
        with pytest.raises(FredError, match="has state beside its parameters"):
            counting.init(jax.random.key(0), (5,), 3)


class Huber(fred.LossFunction):
    """Squared where it is near, absolute where it is far, with the largest difference as error."""

    delta: float = 1.0

    def losses(self, outputs: jax.Array, answers: jax.Array) -> jax.Array:
        distance = jnp.abs(outputs - answers)
        near = jnp.minimum(distance, self.delta)
        return (near * (distance - 0.5 * near)).sum(-1)

    def error(self, outputs: jax.Array, answers: jax.Array) -> jax.Array:
        return jnp.abs(outputs - answers).max()


class TestLoss:
    def test_what_a_task_does_not_name_follows_from_the_data(self):
        for data, loss in ((VALUES, SquaredError()), (TASK["data"], CrossEntropy())):
            task: Any = make_run(task={**TASK, "data": data}).task
            assert Loss.for_data(task.model, task.loss, task.data.load(0)) == Loss(SoftmaxRegression(), loss)

    def test_a_linear_regression_and_what_is_measured_of_it_are_recomputed_by_numpy(self):
        replayed = run("softmax", "ssgd", task={**TASK, "data": VALUES, "loss": Huber(delta=0.3)})
        data = replayed.run.task.data.load(SEED)
        params = {name: np.asarray(array, float) for name, array in replayed.initial.items()}
        for step in range(12):
            minibatches = fred.batch_indices(SEED, np.arange(4), step, batch_size=BATCH, examples=len(data.train)).ravel()
            inputs, answers = data.train.inputs[minibatches], data.train.answers[minibatches]
            deltas = np.clip(inputs @ params["weights"] + params["biases"] - answers, -0.3, 0.3) / len(minibatches)
            params["weights"] -= RATE * inputs.T @ deltas
            params["biases"] -= RATE * deltas.sum(0)
        assert all(np.allclose(array, params[name], rtol=1e-4, atol=1e-5) for name, array in replayed.final.items())
        distances = np.abs(data.evaluation.inputs @ params["weights"] + params["biases"] - data.evaluation.answers)
        near = np.minimum(distances, 0.3)
        assert replayed.summary["error"] == pytest.approx(distances.max(), rel=1e-4)
        assert replayed.summary["loss"] == pytest.approx((near * (distances - near / 2)).sum(1).mean(), rel=1e-4)

    def test_losses_of_classes_are_those_of_their_smooth_labels_or_indicators(self):
        outputs, answers = np.random.default_rng(0).normal(size=(5, 3)), np.array([0, 2, 1, 1, 0])
        arrays, labels = (jnp.array(outputs), jnp.array(answers)), 0.7 * np.eye(3)[answers] + 0.1
        expected = -(labels * np.log(np.exp(outputs) / np.exp(outputs).sum(1, keepdims=True))).sum(1)
        assert np.allclose(CrossEntropy(smoothing=0.3).losses(*arrays), expected, rtol=1e-5)
        assert np.allclose(SquaredError().losses(*arrays), np.square(outputs - np.eye(3)[answers]).mean(1), rtol=1e-5)
        assert SquaredError().error(*arrays) == pytest.approx((outputs.argmax(1) != answers).mean())


def test_what_does_not_fit_is_refused_in_one_line():
    shapeless = derive(Huber, losses=lambda self, outputs, answers: jnp.square(outputs - answers).mean())
    blind = derive(Huber, losses=lambda self, outputs: outputs.sum(-1))
    keyless = derive(Dropped, training=lambda self, params, inputs: inputs)
    other = derive(Dropped, training=lambda self, params, inputs, key: self.apply(params, inputs).sum(-1))
    for task, message in (
        ({"data": VALUES, "loss": "cross-entropy"}, "loss `cross-entropy` needs classes"),
        ({"data": VALUES, "loss": shapeless}, r"`losses` of loss `.*Derived` gives \[\].*one number for"),
        ({"data": VALUES, "loss": blind}, r"`losses` of .*Derived must take \(self, outputs, answers\)"),
        ({"model": keyless}, r"`training` of .*Derived must take \(self, params, inputs, key\)"),
        ({"model": other}, r"`training` of model `.*Derived` gives \[2\] for 2 examples; expected \[2, 4\]"),
    ):
        with pytest.raises(FredError, match=message) as refusal:
            check("run", make_run(task=TASK | task), 0)
        assert "\n" not in str(refusal.value)
