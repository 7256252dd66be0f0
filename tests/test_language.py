"""Generated language and the transformer: laws of what is drawn, NumPy's forward pass, the same bits inline and replayed."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fred
from fred.base.errors import FredError
from fred.learning.data.language import _RULES, _WORDS, WORDS, Bigrams, Grammar, Recall, ShuffleDyck
from fred.learning.loss import Loss
from fred.learning.loss_functions import CrossEntropy, SquaredError
from fred.learning.models.transformer import TokenScores, Transformer
from fred.running.execution import execute
from tests.worlds import make_run, same

SMALL = {"context": 7, "examples": 60, "evaluation": 10}


def whole(data: Any, seed: int = 1) -> np.ndarray:
    """All sequences [examples, context + 1]."""
    loaded = data.load(seed)
    parts = (loaded.train, loaded.evaluation)
    return np.concatenate([np.column_stack((each.inputs[:, :1], each.answers)) for each in parts]).astype(int)


class TestBigrams:
    def test_tokens_follow_each_other_as_often_as_they_should(self):
        """By a chi-square test of 30 transitions from each of six tokens: 5 standard deviations of its distribution."""
        data = Bigrams(vocabulary=6, context=40, examples=3000, evaluation=1)
        tokens, expected = whole(data), data.probabilities(1)
        assert expected.sum(axis=1) == pytest.approx(np.ones(6))
        pairs = np.zeros((6, 6))
        np.add.at(pairs, (tokens[:, :-1].ravel(), tokens[:, 1:].ravel()), 1)
        often = pairs.sum(axis=1, keepdims=True) * expected
        assert ((pairs - often) ** 2 / often).sum() < 30 + 5 * math.sqrt(2 * 30)

    def test_frequencies_follow_zipfs_law(self):
        """The slope of logarithms over ranks, for factors between 0.9 and 10 that know nothing of ranks."""
        tokens = whole(Bigrams(vocabulary=100, exponent=1.0, context=50, examples=4000, evaluation=1))
        counts = np.bincount(tokens.ravel(), minlength=100)
        slope = np.polyfit(np.log(np.arange(1, 101)), np.log(counts), 1)[0]
        assert slope == pytest.approx(-1.0, abs=0.05)

    def test_nobody_does_better_than_the_entropy(self):
        """A table of the true logarithms is at it, to the error of 20,000 tokens."""
        data = Bigrams(vocabulary=8, context=20, examples=2000, evaluation=1000)
        loaded = data.load(3)
        evaluation = jnp.asarray(loaded.evaluation.inputs), jnp.asarray(loaded.evaluation.answers)
        known = {"weights": jnp.log(jnp.asarray(data.probabilities(3), jnp.float32))}
        loss = float(Loss(TokenScores(), CrossEntropy()).evaluate(known, evaluation)[0])
        assert loss == pytest.approx(data.entropy(3), abs=0.03)
        assert data.entropy(3) < math.log(8) - 0.1


def test_brackets_are_nested_by_kind_and_half_of_them_open():
    tokens = whole(ShuffleDyck(kinds=3, context=60, examples=500, evaluation=1))
    for kind in range(3):
        depth = np.cumsum((tokens == 2 * kind).astype(int) - (tokens == 2 * kind + 1), axis=1)
        assert depth.min() == 0
        assert depth.max() > 1
    closes = tokens % 2 == 1
    assert 0.4 < closes.mean() < 0.5, "where nothing is open one opens"


def parsed(words: tuple[str, ...], symbol: str) -> set[int]:
    """Return the numbers of first words that can be one of these symbols."""
    if symbol in _WORDS:
        return {1} if words and words[0] in _WORDS[symbol] else set()
    found = set()
    for _, parts in _RULES[symbol]:
        if parts[0] == symbol:  # NP -> NP P NP: more of it behind one that is there
            continue
        ends = {0}
        for part in parts:
            ends = {end + more for end in ends for more in parsed(words[end:], part)}
        found |= ends
    if symbol == "NP":
        grown = {end + 1 + more for end in found if parsed(words[end:], "P") for more in parsed(words[end + 1 :], "NP")}
        found |= grown
    return found


def test_sentences_are_of_the_grammar():
    tokens = whole(Grammar(context=40, examples=20, evaluation=1))
    sentences = 0
    for row in tokens:
        words, begin = [WORDS[token] for token in row], 0
        for stop in (place for place, word in enumerate(words) if word == "."):
            sentence = tuple(words[begin : stop + 1])
            assert len(sentence) in parsed(sentence, "S"), " ".join(sentence)
            begin, sentences = stop + 1, sentences + 1
    assert sentences > 40


def test_what_was_said_is_asked_again():
    tokens = whole(Recall(pairs=5, keys=9, values=7, examples=200, evaluation=1)).reshape(200, 2, 5, 2)
    for (first, again), moved in zip(tokens, (tokens[:, 0] != tokens[:, 1]).any(axis=(1, 2)), strict=True):
        said = dict(first.tolist())
        assert len(said) == 5
        assert {key: said[key] for key, _ in again.tolist()} == dict(again.tolist())
        assert max(said) < 9 <= min(said.values()) <= max(said.values()) < 16
        assert moved or (first == again).all()
    assert (tokens[:, 0] != tokens[:, 1]).any(axis=(1, 2)).mean() > 0.9, "in another order"


def test_a_text_is_its_bytes(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_bytes(bytes(range(101)))
    data = fred.scenario(
        task={"data": {"name": "text", "file": str(path), "context": 10}, "model": "token-scores"},
        cluster={"workers": 1},
        algorithm={"name": "asgd", "learning_rate": 0.1},
        stop={"tokens": 100},
    )
    run = data.runs["asgd"]
    assert run.task is not None
    loaded = run.task.data.load(0)
    assert loaded.train.inputs.astype(int).tolist() == np.arange(90).reshape(9, 10).tolist()
    assert loaded.evaluation.answers.tolist() == [list(range(91, 101))]
    path.write_bytes(b"short")
    with pytest.raises(FredError, match=r"mine.txt has 5 bytes; expected 21 at least"):
        run.task.data.load(0)


class TestTransformer:
    MODEL = Transformer(layers=2, width=8, heads=2)

    def drawn(self) -> tuple[Any, np.ndarray]:
        params = self.MODEL.init(jax.random.key(1), (7,), 11)
        draws = iter(jax.random.split(jax.random.key(2), 100))
        params = jax.tree.map(lambda leaf: leaf + 0.3 * jax.random.normal(next(draws), leaf.shape), params)
        return params, np.random.default_rng(0).integers(0, 11, (3, 7))

    @pytest.mark.slow
    def test_it_is_what_numpy_says(self):
        params, tokens = self.drawn()
        p = jax.tree.map(lambda leaf: np.asarray(leaf, float), params)
        x = p["embedding"]["tokens"][tokens] + p["embedding"]["places"]

        def normalised(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
            return scale * (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)

        for number in range(2):
            own = p[f"layer{number}"]
            three = normalised(x, own["attention_scale"]) @ own["attention"]
            taken = np.zeros_like(x)
            for head in range(2):
                q, k, v = (three[..., 8 * which + 4 * head : 8 * which + 4 * head + 4] for which in range(3))
                for place in range(7):
                    scores = np.einsum("be,bte->bt", q[:, place], k[:, : place + 1]) / 2
                    shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
                    taken[:, place, 4 * head : 4 * head + 4] = np.einsum("bt,bte->be", shares, v[:, : place + 1])
            x = x + taken @ own["joining"]
            z = normalised(x, own["perceptron_scale"]) @ own["widening"] + own["widening_biases"]
            z = 0.5 * z * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))
            x = x + z @ own["narrowing"] + own["narrowing_biases"]
        expected = normalised(x, p["output"]["scale"]) @ p["output"]["weights"] + p["output"]["biases"]
        assert np.asarray(self.MODEL.apply(params, jnp.asarray(tokens, jnp.float32))) == pytest.approx(
            expected, rel=1e-4, abs=1e-4
        )

    def test_a_later_token_changes_nothing_before_it(self):
        params, tokens = self.drawn()
        other = tokens.copy()
        other[:, 5] = (other[:, 5] + 1) % 11
        one, two = (np.asarray(self.MODEL.apply(params, jnp.asarray(each, jnp.float32))) for each in (tokens, other))
        assert (one[:, :5] == two[:, :5]).all()
        assert (one[:, 5:] != two[:, 5:]).any()

    def test_it_knows_nothing_at_first(self):
        params = self.MODEL.init(jax.random.key(0), (7,), 11)
        assert not np.asarray(self.MODEL.apply(params, jnp.zeros((2, 7)))).any()
        numbers = sum(leaf.size for leaf in jax.tree.leaves(params))
        each = 3 * 64 + 64 + 2 * 4 * 64 + 4 * 8 + 8 + 2 * 8
        assert numbers == 11 * 8 + 7 * 8 + 2 * each + 8 + 8 * 11 + 11

    def test_heads_divide_its_width(self):
        with pytest.raises(ValueError, match=r"`width` \(10\) must be a multiple of `heads` \(4\)"):
            Transformer(width=10)


def language(model: Any, **options: Any) -> Any:
    task = {"data": {"name": "bigrams", "vocabulary": 9, **SMALL}, "model": model, "batch_size": 3}
    return make_run({"name": "ssgd", "learning_rate": 0.3}, task=task, **options)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["synchronous", "asynchronous"])
def test_inline_is_replay(protocol):
    run = language({"name": "transformer", "layers": 1, "width": 8, "heads": 2}, protocol=protocol, stop={"gradients": 16})
    assert same(execute("run", run, 2), execute("run", run, 2, True))


def test_tokens_are_counted_and_perplexity_is_measured():
    """Minibatches of three times seven tokens: 100 of them are in five gradients."""
    run = language("token-scores", stop={"tokens": 100}, protocol="asynchronous", evaluate={"every_gradients": 2})
    assert run.stop.gradients == 5
    metrics = execute("run", run, 0).metrics
    assert metrics["tokens"].tolist() == [0, 42, 84, 105]
    assert metrics["perplexity"].tolist() == pytest.approx(np.exp(metrics["loss"]).tolist())
    assert metrics["perplexity"].iloc[0] == pytest.approx(9)


@pytest.mark.parametrize("inline", [False, True])
def test_perplexity_is_of_the_tokens_alone(inline):
    """Neither smooth labels nor a penalty on long parameters, which are in the loss, say how well tokens are predicted."""
    run = language("token-scores", stop={"updates": 12})
    assert run.task is not None
    smooth = run.task.model_copy(update={"loss": CrossEntropy(smoothing=0.2), "l2": 0.01})
    found = execute("run", run.model_copy(update={"task": smooth}), 0, inline)
    held_out = run.task.data.load(0).evaluation
    scores = np.asarray(run.task.model.apply(found.final, held_out.inputs), float)
    chosen = np.take_along_axis(scores, held_out.answers[..., None], -1)[..., 0]
    nats = (np.log(np.exp(scores).sum(-1)) - chosen).mean()
    last = found.metrics.iloc[-1]
    assert last["perplexity"] == pytest.approx(np.exp(nats), rel=1e-5)
    assert last["perplexity"] < 0.99 * np.exp(last["loss"])


def test_squared_differences_have_no_perplexity():
    run = language("token-scores", stop={"updates": 2})
    assert run.task is not None
    squared = run.model_copy(update={"task": run.task.model_copy(update={"loss": SquaredError()})})
    assert "perplexity" not in execute("run", squared, 0).metrics
    sweep = {"best": "perplexity", "over": {"algorithm.learning_rate": [0.1, 0.2]}}
    with pytest.raises(FredError, match=r"found .perplexity.; it needs a cross-entropy as `task.loss`"):
        fred.scenario(
            task={"data": {"name": "bigrams", "vocabulary": 9, **SMALL}, "model": "token-scores", "loss": "squared-error"},
            cluster={"workers": 2},
            algorithm="asgd",
            stop={"updates": 3},
            sweep=sweep,
        )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"model": "softmax"},
            r"model `softmax` gives \[2, 9\] for 2 examples; expected \[2, 7, 9\].*at each place of a sequence",
        ),
        ({"division": "by-label"}, "needs a class for each example, and these are sequences"),
        ({"data": "digits", "model": "softmax"}, "`stop.tokens` needs data of sequences"),
        ({"data": {"name": "recall", "pairs": 8, "keys": 3}}, r"`keys` \(3\) must be at least as many as `pairs` \(8\)"),
    ],
)
def test_what_cannot_be_is_refused(changes, said):
    task = {"data": {"name": "bigrams", "vocabulary": 9, **SMALL}, "model": "token-scores", "batch_size": 3, **changes}
    with pytest.raises(FredError, match=said):
        fred.run(
            fred.scenario(
                task=task, cluster={"workers": 2}, algorithm={"name": "asgd", "learning_rate": 0.1}, stop={"tokens": 100}
            )
        )
