"""Data, models, losses and samplers against independent computations."""

import gzip
import struct
from typing import Any

import jax
import numpy as np
import pytest
from jax.nn import initializers
from scipy import signal

import fred
from fred import batch_indices
from fred.base.errors import FredError
from fred.learning.data.dataset import Dataset, Examples
from fred.learning.data.images import CIFAR10, MNIST, Digits
from fred.learning.data.synthetic import SyntheticClassification, SyntheticRegression
from fred.learning.keys import key_of, split
from fred.learning.loss import Loss
from fred.learning.loss_functions import CrossEntropy
from fred.learning.models.cnn import CNN
from fred.learning.models.mlp import MLP, SoftmaxRegression
from fred.learning.models.model import initialiser
from fred.learning.models.transformer import Transformer
from fred.running.execution import execute
from fred.schedule.minibatches import Minibatches
from fred.specification.loading import Scenario
from tests.recompute import gradient
from tests.worlds import make_run


def named(params) -> dict:
    leaves = jax.tree_util.tree_flatten_with_path(params)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf) for path, leaf in leaves}


def test_mlp_gradient_is_backpropagation():
    model = MLP(hidden=(7, 5))
    params = model.init(jax.random.key(0), (3, 2), 4)
    rng = np.random.default_rng(0)
    inputs, answers = rng.normal(size=(50, 3, 2)).astype(np.float32), rng.integers(0, 4, 50).astype(np.int32)
    indices = np.array([3, 1, 4, 1, 5, 9])
    loss: Any = Loss(model, CrossEntropy())  # takes NumPy arrays as well
    ours = named(loss.gradient(params, (inputs, answers), indices))
    reference = gradient({k: v.astype(float) for k, v in named(params).items()}, inputs[indices], answers[indices])
    for path, value in reference.items():
        np.testing.assert_allclose(ours[path], value, rtol=1e-4, atol=1e-6)


def test_masked_gradient_is_that_of_the_real_examples():
    model = SoftmaxRegression()
    loss: Any = Loss(model, CrossEntropy())  # takes NumPy arrays as well
    rng = np.random.default_rng(0)
    examples = rng.normal(size=(20, 3)).astype(np.float32), rng.integers(0, 4, 20).astype(np.int32)
    params = jax.tree.map(lambda leaf: leaf + 0.1, model.init(jax.random.key(0), (3,), 4))
    masked = loss.gradient(params, examples, np.array([5, 6, 7, 7, 7]), count=3)
    real = loss.gradient(params, examples, np.array([5, 6, 7]))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), masked, real)


def test_l2_adds_the_parameters_to_gradients_and_half_their_squares_to_the_loss():
    """Logistic regression with what makes it strongly convex."""
    rng = np.random.default_rng(0)
    examples = rng.normal(size=(20, 3)).astype(np.float32), rng.integers(0, 2, 20).astype(np.int32)
    params: Any = {"weights": rng.normal(size=(3, 2)).astype(np.float32), "biases": np.array([1, 2], np.float32)}
    plain: Any = Loss(SoftmaxRegression(), CrossEntropy())
    penalised: Any = Loss(SoftmaxRegression(), CrossEntropy(), 0.3)
    for count in (None, 3):
        asked = params, examples, np.array([5, 6, 7, 7])
        ours, known = penalised.gradient(*asked, count=count), plain.gradient(*asked, count=count)
        for name, values in params.items():
            np.testing.assert_allclose(ours[name], known[name] + 0.3 * values, rtol=1e-5, atol=1e-6)
    squares = sum(np.square(values).sum() for values in params.values())
    (loss, error), (less, same) = penalised.evaluate(params, examples), plain.evaluate(params, examples)
    assert float(loss) == pytest.approx(float(less) + 0.15 * squares, rel=1e-6)
    assert error == same


