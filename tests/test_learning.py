"""Data, models and losses against independent computations; generated language and its measures."""

import gzip
import itertools
import math
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.nn import initializers
from scipy import signal

import fred
from fred import Dataset, Examples, FredError
from fred.learning.data.dataset import SyntheticClassification, SyntheticRegression
from fred.learning.data.images import CIFAR10, MNIST
from fred.learning.data.language import WORDS, Bigrams, Grammar, Recall, ShuffleDyck, Text
from fred.learning.keys import key_of, split
from fred.learning.loss import CrossEntropy, Loss, SquaredError
from fred.learning.models.built_in_models import CNN, MLP, SoftmaxRegression, TokenScores, Transformer
from fred.learning.models.model import initialiser
from fred.running.execution import execute
from fred.specification.loading import Scenario
from tests.folders import idx
from tests.worlds import make_run


def test_a_task_with_l2_goes_to_the_minimum_that_newton_finds():
    data = SyntheticClassification(classes=2, features=3, noise=2.0, examples=400, evaluation=100)
    task = {"data": data, "model": "softmax", "batch_size": 300, "sampling": "shuffled", "l2": 0.1}
    run = make_run({"name": "asgd", "learning_rate": 0.5}, task=task, cluster={"workers": 1}, stop={"updates": 400})
    outcome, examples, held_out = execute("run", run, 1), data.load(1).train, data.load(1).evaluation
    inputs, signs = np.c_[examples.inputs, np.ones(len(examples))].astype(float), 2.0 * examples.answers - 1
    line = np.zeros(4)  # of two classes' columns, which are each other's opposite: w and -w
    for _ in range(20):
        wrong = 1 / (1 + np.exp(2 * signs * (inputs @ line)))
        slope = -2 * (signs * wrong) @ inputs / len(examples) + 0.2 * line
        line -= np.linalg.solve(4 * (inputs.T * (wrong * (1 - wrong))) @ inputs / len(examples) + 0.2 * np.eye(4), slope)
    np.testing.assert_allclose(outcome.final["weights"], np.c_[-line[:3], line[:3]], atol=1e-4)
    np.testing.assert_allclose(outcome.final["biases"], [-line[3], line[3]], atol=1e-4)
    margins = (2.0 * held_out.answers - 1) * (np.c_[held_out.inputs, np.ones(100)] @ line)
    loss = np.log1p(np.exp(-2 * margins)).mean() + 0.1 * (line**2).sum()  # half of l2 times twice the squares
    assert outcome.metrics["loss"].iloc[-1] == pytest.approx(loss, rel=1e-4)
    assert outcome.metrics["error"].iloc[-1] == pytest.approx((margins < 0).mean())


