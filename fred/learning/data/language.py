"""Sequences of tokens for next-token prediction: generated ones, and the user's own text.

On data that follow Zipf's law, rare tokens make Adam better than SGD [Kunstner et al. 2024, arXiv:2402.19449]. Shuffled Dyck
words require counting [Papadimitriou, Jurafsky 2023]. Associative recall requires attention to earlier tokens [Arora et al.
2023].
"""

from abc import abstractmethod
from typing import Annotated, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fred.base import disk, numerics
from fred.base.errors import FredError
from fred.components.component import Count
from fred.components.input_path import InputPath
from fred.learning.data.dataset import Data, Dataset, Examples, held_out

Tokens = NDArray[np.int64]
_BYTES = 256


class Sequences(Data):
    """A data set of token sequences. Inputs are `context` tokens; answers are the tokens that follow each of them."""

    def _divide_sequences(self, tokens: Tokens, held_out: int, vocabulary: int) -> Dataset:
        """Return the data set of sequences that are one token longer than the context; the last ones are held out."""
        examples = Examples(tokens[:, :-1].astype(np.float32), tokens[:, 1:].astype(np.int32))
        return Dataset(examples[:-held_out], examples[-held_out:], vocabulary)


class _Generated(Sequences):
    generated: ClassVar[bool] = True

    examples: int = Field(default=4000, ge=2, lt=2**24, description="number of sequences, evaluation included")
    evaluation: Count = Field(default=500, description="sequences held out, the last ones")

    @model_validator(mode="after")
    def _fill_evaluation(self) -> Self:
        evaluation = held_out(self.evaluation, self.examples, "evaluation" not in self.model_fields_set)
        object.__setattr__(self, "evaluation", evaluation)  # fills in a blank, so the frozen data stay the same
        return self

    def load(self, seed: int) -> Dataset:
        return self._divide_sequences(self._tokens(seed), self.evaluation, self._vocabulary)

    @property
    @abstractmethod
    def _vocabulary(self) -> int:
        """Number of different tokens."""

    @abstractmethod
    def _tokens(self, seed: int) -> Tokens:
        """Return all sequences [examples, context + 1]."""

    def _draws(self, seed: int, purpose: str, count: int) -> NDArray[np.float64]:
        """Return `count` uniform draws for each sequence [examples, count]."""
        return numerics.uniforms(seed, f"data/{purpose}", np.arange(self.examples), 0, count)


class _OfAnyLength(_Generated):
    context: Count = Field(default=64, description="tokens in each example")


class Bigrams(_OfAnyLength):
    """A Markov chain of tokens, whose frequencies fall with the token's number by Zipf's law.

    The probability of b after a is proportional to (b + 1)^-exponent, times a factor between 0.9 and 10 that is drawn once for
    each pair (a, b). `entropy` returns the conditional entropy in nats, the smallest loss that a model can reach.

        >>> from fred.learning.data.language import Bigrams
        >>> data = Bigrams(vocabulary=4, context=6, examples=3, evaluation=1).load(seed=0)
        >>> data.train.inputs.shape, data.train.answers.dtype, data.outputs
        ((2, 6), dtype('int32'), 4)
        >>> bool((data.train.inputs[:, 1:] == data.train.answers[:, :-1]).all())
        True
    """

    vocabulary: int = Field(default=64, ge=2, lt=2**16, description="number of different tokens")
    exponent: Annotated[float, Field(ge=0)] = Field(
        default=1.0, description="exponent of Zipf's law; 0: about equal frequencies"
    )

    @property
    def _vocabulary(self) -> int:
        return self.vocabulary

    def probabilities(self, seed: int) -> NDArray[np.float64]:
        """Return the transition probabilities between tokens [before, after].

        Args:
            seed: seed of the run.
        """
        zipf = np.array([(rank + 1.0) ** -self.exponent for rank in range(self.vocabulary)])
        draws = numerics.uniforms(seed, "data/bigrams", np.arange(self.vocabulary), 0, self.vocabulary)
        weights = zipf / (0.1 + draws)
        return weights / np.cumsum(weights, axis=1)[:, -1:]

    def entropy(self, seed: int) -> float:
        """Return the entropy of the next token given the one before it, in nats. A perfect model has this loss.

        Args:
            seed: seed of the run.
        """
        transitions = self.probabilities(seed)
        frequencies = np.full(self.vocabulary, 1 / self.vocabulary)
        for _ in range(200):  # more than enough to reach the chain's stationary frequencies
            frequencies = frequencies @ transitions
        return float(-(frequencies[:, None] * transitions * np.log(transitions)).sum())

    def _tokens(self, seed: int) -> Tokens:
        cumulative = np.cumsum(self.probabilities(seed), axis=1)
        length = 1 + self.context + 1  # the first token, uniform and not distributed as in the chain, is left out
        draws, tokens = self._draws(seed, "tokens", length), np.zeros((self.examples, length), np.int64)
        tokens[:, 0] = (draws[:, 0] * self.vocabulary).astype(np.int64)
        for place in range(1, length):
            distributions = cumulative[tokens[:, place - 1]]
            # Without the last column, which rounding may leave below a draw: its token is what remains.
            tokens[:, place] = (distributions[:, :-1] < draws[:, place, None]).sum(axis=1)
        return tokens[:, 1:]