def test_a_task_with_l2_goes_to_the_minimum_that_newton_finds():
    data = SyntheticClassification(classes=2, features=3, noise=2.0, examples=400, evaluation=100)
    task = {"data": data, "model": "softmax", "batch_size": 300, "sampling": "shuffled", "l2": 0.1}
    run = make_run(task=task, cluster={"workers": 1}, stop={"updates": 400}, algorithm={"name": "asgd", "learning_rate": 0.5})
    found, examples = execute("run", run, 1).final, data.load(1).train
    inputs, signs = np.c_[examples.inputs, np.ones(len(examples))].astype(float), 2.0 * examples.answers - 1
    line = np.zeros(4)  # of two classes' columns, which are each other's opposite: w and -w
    for _ in range(20):
        wrong = 1 / (1 + np.exp(2 * signs * (inputs @ line)))
        slope = -2 * (signs * wrong) @ inputs / len(examples) + 0.2 * line
        line -= np.linalg.solve(4 * (inputs.T * (wrong * (1 - wrong))) @ inputs / len(examples) + 0.2 * np.eye(4), slope)
    np.testing.assert_allclose(found["weights"], np.c_[-line[:3], line[:3]], atol=1e-4)
    np.testing.assert_allclose(found["biases"], [-line[3], line[3]], atol=1e-4)


