"""Data sets: their base classes, with arrays to train on and to evaluate on, and generated data of known distributions."""

import hashlib
import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import scipy
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fred.base import cached, numerics
from fred.base.errors import FredError
from fred.components.component import Component, Count


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs and answers, n of each.

    Args:
        inputs: [n, ...] float32.
        answers: class numbers [n] int32, for sequences [n, context], or values [n, outputs] float32.

    A slice is another `Examples` object, which shares the arrays:

        >>> import fred
        >>> import numpy as np
        >>> examples = fred.Examples(np.eye(4, dtype=np.float32), np.array([0, 1, 1, 0], np.int32))
        >>> len(examples), examples[1:3].answers.tolist()
        (4, [1, 1])
    """

    inputs: NDArray[np.float32]
    answers: NDArray

    def __len__(self) -> int:
        return len(self.answers)

    def __getitem__(self, part: slice) -> "Examples":
        return Examples(self.inputs[part], self.answers[part])


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training examples and evaluation examples.

    Args:
        train: examples from which minibatches are drawn.
        evaluation: examples on which loss and error are measured.
        outputs: number of classes, or of values per example.
        owners: whole number of the owner of each training example [n], for `division: by-owner`; None: no owners.

    The constructor raises FredError for arrays that do not fit together:

        >>> import fred
        >>> import numpy as np
        >>> examples = fred.Examples(np.eye(4, dtype=np.float32), np.array([0, 1, 1, 0], np.int32))
        >>> data = fred.Dataset(train=examples[:3], evaluation=examples[3:], outputs=2)
        >>> data.classifies, len(data.digest)
        (True, 64)
        >>> fred.Dataset(train=examples[:3], evaluation=examples[3:], outputs=1)
        Traceback (most recent call last):
        fred.FredError: training data: class numbers run from 0 to 1; expected 0 to 0
    """

    train: Examples
    evaluation: Examples
    outputs: int  # classes, or values per example
    owners: NDArray | None = None  # of training examples

    def __post_init__(self) -> None:
        """Raise FredError for arrays that do not fit together."""
        self._check_kinds()
        if self.owners is not None and (self.owners.shape != (len(self.train),) or self.owners.dtype.kind not in "iu"):
            description = f"{list(self.owners.shape)} {self.owners.dtype}"
            raise FredError(
                f"owners are {description}; expected a whole number for each of {len(self.train)} training examples"
            )
        for name, part in (("training", self.train), ("evaluation", self.evaluation)):
            if len(part.inputs) != len(part.answers) or not len(part):
                expected = "as many answers as inputs" if len(part.inputs) != len(part.answers) else "at least one of each"
                raise FredError(f"{name} data: {len(part.inputs)} inputs and {len(part.answers)} answers; expected {expected}")
            if not part.inputs.size or not part.answers.size:
                shapes = f"inputs are {list(part.inputs.shape)} and answers {list(part.answers.shape)}"
                raise FredError(f"{name} data: {shapes}; expected some numbers for each example")
            if part.inputs.shape[1:] != self.train.inputs.shape[1:]:
                shapes = f"{list(part.inputs.shape[1:])}, those to train on {list(self.train.inputs.shape[1:])}"
                raise FredError(f"evaluation data: inputs are {shapes}; expected the same shape")
            for role, numbers in (("inputs", part.inputs), ("answers", part.answers)):
                if len(indices := np.argwhere(~np.isfinite(numbers))):
                    first, count = tuple(indices[0].tolist()), len(np.unique(indices[:, 0]))  # an index; examples
                    raise FredError(
                        f"{name} data: some numbers are not finite: {role}{list(first)} is {numbers[first]}, in {count} of "
                        f"{len(numbers)} examples; expected finite numbers: leave these examples out, or fill the gaps"
                    )
            low, high = part.answers.min(), part.answers.max()
            if self.classifies and (low < 0 or high >= self.outputs):
                raise FredError(f"{name} data: class numbers run from {low} to {high}; expected 0 to {self.outputs - 1}")

    def _check_kinds(self) -> None:
        for name, part in (("training", self.train), ("evaluation", self.evaluation)):
            allowed_shapes = ((), part.inputs.shape[1:]) if self.classifies else ((self.outputs,),)  # of one example's answer
            kinds = part.inputs.dtype.kind, part.answers.dtype.kind
            if part.answers.shape[1:] not in allowed_shapes or kinds != ("f", "i" if self.classifies else "f"):
                expected = (
                    "class numbers [n], or as many as inputs, int32"
                    if self.classifies
                    else f"values [n, {self.outputs}] float32"
                )
                arrays = f"answers are {list(part.answers.shape)} {part.answers.dtype}, inputs {part.inputs.dtype}"
                raise FredError(f"{name} data: {arrays}; expected {expected}, and inputs float32")

    @property
    def tokens(self) -> int | None:
        """Number of classes to predict for each sequence; None if examples are not sequences."""
        shape = self.train.answers.shape[1:]
        return math.prod(shape) if self.classifies and shape else None

    @property
    def classifies(self) -> bool:
        """True if answers are class numbers."""
        return self.train.answers.dtype.kind == "i"

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all arrays."""
        sha = hashlib.sha256()
        for part in (self.train, self.evaluation):
            for array in (part.inputs, part.answers):
                sha.update(f"{array.dtype.str} {array.shape}".encode())
                sha.update(np.ascontiguousarray(array).tobytes())
        if self.owners is not None:
            sha.update(self.owners.astype("<i8").tobytes())
        return sha.hexdigest()


class Data(Component):
    """A data set that scenarios choose by name.

    A scenario names your own class as `module:Class`, or contains an instance, `task={"data": Parity(bits=3), ...}`:

        >>> import fred
        >>> import numpy as np
        >>> class Parity(fred.Data):
        ...     bits: int = 4
        ...     def load(self, seed):
        ...         inputs = np.indices((2,) * self.bits).reshape(self.bits, -1).T
        ...         examples = fred.Examples(inputs.astype(np.float32), (inputs.sum(1) % 2).astype(np.int32))
        ...         return fred.Dataset(train=examples, evaluation=examples, outputs=2)
        >>> Parity(bits=3).load(seed=0).train.answers.tolist()
        [0, 1, 1, 0, 1, 0, 0, 1]
    """

    generated: ClassVar[bool] = False  # True: the data depend on the seed

    @abstractmethod
    def load(self, seed: int) -> Dataset:
        """Read or generate the arrays; only generated data depend on the seed. Raises FredError if files are missing.

        Args:
            seed: seed of the run, an integer; the same seed gives the same arrays on every machine.
        """


def held_out(evaluation: int, examples: int, is_default: bool) -> int:
    """Return the number of examples to hold out: a fifth if the default would leave none to train on.

    Args:
        evaluation: number of examples held out.
        examples: number of all examples.
        is_default: True if the user gives no number.

    Raises ValueError if a user's number leaves none to train on.

    >>> held_out(500, 4000, is_default=True), held_out(500, 60, is_default=True)
    (500, 12)
    """
    if evaluation < examples:
        return evaluation
    fifth = max(1, examples // 5)
    if is_default:
        return fifth
    raise ValueError(
        f"`evaluation` holds out {evaluation:,} examples of {examples:,}: give fewer, such as `evaluation: {fifth}`, or more "
        "`examples`"
    )


def loaded(data: Data, seed: int) -> Dataset:
    """Return the data set, read or generated once for all runs that share it. Raises FredError if files are missing.

    Args:
        data: the data component of a scenario.
        seed: seed of the run; ignored if the data are not generated.

        >>> from fred.learning.data.dataset import SyntheticRegression
        >>> small = SyntheticRegression(examples=10, features=3, evaluation=4)
        >>> loaded(small, 0).train.inputs.shape, loaded(small, 0) is loaded(small, 0)
        ((6, 3), True)
    """
    return _loaded(data, seed if data.generated else 0)


def data_digest(data: Data) -> str | None:
    """Return the SHA-256 of data that are read from files; None for generated data. Raises FredError."""
    return None if data.generated else loaded(data, 0).digest


@cached.data(4)
def _loaded(data: Data, seed: int) -> Dataset:
    return data.load(seed)


class _Synthetic(Data):
    generated: ClassVar[bool] = True

    examples: int = Field(default=2000, ge=2, lt=2**31, description="number of examples, evaluation included")
    features: Count = Field(default=20, description="inputs per example")
    noise: float = Field(default=0.5, ge=0, description="standard deviation of the noise, which no model can predict")
    evaluation: Count = Field(default=500, description="examples held out, the last ones")

    @model_validator(mode="after")
    def _fill_evaluation(self) -> Self:
        evaluation = held_out(self.evaluation, self.examples, "evaluation" not in self.model_fields_set)
        object.__setattr__(self, "evaluation", evaluation)  # fills in a blank, so the frozen data stay the same
        return self

    def _divide_examples(self, inputs: NDArray, answers: NDArray, outputs: int) -> Dataset:
        examples = Examples(inputs.astype(np.float32), answers)
        return Dataset(examples[: -self.evaluation], examples[-self.evaluation :], outputs)


class SyntheticClassification(_Synthetic):
    """Normal clusters around random centres, one per class.

    >>> from fred.learning.data.dataset import SyntheticClassification
    >>> data = SyntheticClassification(examples=7, features=2, classes=3, evaluation=1).load(seed=0)
    >>> data.train.inputs.shape, data.train.answers.tolist(), data.evaluation.answers.tolist()
    ((6, 2), [0, 1, 2, 0, 1, 2], [0])
    """

    classes: int = Field(default=10, ge=2, lt=2**31, description="number of classes")

    def load(self, seed: int) -> Dataset:
        centres = _normal(seed, "centres", self.classes, self.features)
        answers = (np.arange(self.examples) % self.classes).astype(np.int32)
        inputs = centres[answers] + self.noise * _normal(seed, "inputs", self.examples, self.features)
        return self._divide_examples(inputs, answers, self.classes)


class SyntheticRegression(_Synthetic):
    """A random linear map of normal inputs, plus noise.

    >>> import numpy as np
    >>> from fred.learning.data.dataset import SyntheticRegression
    >>> data = SyntheticRegression(examples=100, features=2, noise=0.0, evaluation=50).load(seed=0)
    >>> weights = np.linalg.lstsq(data.train.inputs, data.train.answers)[0]
    >>> bool(np.allclose(data.evaluation.inputs @ weights, data.evaluation.answers, atol=1e-5))
    True
    """

    outputs: Count = Field(default=1, description="values per example")

    def load(self, seed: int) -> Dataset:
        inputs = _normal(seed, "inputs", self.examples, self.features)
        weights = _normal(seed, "weights", self.features, self.outputs) / np.sqrt(self.features)
        answers = self.noise * _normal(seed, "noise", self.examples, self.outputs)
        for feature in range(self.features):  # a matrix product adds in an order that depends on the CPU
            answers += inputs[:, feature, None] * weights[feature]
        return self._divide_examples(inputs, answers.astype(np.float32), self.outputs)


class Noise(Data):
    """Normal gradient noise with mean 0, for models such as `quadratic`; evaluations are without it.

    >>> from fred.learning.data.dataset import Noise
    >>> data = Noise(examples=4, features=1, deviation=0.5).load(seed=0)
    >>> data.train.inputs.shape, bool(abs(data.train.inputs.mean()) < 1e-7), data.evaluation.inputs.tolist()
    ((4, 1), True, [[0.0]])
    """

    generated: ClassVar[bool] = True

    examples: int = Field(
        default=10_000, ge=1, lt=2**31, description="number of noise vectors, from which minibatches are drawn"
    )
    features: Count = Field(default=1, description="numbers in each draw: as many as a gradient has, or one for all of them")
    deviation: float = Field(default=0.01, ge=0, description="standard deviation of each number")

    def load(self, seed: int) -> Dataset:
        inputs = _normal(seed, "noise", self.examples, self.features)
        inputs = (self.deviation * (inputs - inputs.mean(axis=0))).astype(np.float32)
        no_noise = np.zeros((1, self.features), np.float32)
        outputs = 2  # those of `quadratic`; the loss `value` ignores the answers
        train = Examples(inputs, np.zeros((self.examples, outputs), np.float32))
        return Dataset(train, Examples(no_noise, np.zeros((1, outputs), np.float32)), outputs)


def _normal(seed: int, purpose: str, rows: int, columns: int) -> NDArray[np.float64]:
    """Return standard normal draws [rows, columns]; the first rows do not depend on the number of rows."""
    return scipy.special.ndtri(numerics.uniforms(seed, f"data/{purpose}", np.arange(rows), 0, columns))