class ShuffleDyck(_OfAnyLength):
    """Shuffled Dyck words: brackets of several kinds, where each kind alone is balanced.

    A token opens or closes a bracket with probability 1/2 each. The kind of a new bracket is uniform; the kind of a closing one
    is uniform over the kinds that are open. If none is open, the token opens one. Token 2k opens kind k, and 2k + 1 closes it.

        >>> from fred.learning.data.language import ShuffleDyck
        >>> data = ShuffleDyck(kinds=2, context=8, examples=2, evaluation=1).load(seed=0)
        >>> data.train.inputs.astype(int).tolist()
        [[2, 2, 2, 3, 2, 2, 3, 0]]
    """

    kinds: int = Field(default=8, ge=1, lt=2**15, description="kinds of brackets; there are twice as many tokens")

    @property
    def _vocabulary(self) -> int:
        return 2 * self.kinds

    def _tokens(self, seed: int) -> Tokens:
        length = self.context + 1
        actions, kind_draws = self._draws(seed, "brackets", length), self._draws(seed, "kinds", length)
        tokens, open_brackets = np.zeros((self.examples, length), np.int64), np.zeros((self.examples, self.kinds), np.int64)
        rows = np.arange(self.examples)
        for place in range(length):
            closable = open_brackets > 0  # [examples, kinds]
            closes = (actions[:, place] < 0.5) & closable.any(axis=1)
            # A uniform rank among all kinds for a new bracket, among the open kinds for a closing one.
            ranks = (kind_draws[:, place] * np.where(closes, closable.sum(axis=1), self.kinds)).astype(np.int64)
            kind_at_rank = (np.cumsum(closable, axis=1) <= ranks[:, None]).sum(axis=1)
            kind = np.where(closes, kind_at_rank, ranks)
            tokens[:, place] = 2 * kind + closes
            open_brackets[rows, kind] += 1 - 2 * closes
        return tokens


_WORDS = {
    "Det": ("the", "a", "every", "no"),
    "Adj": ("old", "quick", "green", "quiet", "heavy"),
    "N": ("worker", "server", "cat", "river", "garden", "letter", "student", "bridge"),
    "V": ("sees", "follows", "likes", "finds", "carries", "calls"),
    "Vi": ("sleeps", "waits", "returns"),
    "P": ("near", "with", "behind"),
    ".": (".",),
}
_RULES: dict[str, tuple[tuple[float, tuple[str, ...]], ...]] = {  # probabilities and expansions; the last takes the rest
    "S": ((1.0, ("NP", "VP", ".")),),
    "NP": ((0.5, ("Det", "N")), (0.3, ("Det", "Adj", "N")), (0.2, ("NP", "P", "NP"))),
    "VP": ((0.6, ("V", "NP")), (0.4, ("Vi",))),
}
WORDS = tuple(word for words in _WORDS.values() for word in words)


class Grammar(_OfAnyLength):
    """Sentences of a small probabilistic grammar in a row. Each token is a word or a full stop.

    >>> from fred.learning.data.language import WORDS, Grammar
    >>> data = Grammar(context=9, examples=2, evaluation=1).load(seed=0)
    >>> " ".join(WORDS[int(token)] for token in data.train.inputs[0])
    'the server likes the student . a garden follows'
    """

    @property
    def _vocabulary(self) -> int:
        return len(WORDS)

    def _tokens(self, seed: int) -> Tokens:
        return np.array([self._sentences(seed, example) for example in range(self.examples)])

    def _sentences(self, seed: int, example: int) -> list[int]:
        """Return the tokens of one example, by rules of the grammar drawn one after the other."""
        # Draws for most examples; a longer derivation uses them again from the first one on.
        length, tokens, pending_symbols = self.context + 1, list[int](), ["S"]
        draws, used = numerics.uniforms(seed, "data/grammar", example, 0, 8 * length + 64), 0
        while len(tokens) < length:
            draw, symbol = float(draws[used % len(draws)]), pending_symbols.pop(0)
            used += 1
            if symbol in _WORDS:
                tokens.append(_FIRST_TOKENS[symbol] + int(draw * len(_WORDS[symbol])))
            else:
                # Longer than the example, so it will be cut: the first rule keeps it from growing for ever.
                is_deep = len(pending_symbols) > length
                pending_symbols[:0] = _RULES[symbol][0][1] if is_deep else _expand(symbol, draw)
            pending_symbols = pending_symbols or ["S"]
        return tokens