@pytest.mark.parametrize("kernel", [1, 2, 3, 5])
def test_convolution_by_patches_is_a_convolution(kernel):
    model = CNN(channels=(3,), kernel=kernel, hidden=4)
    params = model.init(jax.random.key(0), (6, 6, 2), 5)
    image: Any = np.random.default_rng(0).normal(size=(6, 6, 2))
    weights = np.asarray(params["convolution0"]["weights"]).reshape(kernel, kernel, 2, 3)
    before = (kernel - 1) // 2
    maps = np.zeros((6, 6, 3))
    padded = np.pad(image, ((before, kernel // 2), (before, kernel // 2), (0, 0)))
    for o in range(3):
        for c in range(2):
            maps[..., o] += signal.correlate2d(padded[..., c], weights[..., c, o], mode="valid")
    pooled = np.maximum(maps, 0).reshape(3, 2, 3, 2, 3).max(axis=(1, 3)).ravel()
    hidden = np.maximum(pooled @ np.asarray(params["hidden"]["weights"]), 0)
    scores = hidden @ np.asarray(params["outputs"]["weights"])
    np.testing.assert_allclose(model.apply(params, image[None].astype(np.float32))[0], scores, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("data", "channels", "message"),
    [
        ("synthetic-classification", [4], r"needs images, .* inputs are \[20\]"),
        ("digits", [4, 4, 4, 4], r"halves the image, of which nothing would be left \(8 x 8 pixels\)"),
    ],
)
def test_a_network_that_does_not_fit_the_data_is_refused_before_any_run(data, channels, message):
    fits = make_run(task={"data": "digits", "model": "softmax"}, stop={"updates": 10**8})
    other = make_run(task={"data": data, "model": {"name": "cnn", "channels": channels}})
    with pytest.raises(FredError, match=f"^run `other`: model `cnn`.*{message}"):
        fred.run(Scenario(runs={"long": fits, "other": other}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"answers": np.zeros(3, np.int32)}, "training data: 4 inputs and 3 answers"),
        ({"answers": np.array([0, 1, 2, -1], np.int32)}, "class numbers run from -1 to 2; expected 0 to 2"),
        ({"answers": np.array([0, 1, 2, 3], np.int32)}, "class numbers run from 0 to 3; expected 0 to 2"),
        ({"answers": np.zeros(4, np.float32)}, r"answers are \[4\] float32, inputs float32; expected values \[n, 3\] float32"),
        ({"answers": np.zeros(4, np.uint8)}, r"answers are \[4\] uint8"),
        ({"inputs": np.array([[0.0], [np.nan], [0.0], [0.0]], np.float32)}, "training data: some numbers are not finite"),
    ],
)
def test_arrays_that_do_not_belong_together_are_refused(changes, message):
    right: dict[str, Any] = {"inputs": np.zeros((4, 1), np.float32), "answers": np.array([0, 1, 2, 0], np.int32)}
    assert Dataset(Examples(**right), Examples(**right), outputs=3).classifies
    with pytest.raises(FredError, match=message):
        Dataset(Examples(**right | changes), Examples(**right), outputs=3)


def test_a_model_larger_than_memory_is_refused_before_any_run():
    run = make_run(task={"data": "digits", "model": {"name": "mlp", "hidden": [10**9]}})
    with pytest.raises(
        FredError, match=r"^run `large`: the model has 75,000,000,010 parameters: 1 replica\(s\) and one gradient"
    ):
        fred.run(Scenario(runs={"large": run}))


def test_regression_reaches_the_least_squares_solution():
    from fred.running.execution import execute

    data = {"name": "synthetic-regression", "examples": 2000, "features": 5, "noise": 0.3, "evaluation": 1000}
    task = {"data": data, "model": "softmax", "batch_size": 100}
    cluster = {"workers": 4}
    run = make_run({"name": "ssgd", "learning_rate": 0.1}, task=task, cluster=cluster, stop={"updates": 300})
    outcome = execute("run", run, 3)
    assert run.task is not None
    examples = run.task.data.load(3)
    solution = np.linalg.lstsq(examples.train.inputs, examples.train.answers, rcond=None)[0]
    residual = examples.evaluation.inputs @ solution - examples.evaluation.answers
    assert outcome.metrics["loss"].iloc[-1] == pytest.approx(float((residual**2).mean()), rel=0.05)
    assert outcome.metrics["error"].iloc[-1] == pytest.approx(np.sqrt(outcome.metrics["loss"].iloc[-1]), rel=1e-5)


def test_initialisations_have_the_deviation_they_say():
    for name, variance in (("standard_normal", 1.0), ("he_normal", 2 / 400), ("lecun_normal", 1 / 400)):
        weights = MLP(hidden=(300,), initialisation=name).init(jax.random.key(0), (400,), 2)["layer0"]["weights"]
        assert float(np.var(weights)) == pytest.approx(variance, rel=0.02)


@pytest.mark.parametrize("name", ["he_normal", "glorot_normal", "lecun_normal", "standard_normal"])
def test_first_weights_are_those_that_jax_draws_by_itself(name):
    own, jaxs = initialiser(name), initializers.normal(1.0) if name == "standard_normal" else getattr(initializers, name)()
    for seed in (0, 5, 2**32 - 1):
        for number, shape in enumerate(((1, 1), (3, 5), (300, 77))):  # the last takes more than one of the fixed size
            key = split(key_of(seed), 3)[number]
            same_key = jax.random.split(jax.random.key(np.uint32(seed)), 3)[number]
            assert np.array_equal(own(key, shape), jaxs(same_key, shape))


def test_keys_of_other_kinds_are_left_to_jax():
    """Also where there is nothing to look at yet, as under `jax.eval_shape`."""
    for key in (jax.random.key(3, impl="rbg"), jax.random.PRNGKey(3)):
        one, other = split(key)
        assert np.array_equal(jax.random.split(key)[1], other) if key.ndim else other == jax.random.split(key)[1]
        assert np.array_equal(initialiser("he_normal")(one, (3, 5)), initializers.he_normal()(one, (3, 5)))
        assert np.array_equal(initialiser("standard_normal")(one, (3, 5)), jax.random.normal(one, (3, 5)))
    shapes = jax.eval_shape(lambda key: MLP(hidden=(7,)).init(key, (4,), 2), key_of(0))
    assert shapes["layer0"]["weights"].shape == (4, 7)


@pytest.mark.parametrize("model", [MLP(hidden=(7,)), CNN(channels=(2,), hidden=3), SoftmaxRegression(), Transformer(width=8)])
def test_first_weights_are_arrays_of_jax_also_where_a_key_of_ones_own_is_traced_around(model):
    key = key_of(3)
    params = model.init(key, (4, 4), 2)
    assert all(isinstance(leaf, jax.Array) and leaf.dtype == np.float32 for leaf in jax.tree.leaves(params))
    traced = jax.jit(lambda: model.init(key, (4, 4), 2))()
    assert all(map(np.array_equal, jax.tree.leaves(params), jax.tree.leaves(traced)))


def test_generated_data_follow_the_seed_and_more_examples_leave_the_earlier_ones():
    for kind in (SyntheticClassification, SyntheticRegression):
        small, large = kind(examples=100, evaluation=10).load(1).train, kind(examples=200, evaluation=10).load(1).train
        assert np.array_equal(small.inputs, large.inputs[:90])
        assert not np.array_equal(small.inputs, kind(examples=100, evaluation=10).load(2).train.inputs)


def test_digits_ship_with_the_library():
    data = Digits().load(0)
    assert data.train.inputs.shape == (1437, 8, 8, 1)
    assert data.evaluation.inputs.shape == (360, 8, 8, 1)
    assert (data.train.inputs.min(), data.train.inputs.max()) == (0, 1)


class TestSampling:
    def test_workers_parts_make_up_the_one_workers_batch(self):
        for sampling in ("replacement", "shuffled"):
            many = batch_indices(1, np.arange(4), 9, batch_size=3, examples=100, sampling=sampling, workers=4)
            one = batch_indices(1, 0, 9, batch_size=12, examples=100, sampling=sampling, workers=1)
            assert many.ravel().tolist() == one.tolist()

    def test_replacement_is_uniform_and_adding_a_worker_moves_nobody(self):
        indices = batch_indices(1, np.arange(50)[:, None], np.arange(100), batch_size=8, examples=10)
        assert np.bincount(indices.ravel(), minlength=10).std() < 4 * np.sqrt(indices.size / 10)
        fewer = batch_indices(1, np.arange(7)[:, None], np.arange(100), batch_size=8, examples=10, workers=7)
        assert (indices[:7] == fewer).all()

    def test_shuffled_visits_everything_once_per_epoch(self):
        steps = np.arange(50)
        seen = batch_indices(1, np.arange(4), steps[:, None], batch_size=2, examples=40, sampling="shuffled", workers=4)
        epochs = seen.reshape(-1, 40)  # 50 steps of 8 are ten epochs of 40
        assert (np.sort(epochs, axis=1) == np.arange(40)).all()
        assert len({tuple(epoch) for epoch in epochs}) == 10

    def test_sequential_takes_minibatches_in_file_order(self):
        seen = batch_indices(1, 3, 0, batch_size=4, examples=10, sampling="sequential", ordinal=np.arange(4))
        assert seen.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 2, 3], [4, 5, 6, 7]]

    def test_one_at_a_time_is_the_same(self):
        for sampling in ("replacement", "shuffled", "sequential"):
            batches = Minibatches(2, batch_size=3, examples=50, sampling=sampling, workers=5)
            for worker, step in [(0, 0), (0, 1), (4, 0), (0, 70), (0, 2), (4, 1)]:
                assert batches.one(worker, step, 9).tolist() == batches.indices(worker, step, 9).tolist()