def test_cnn_convolves_pools_and_multiplies():
    image: Any = np.random.default_rng(0).normal(size=(6, 6, 2))
    for kernel in (2, 5):
        model = CNN(channels=(3,), kernel=kernel, hidden=4)
        params = model.init(jax.random.key(0), (6, 6, 2), 5)
        weights = np.asarray(params["convolution0"]["weights"]).reshape(kernel, kernel, 2, 3)
        padding = ((kernel - 1) // 2, kernel // 2)
        padded, maps = np.pad(image, (padding, padding, (0, 0))), np.zeros((6, 6, 3))
        for o, c in itertools.product(range(3), range(2)):
            maps[..., o] += signal.correlate2d(padded[..., c], weights[..., c, o], mode="valid")
        pooled = np.maximum(maps, 0).reshape(3, 2, 3, 2, 3).max(axis=(1, 3)).ravel()
        hidden = np.maximum(pooled @ np.asarray(params["hidden"]["weights"]), 0)
        scores = hidden @ np.asarray(params["outputs"]["weights"])
        np.testing.assert_allclose(model.apply(params, image[None].astype(np.float32))[0], scores, rtol=1e-4, atol=1e-5)


def test_a_network_that_does_not_fit_data_or_memory_is_refused_before_any_run():
    fits = make_run(task={"data": "digits", "model": "softmax"}, stop={"updates": 10**8})
    cnn, large = {"name": "cnn", "channels": [4] * 4}, {"name": "mlp", "hidden": [10**9]}
    for data, model, message in (
        ("synthetic-classification", cnn, r"model `cnn` needs images, .* inputs are \[20\]"),
        ("digits", cnn, r"model `cnn`.*halves the image, of which nothing would be left \(8 x 8 pixels\)"),
        ("digits", large, r"the model has 75,000,000,010 parameters: 1 replica\(s\) and one gradient"),
    ):
        with pytest.raises(FredError, match=f"^run `other`: {message}"):
            fred.run(Scenario(runs={"long": fits, "other": make_run(task={"data": data, "model": model})}))


def test_arrays_that_do_not_belong_together_are_refused():
    fitting: dict[str, Any] = {"inputs": np.zeros((4, 1), np.float32), "answers": np.array([0, 1, 2, 0], np.int32)}
    assert Dataset(Examples(**fitting), Examples(**fitting), outputs=3).classifies
    for changes, message in (
        ({"answers": np.zeros(3, np.int32)}, "training data: 4 inputs and 3 answers"),
        ({"answers": np.array([0, 1, 2, -1], np.int32)}, "class numbers run from -1 to 2; expected 0 to 2"),
        ({"answers": np.array([0, 1, 2, 3], np.int32)}, "class numbers run from 0 to 3; expected 0 to 2"),
        ({"answers": np.zeros(4, np.float32)}, r"answers are \[4\] float32, inputs float32; expected values \[n, 3\] float32"),
        ({"inputs": np.array([[0.0], [np.nan], [0.0], [0.0]], np.float32)}, "training data: some numbers are not finite"),
    ):
        with pytest.raises(FredError, match=message):
            Dataset(Examples(**fitting | changes), Examples(**fitting), outputs=3)


def test_regression_reaches_the_least_squares_solution():
    data = SyntheticRegression(examples=2000, features=5, noise=0.3, evaluation=1000)
    task = {"data": data, "model": "softmax", "batch_size": 100}
    run = make_run({"name": "ssgd", "learning_rate": 0.1}, task=task, stop={"updates": 300})
    last, examples = execute("run", run, 3).metrics.iloc[-1], data.load(3)
    solution = np.linalg.lstsq(examples.train.inputs, examples.train.answers, rcond=None)[0]
    residual = examples.evaluation.inputs @ solution - examples.evaluation.answers
    assert last["loss"] == pytest.approx(float((residual**2).mean()), rel=0.05)
    assert last["error"] == pytest.approx(np.sqrt(last["loss"]), rel=1e-5)


@pytest.mark.parametrize("name", ["he_normal", "glorot_normal", "lecun_normal", "standard_normal"])
def test_first_weights_are_those_that_jax_draws_by_itself(name):
    draw: Any = initializers.normal(1.0) if name == "standard_normal" else getattr(initializers, name)()
    for seed in (0, 2**32 - 1):
        params = MLP(hidden=(77,), initialisation=name).init(key_of(seed), (300,), 2)
        shapes = (300, 77), (77, 2)  # more than one of the fixed size
        for number, key in enumerate(jax.random.split(jax.random.key(np.uint32(seed)), 2)):
            assert np.array_equal(params[f"layer{number}"]["weights"], draw(key, shapes[number]))


def test_keys_of_other_kinds_are_left_to_jax():
    """Also where there is nothing to look at yet, as under `jax.eval_shape`."""
    for key in (jax.random.key(3, impl="rbg"), jax.random.PRNGKey(3)):
        subkey, other_subkey = split(key)
        assert np.array_equal(jax.random.split(key)[1], other_subkey) if key.ndim else other_subkey == jax.random.split(key)[1]
        assert np.array_equal(initialiser("he_normal")(subkey, (3, 5)), initializers.he_normal()(subkey, (3, 5)))
    assert np.array_equal(initialiser("standard_normal")(subkey, (3, 5)), jax.random.normal(subkey, (3, 5)))
    shapes = jax.eval_shape(lambda key: MLP(hidden=(7,)).init(key, (4,), 2), key_of(0))
    assert shapes["layer0"]["weights"].shape == (4, 7)


def test_first_weights_are_arrays_of_jax_also_where_a_key_of_ones_own_is_traced_around():
    key = key_of(3)
    for model in (MLP(hidden=(7,)), CNN(channels=(2,), hidden=3), SoftmaxRegression(), Transformer(width=8)):
        params = model.init(key, (4, 4), 2)
        assert all(isinstance(leaf, jax.Array) and leaf.dtype == np.float32 for leaf in jax.tree.leaves(params))
        traced = jax.jit(lambda model=model: model.init(key, (4, 4), 2))()
        assert all(map(np.array_equal, jax.tree.leaves(params), jax.tree.leaves(traced)))


def test_generated_data_follow_the_seed_and_more_examples_leave_the_earlier_ones():
    for kind in (SyntheticClassification, SyntheticRegression):
        small, large = kind(examples=100, evaluation=10).load(1).train, kind(examples=200, evaluation=10).load(1).train
        assert np.array_equal(small.inputs, large.inputs[:90])
        assert not np.array_equal(small.inputs, kind(examples=100, evaluation=10).load(2).train.inputs)


IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


def idx_bytes(folder: Path, array: np.ndarray) -> bytes:
    idx(folder / "array", array)
    return (folder / "array").read_bytes()


@pytest.fixture
def tiny_mnist(tmp_path):
    rng = np.random.default_rng(0)
    for part, count in (("train", 30), ("t10k", 10)):
        idx(tmp_path / f"{part}-images-idx3-ubyte", rng.integers(0, 256, (count, 5, 4)))
        labels = idx_bytes(tmp_path, np.arange(count) % 3)
        (tmp_path / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    return tmp_path


class TestFiles:
    def test_idx_files_are_read_plain_and_packed(self, tiny_mnist):
        data = MNIST(directory=tiny_mnist, canonical=False, validation=6, evaluation=4).load(0)
        assert (data.train.inputs.shape, data.evaluation.inputs.shape, data.outputs) == ((24, 5, 4, 1), (4, 5, 4, 1), 3)
        assert data.evaluation.answers.tolist() == [0, 1, 2, 0]
        pixels = np.frombuffer((tiny_mnist / IMAGES).read_bytes()[16:], np.uint8).reshape(30, 5, 4, 1)
        assert np.concatenate([data.train.inputs, data.evaluation.inputs]) == pytest.approx(pixels[:28] / 255)

    def test_missing_files_say_where_to_put_them_and_other_files_are_refused_unless_asked_for(self, tiny_mnist, monkeypatch):
        monkeypatch.delenv("FRED_DATA", raising=False)
        empty = tiny_mnist / "empty"
        empty.mkdir()
        for data, message in (
            (MNIST(directory=empty), f"put `train-images-idx3-ubyte` or .* into {empty}"),
            (CIFAR10(directory=empty), f"put `data_batch.*` or .* into {empty}"),
            (MNIST(), "put train-images-idx3-ubyte.gz, .* and set the variable FRED_DATA"),
            (MNIST(directory=tiny_mnist), r"train-images-idx3-ubyte is not the canonical file: .* MD5 6bbc9ace"),
            (MNIST(directory=tiny_mnist, canonical=False, validation=30), r"`validation` \(30\) leaves none of 30 images to"),
        ):
            with pytest.raises(FredError, match=message):
                data.load(0)

    def test_files_that_are_damaged_or_do_not_fit_each_other_are_refused(self, tiny_mnist):
        packed = gzip.compress(idx_bytes(tiny_mnist, np.zeros(30)))
        labels, turned = (idx_bytes(tiny_mnist, array) for array in (np.array([0, 200] * 15), np.zeros((10, 4, 5))))
        unreadable = rf"cannot read .*{LABELS}.gz: .*; get a fresh copy"
        for name, content, message in (
            (IMAGES, b"", f"{IMAGES} is not an IDX file of unsigned bytes: it should begin with 00 00 08"),
            (IMAGES, b"\0\0\x0d\x01\0\0\0\1xxxx", f"{IMAGES} is not an IDX file"),
            (IMAGES, b"\0\0\x08\x03\0\0", f"{IMAGES} is cut short: it ends within its header"),
            (IMAGES, b"\0\0\x08\x01\0\0\0\x09abc", rf"{IMAGES} is cut short or too long: its header promises \(9,\).* 3 bytes"),
            (IMAGES, b"\0\0\x08\x01\0\0\0\x02abc", f"{IMAGES} is too long: expected 10 bytes"),
            (IMAGES, b"\0\0\x08\x04" + bytes(16), f"{IMAGES}: its header says 4 dimensions; expected at most 3"),
            (f"{LABELS}.gz", packed[:-9], unreadable),
            (f"{LABELS}.gz", b"not gzip", unreadable),
            (f"{LABELS}.gz", packed[:12] + b"xx", unreadable),
            (
                LABELS,
                idx_bytes(tiny_mnist, np.zeros(8)),
                r"as many labels as images, found labels \(8,\) and images \(30, 5, 4\)",
            ),
            (LABELS, labels, "labels run up to 200, but only 2 different ones occur"),
            ("t10k-images-idx3-ubyte", turned, r"evaluation data: inputs are \[4, 5, 1\], those to train on \[5, 4, 1\]"),
        ):
            path = tiny_mnist / name
            before = path.read_bytes() if path.exists() else None
            path.write_bytes(content)
            with pytest.raises(FredError, match=message):
                MNIST(directory=tiny_mnist, canonical=False).load(0)
            path.unlink() if before is None else path.write_bytes(before)

    def test_cifar_files_that_are_shifted_or_damaged_are_refused(self, tmp_path):
        records = np.full((4, 3073), 77, np.uint8)
        records[:, 0] = (0, 9, 3, 1)
        for name in ("data_batch_7.bin", "test_batch_2.bin"):  # none of the files whose checksums are known
            (tmp_path / name).write_bytes(records.tobytes())
        data, labels = CIFAR10(directory=tmp_path), "image 0 has label 77, expected 0 to 9"
        assert data.load(0).train.answers.tolist() == [0, 9, 3, 1]
        assert CIFAR10(directory=tmp_path, evaluation=2).load(0).evaluation.answers.tolist() == [0, 9]
        with pytest.raises(FredError, match="`evaluation` asks for 5 images, and there are 4: give that number or fewer"):
            CIFAR10(directory=tmp_path, evaluation=5).load(0)
        for content, message in ((records.tobytes()[1:] + b"\0", labels), (b"abc", "expected a multiple of 3073 bytes")):
            (tmp_path / "test_batch_2.bin").write_bytes(content)
            with pytest.raises(FredError, match=rf"test_batch_2\.bin is not a CIFAR-10 file: {message}"):
                data.load(0)

    @pytest.mark.slow
    def test_real_files_are_read(self, data_folder):
        mnist, cifar = MNIST(directory=data_folder / "mnist").load(0), CIFAR10(directory=data_folder / "cifar10").load(0)
        assert (len(mnist.train), len(mnist.evaluation)) == (60_000, 10_000)
        assert np.bincount(mnist.evaluation.answers).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
        assert (cifar.train.inputs.shape, len(cifar.evaluation)) == ((10_000, 32, 32, 3), 1000)
        assert cifar.train.answers[:5].tolist() == [6, 9, 9, 4, 1]  # frog, truck, truck, deer, car


BIGRAMS = {"name": "bigrams", "vocabulary": 9, "context": 7, "examples": 60, "evaluation": 10}


def sequences(data: Any) -> np.ndarray:
    """All sequences [examples, context + 1]."""
    parts = (data.load(1).train, data.load(1).evaluation)
    return np.concatenate([np.column_stack((part.inputs[:, :1], part.answers)) for part in parts]).astype(int)


class TestBigrams:
    def test_tokens_follow_each_other_as_often_as_they_should(self):
        """A chi-square test of 30 transitions from each of six tokens allows 5 standard deviations of its distribution."""
        data = Bigrams(vocabulary=6, context=40, examples=3000, evaluation=1)
        tokens, expected = sequences(data), data.probabilities(1)
        assert expected.sum(axis=1) == pytest.approx(np.ones(6))
        pairs = np.zeros((6, 6))
        np.add.at(pairs, (tokens[:, :-1].ravel(), tokens[:, 1:].ravel()), 1)
        often = pairs.sum(axis=1, keepdims=True) * expected
        assert ((pairs - often) ** 2 / often).sum() < 30 + 5 * math.sqrt(2 * 30)

    def test_frequencies_follow_zipfs_law(self):
        """The slope of logarithms over ranks, for factors between 0.9 and 10 that know nothing of ranks."""
        tokens = sequences(Bigrams(vocabulary=100, exponent=1.0, context=50, examples=4000, evaluation=1))
        counts = np.bincount(tokens.ravel(), minlength=100)
        assert np.polyfit(np.log(np.arange(1, 101)), np.log(counts), 1)[0] == pytest.approx(-1.0, abs=0.05)

    def test_a_table_of_the_true_logarithms_has_the_entropy_as_its_loss(self):
        data = Bigrams(vocabulary=8, context=20, examples=2000, evaluation=1000)
        held_out, logarithms = data.load(3).evaluation, jnp.log(jnp.asarray(data.probabilities(3), jnp.float32))
        examples = jnp.asarray(held_out.inputs), jnp.asarray(held_out.answers)
        loss = float(Loss(TokenScores(), CrossEntropy()).evaluate({"weights": logarithms}, examples)[0])
        assert loss == pytest.approx(data.entropy(3), abs=0.03) and data.entropy(3) < math.log(8) - 0.1


def test_brackets_are_nested_by_kind_and_half_of_them_open():
    tokens = sequences(ShuffleDyck(kinds=3, context=60, examples=500, evaluation=1))
    for kind in range(3):
        depth = np.cumsum((tokens == 2 * kind).astype(int) - (tokens == 2 * kind + 1), axis=1)
        assert depth.min() == 0 and depth.max() > 1
    assert 0.4 < (tokens % 2 == 1).mean() < 0.5, "where nothing is open one opens"


def test_sentences_are_of_the_grammar():
    """An expression over kinds of words; the shares of the rules show in the numbers of kinds per noun."""
    kinds = np.array(list("DDDDAAAAANNNNNNNNVVVVVVIIIPPP."))
    assert (len(kinds), WORDS[0], WORDS[-1]) == (len(WORDS), "the", ".")
    texts = ["".join(kinds[row]) for row in sequences(Grammar(context=40, examples=200, evaluation=1))]
    nouns = "DA?N(PDA?N)*"
    sentences = [sentence for text in texts for sentence in text.split(".")[:-1]]
    assert all(re.fullmatch(f"{nouns}(V{nouns}|I)", sentence) for sentence in sentences)
    count = "".join(texts).count
    assert count(".") > 400
    shares = count("A") / count("N"), count("P") / count("N"), count("I") / (count("I") + count("V"))
    assert shares == pytest.approx((0.375, 0.25, 0.4), abs=0.04)


def test_pairs_are_recalled_in_another_order():
    tokens = sequences(Recall(pairs=5, keys=9, values=7, examples=200, evaluation=1)).reshape(200, 2, 5, 2)
    for first, recalled in tokens.tolist():
        values = dict(first)
        assert len(values) == 5 and sorted(recalled) == sorted(first)
        assert max(values) < 9 <= min(values.values()) <= max(values.values()) < 16
    assert (tokens[:, 0] != tokens[:, 1]).any(axis=(1, 2)).mean() > 0.9


def test_a_text_is_its_bytes(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_bytes(bytes(range(101)))
    data = Text(file=str(path), context=10)
    loaded = data.load(0)
    assert loaded.train.inputs.astype(int).tolist() == np.arange(90).reshape(9, 10).tolist()
    assert loaded.evaluation.answers.tolist() == [list(range(91, 101))]
    path.write_bytes(b"short")
    with pytest.raises(FredError, match=r"mine.txt has 5 bytes; expected 21 at least"):
        data.load(0)


class TestTransformer:
    MODEL = Transformer(layers=2, width=8, heads=2)

    def test_it_is_what_numpy_says_and_a_later_token_changes_nothing_before_it(self):
        params, tokens = self.MODEL.init(jax.random.key(1), (7,), 11), np.random.default_rng(0).integers(0, 11, (3, 7))
        rng = np.random.default_rng(2)
        params = jax.tree.map(lambda leaf: np.asarray(leaf) + 0.3 * rng.normal(size=leaf.shape).astype(np.float32), params)
        p = jax.tree.map(lambda leaf: leaf.astype(float), params)
        x = p["embedding"]["tokens"][tokens] + p["embedding"]["places"]

        def normalised(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
            return scale * (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)

        for number in range(2):
            layer = p[f"layer{number}"]
            three = normalised(x, layer["attention_scale"]) @ layer["attention"]
            attended = np.zeros_like(x)
            for head in range(2):
                q, k, v = (three[..., 8 * part + 4 * head : 8 * part + 4 * head + 4] for part in range(3))
                for place in range(7):
                    scores = np.einsum("be,bte->bt", q[:, place], k[:, : place + 1]) / 2
                    shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
                    attended[:, place, 4 * head : 4 * head + 4] = np.einsum("bt,bte->be", shares, v[:, : place + 1])
            x = x + attended @ layer["joining"]
            z = normalised(x, layer["perceptron_scale"]) @ layer["widening"] + layer["widening_biases"]
            z = 0.5 * z * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))
            x = x + z @ layer["narrowing"] + layer["narrowing_biases"]
        expected = normalised(x, p["output"]["scale"]) @ p["output"]["weights"] + p["output"]["biases"]
        apply = jax.jit(self.MODEL.apply)
        outputs = np.asarray(apply(params, tokens.astype(np.float32)))
        assert outputs == pytest.approx(expected, rel=1e-4, abs=1e-4)
        tokens[:, 5] = (tokens[:, 5] + 1) % 11
        changed = np.asarray(apply(params, tokens.astype(np.float32)))
        assert (outputs[:, :5] == changed[:, :5]).all() and (outputs[:, 5:] != changed[:, 5:]).any()

    def test_it_knows_nothing_at_first(self):
        params = self.MODEL.init(jax.random.key(0), (7,), 11)
        assert not np.asarray(jax.jit(self.MODEL.apply)(params, jnp.zeros((3, 7)))).any()
        layer = 3 * 64 + 64 + 2 * 4 * 64 + 4 * 8 + 8 + 2 * 8
        assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 11 * 8 + 7 * 8 + 2 * layer + 8 + 8 * 11 + 11


def language(model: Any = "token-scores", loss: Any = None, l2: float = 0.0, **options: Any) -> Any:
    task = {"data": BIGRAMS, "model": model, "batch_size": 3, "loss": loss, "l2": l2}
    return make_run({"name": "ssgd", "learning_rate": 0.3}, task=task, **options)


def test_tokens_are_counted_and_perplexity_is_measured():
    """Minibatches of three times seven tokens: 100 of them are in five gradients."""
    run = language(stop={"tokens": 100}, protocol="asynchronous", evaluate={"every_gradients": 2})
    assert run.stop.gradients == 5
    metrics = execute("run", run, 0).metrics
    assert metrics["tokens"].tolist() == [0, 42, 84, 105]
    assert metrics["perplexity"].tolist() == pytest.approx(np.exp(metrics["loss"]).tolist())
    assert metrics["perplexity"].iloc[0] == pytest.approx(9)


def test_perplexity_is_of_the_tokens_alone_and_squared_differences_have_none():
    """Neither smooth labels nor a penalty on long parameters, which are in the loss, say how well tokens are predicted."""
    run = language(loss=CrossEntropy(smoothing=0.2), l2=0.01, stop={"updates": 12})
    outcome, held_out = execute("run", run, 0), run.task.data.load(0).evaluation
    scores = np.asarray(run.task.model.apply(outcome.final, held_out.inputs), float)
    target_scores = np.take_along_axis(scores, held_out.answers[..., None], -1)[..., 0]
    nats = (np.log(np.exp(scores).sum(-1)) - target_scores).mean()
    last = outcome.metrics.iloc[-1]
    assert last["perplexity"] == pytest.approx(np.exp(nats), rel=1e-5)
    assert last["perplexity"] < 0.99 * np.exp(last["loss"])
    assert "perplexity" not in execute("run", language(loss=SquaredError(), stop={"updates": 2}), 0).metrics


def test_what_cannot_be_is_refused():
    rate = {"name": "asgd", "learning_rate": 0.1}
    with pytest.raises(FredError, match=r"`width` \(10\) must be a multiple of `heads` \(4\)"):
        Transformer(width=10)
    few_keys, no_best = (
        r"`keys` \(3\) must be at least as many as `pairs` \(8\)",
        r"found .perplexity.; it needs a cross-entropy",
    )
    sweep = {"sweep": {"best": "perplexity", "over": {"algorithm.learning_rate": [0.1, 0.2]}}}
    for changes, algorithm, options, message in (
        ({"model": "softmax"}, rate, {}, r"`softmax` gives \[2, 9\] for 2 examples; expected \[2, 7, 9\].*place of a sequence"),
        ({"division": "by-label"}, rate, {}, "needs a class for each example, and these are sequences"),
        ({"data": "digits", "model": "softmax"}, rate, {}, "`stop.tokens` needs data of sequences"),
        ({"data": {"name": "recall", "pairs": 8, "keys": 3}}, rate, {}, few_keys),
        ({"loss": "squared-error"}, "asgd", sweep, f"{no_best} as `task.loss`"),
    ):
        task = {"data": BIGRAMS, "model": "token-scores", "batch_size": 3, **changes}
        with pytest.raises(FredError, match=message):
            fred.run(fred.scenario(task=task, cluster={"workers": 2}, algorithm=algorithm, stop={"tokens": 100}, **options))