# The token of each symbol's first word: its place in `WORDS`.
_FIRST_TOKENS = {symbol: sum(len(words) for words in list(_WORDS.values())[:number]) for number, symbol in enumerate(_WORDS)}


def _expand(symbol: str, draw: float) -> tuple[str, ...]:
    """Return the expansion of a symbol that a uniform draw selects."""
    for probability, parts in _RULES[symbol]:
        if draw < probability:
            return parts
        draw -= probability
    return _RULES[symbol][-1][1]


class Recall(_Generated):
    """Associative recall: pairs of a key and a value, then the same pairs in another order.

    A model can predict the values in the second half from the first half. All keys, and the values in the first half, are
    random. The context is 4 x pairs - 1 tokens.

        >>> from fred.learning.data.language import Recall
        >>> data = Recall(pairs=2, keys=4, values=4, examples=2, evaluation=1).load(seed=0)
        >>> data.train.inputs.astype(int).tolist(), data.train.answers.tolist()
        ([[0, 5, 3, 5, 3, 5, 0]], [[5, 3, 5, 3, 5, 0, 5]])
    """

    pairs: int = Field(default=8, ge=1, lt=2**10, description="pairs of a key and a value in each example")
    keys: int = Field(default=16, ge=1, lt=2**15, description="number of different keys, at least as many as pairs")
    values: int = Field(default=16, ge=1, lt=2**15, description="number of different values")

    @model_validator(mode="after")
    def _as_many_keys(self) -> "Recall":
        if self.keys < self.pairs:
            raise ValueError(f"`keys` ({self.keys}) must be at least as many as `pairs` ({self.pairs})")
        return self

    @property
    def context(self) -> int:
        """Return the number of tokens in each example."""
        return 4 * self.pairs - 1

    @property
    def _vocabulary(self) -> int:
        return self.keys + self.values

    def _tokens(self, seed: int) -> Tokens:
        # The indices of the smallest draws: different random keys.
        keys = np.argsort(self._draws(seed, "keys", self.keys), axis=1)[:, : self.pairs]
        values = self.keys + (self._draws(seed, "values", self.pairs) * self.values).astype(np.int64)
        order = np.argsort(self._draws(seed, "order", self.pairs), axis=1)
        pairs = np.stack((keys, values), axis=2)
        shuffled = np.take_along_axis(pairs, order[:, :, None], axis=1)
        return np.concatenate((pairs, shuffled), axis=1).reshape(self.examples, -1)


class Text(Sequences):
    """Your own file, with bytes as tokens, split into consecutive sequences; the last ones are for evaluation.

    A file of 26 letters gives five sequences of five bytes; the fifth is held out:

        >>> import pathlib, tempfile
        >>> from fred.learning.data.language import Text
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "letters.txt"
        >>> _ = path.write_text("abcdefghijklmnopqrstuvwxyz")
        >>> data = Text(file=str(path), context=5, evaluation=0.2).load(seed=0)
        >>> bytes(data.evaluation.inputs.astype(int)[0].tolist()), bytes(data.evaluation.answers[0].tolist())
        (b'uvwxy', b'vwxyz')
    """

    file: InputPath = Field(description="any file, relative to the scenario file", examples=["mine.txt"])
    context: Count = Field(default=64, description="bytes in each example")
    evaluation: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.1, description="share of the sequences held out, the last ones"
    )

    def load(self, seed: int) -> Dataset:
        content = np.frombuffer(disk.content(self.file.located()), np.uint8).astype(np.int64)
        sequences = (len(content) - 1) // self.context
        if sequences < 2:
            raise FredError(
                f"data `text`: {self.file} has {len(content)} bytes; expected {2 * self.context + 1} at least, for two "
                f"sequences of `context: {self.context}`"
            )
        starts = self.context * np.arange(sequences)[:, None]
        tokens = content[starts + np.arange(self.context + 1)]
        return self._divide_sequences(tokens, min(max(1, round(self.evaluation * sequences)), sequences - 1), _BYTES)