def idx(array: np.ndarray) -> bytes:
    return b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture
def tiny_mnist(tmp_path):
    rng = np.random.default_rng(0)
    for part, count in (("train", 30), ("t10k", 10)):
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(idx(rng.integers(0, 256, (count, 5, 4), np.uint8)))
        labels = idx((np.arange(count) % 3).astype(np.uint8))
        (tmp_path / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    return tmp_path


class TestFiles:
    def test_idx_files_are_read_plain_and_packed(self, tiny_mnist):
        data = MNIST(directory=tiny_mnist, canonical=False, validation=6, evaluation=4).load(0)
        assert (data.train.inputs.shape, data.evaluation.inputs.shape, data.outputs) == ((24, 5, 4, 1), (4, 5, 4, 1), 3)
        assert data.evaluation.answers.tolist() == [0, 1, 2, 0]
        assert data.train.inputs.max() <= 1

    def test_files_that_are_not_mnist_are_refused_unless_asked_for(self, tiny_mnist):
        with pytest.raises(FredError, match=r"train-images-idx3-ubyte is not the canonical file: .* MD5 6bbc9ace"):
            MNIST(directory=tiny_mnist).load(0)

    def test_missing_files_say_where_to_put_them(self, tmp_path, monkeypatch):
        with pytest.raises(FredError, match=f"put `train-images-idx3-ubyte` or .* into {tmp_path}"):
            MNIST(directory=tmp_path).load(0)
        with pytest.raises(FredError, match=f"put `data_batch.*` or .* into {tmp_path}"):
            CIFAR10(directory=tmp_path).load(0)
        monkeypatch.delenv("FRED_DATA", raising=False)
        with pytest.raises(FredError, match="set `directory:` in the scenario, or the variable FRED_DATA"):
            MNIST().load(0)

    @pytest.mark.parametrize("content", [b"", b"\0\0\x08\x03\0\0", b"\0\0\x0d\x01\0\0\0\1xxxx", b"\0\0\x08\x01\0\0\0\x09abc"])
    def test_damaged_idx_files_are_named(self, tiny_mnist, content):
        (tiny_mnist / "train-images-idx3-ubyte").write_bytes(content)
        with pytest.raises(FredError, match="train-images-idx3-ubyte"):
            MNIST(directory=tiny_mnist, canonical=False).load(0)

    @pytest.mark.parametrize(
        "damage", [lambda packed: packed[:-9], lambda packed: b"not gzip", lambda packed: packed[:12] + b"xx"]
    )
    def test_damaged_packed_files_are_named(self, tiny_mnist, damage):
        path = tiny_mnist / "train-labels-idx1-ubyte.gz"
        path.write_bytes(damage(path.read_bytes()))
        with pytest.raises(FredError, match=r"cannot read .*train-labels-idx1-ubyte.gz: .*; get a fresh copy"):
            MNIST(directory=tiny_mnist, canonical=False).load(0)

    def test_labels_must_be_as_many_as_images(self, tiny_mnist):
        (tiny_mnist / "t10k-labels-idx1-ubyte").write_bytes(idx(np.zeros(8, np.uint8)))
        with pytest.raises(FredError, match=r"as many labels as images, found labels \(8,\) and images \(10, 5, 4\)"):
            MNIST(directory=tiny_mnist, canonical=False).load(0)

    def test_real_mnist(self, data_folder):
        data = MNIST(directory=data_folder / "mnist").load(0)
        assert (len(data.train), len(data.evaluation)) == (60_000, 10_000)
        assert np.bincount(data.evaluation.answers).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]

    def test_real_cifar10(self, data_folder):
        data = CIFAR10(directory=data_folder / "cifar10").load(0)
        assert data.train.inputs.shape == (10_000, 32, 32, 3)
        assert len(data.evaluation) == 1000
        assert data.train.answers[:5].tolist() == [6, 9, 9, 4, 1]  # frog, truck, truck, deer, car

    def test_labels_that_cannot_be_are_refused(self, tiny_mnist):
        labels = idx(np.array([0, 200] * 15, np.uint8))
        (tiny_mnist / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
        with pytest.raises(FredError, match="labels run up to 200, but only 2 different ones occur"):
            MNIST(directory=tiny_mnist, canonical=False).load(0)

    def test_evaluation_images_of_another_size_are_refused(self, tiny_mnist):
        (tiny_mnist / "t10k-images-idx3-ubyte").write_bytes(idx(np.zeros((10, 4, 5), np.uint8)))
        with pytest.raises(FredError, match=r"evaluation data: inputs are \[4, 5, 1\], those to train on \[5, 4, 1\]"):
            MNIST(directory=tiny_mnist, canonical=False).load(0)

    def test_shifted_cifar_files_are_refused(self, tmp_path):
        records = np.full((4, 3073), 77, np.uint8)
        records[:, 0] = (0, 9, 3, 1)
        for name in ("data_batch_7.bin", "test_batch_2.bin"):  # none of the files whose checksums are known
            (tmp_path / name).write_bytes(records.tobytes())
        data = CIFAR10(directory=tmp_path)
        assert data.load(0).train.answers.tolist() == [0, 9, 3, 1]
        (tmp_path / "test_batch_2.bin").write_bytes(records.tobytes()[1:] + b"\0")
        with pytest.raises(FredError, match=r"test_batch_2\.bin is not a CIFAR-10 file: image 0 has label 77, expected 0 to 9"):
            data.load(0)

    def test_damaged_cifar_files_are_named(self, tmp_path):
        for name in ("data_batch_2.bin", "test_batch.bin"):
            (tmp_path / name).write_bytes(b"abc")
        with pytest.raises(FredError, match=r"data_batch_2.bin is not a CIFAR-10 file"):
            CIFAR10(directory=tmp_path).load(0)
