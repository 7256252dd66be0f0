"""Generated data of known distributions and any size."""

from typing import ClassVar, Self

import numpy as np
import scipy
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fred.base import streams
from fred.components.component import Count
from fred.learning.data.dataset import Data, Dataset, Examples, held_out


class _Synthetic(Data):
    generated: ClassVar[bool] = True

    examples: int = Field(default=2000, ge=2, lt=2**31, description="number of examples, evaluation included")
    features: Count = Field(default=20, description="inputs per example")
    noise: float = Field(default=0.5, ge=0, description="standard deviation of the noise, which no model can predict")
    evaluation: Count = Field(default=500, description="examples held out, the last ones")

    @model_validator(mode="after")
    def _fill_evaluation(self) -> Self:
        number = held_out(self.evaluation, self.examples, "evaluation" not in self.model_fields_set)
        object.__setattr__(self, "evaluation", number)  # fills in a blank, so the frozen data stay the same
        return self

    def _divide_examples(self, inputs: NDArray, answers: NDArray, outputs: int) -> Dataset:
        examples = Examples(inputs.astype(np.float32), answers)
        return Dataset(examples[: -self.evaluation], examples[-self.evaluation :], outputs)


class SyntheticClassification(_Synthetic):
    """Normal clusters around random centres, one per class.

    >>> from fred.learning.data.synthetic import SyntheticClassification
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
    >>> from fred.learning.data.synthetic import SyntheticRegression
    >>> data = SyntheticRegression(examples=100, features=2, noise=0.0, evaluation=50).load(seed=0)
    >>> found = np.linalg.lstsq(data.train.inputs, data.train.answers)[0]
    >>> bool(np.allclose(data.evaluation.inputs @ found, data.evaluation.answers, atol=1e-5))
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

    >>> from fred.learning.data.synthetic import Noise
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
        nothing = np.zeros((1, self.features), np.float32)
        return Dataset(
            Examples(inputs, np.zeros((self.examples, 2), np.float32)), Examples(nothing, np.zeros((1, 2), np.float32)), 2
        )


def _normal(seed: int, purpose: str, rows: int, columns: int) -> NDArray[np.float64]:
    """Return standard normal draws [rows, columns]; the first rows do not depend on the number of rows."""
    return scipy.special.ndtri(streams.uniforms(seed, f"data/{purpose}", np.arange(rows), 0, columns))
