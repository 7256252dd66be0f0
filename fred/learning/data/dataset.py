"""What every data set is: arrays to train on, arrays to evaluate on, and what kind of answer is wanted."""

import hashlib
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fred.components import own_code
from fred.components.component import Component
from fred.errors import FredError
from fred.process import remembered


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs [n, ...] float32 and answers: class numbers [n] int32, or values [n, outputs] float32."""

    inputs: NDArray[np.float32]
    answers: NDArray

    def __len__(self) -> int:
        return len(self.answers)

    def __getitem__(self, part: slice) -> "Examples":
        return Examples(self.inputs[part], self.answers[part])


@dataclass(frozen=True, eq=False)
class Dataset:
    """Examples to train on and others to evaluate on."""

    train: Examples
    evaluation: Examples
    outputs: int  # classes, or values per example

    def __post_init__(self) -> None:
        """Refuse arrays that do not belong together. Raises FredError."""
        self._check_kinds()
        for name, part in (("training", self.train), ("evaluation", self.evaluation)):
            if len(part.inputs) != len(part.answers) or not len(part):
                raise FredError(
                    f"{name} data: {len(part.inputs)} inputs and {len(part.answers)} answers; expected as many, not 0"
                )
            if not part.inputs.size or not part.answers.size:
                shapes = f"inputs are {list(part.inputs.shape)} and answers {list(part.answers.shape)}"
                raise FredError(f"{name} data: {shapes}; expected some numbers for each example")
            if part.inputs.shape[1:] != self.train.inputs.shape[1:]:
                shapes = f"{list(part.inputs.shape[1:])}, those to train on {list(self.train.inputs.shape[1:])}"
                raise FredError(f"evaluation data: inputs are {shapes}; expected the same shape")
            if not np.isfinite(part.inputs).all() or not np.isfinite(part.answers).all():
                raise FredError(f"{name} data: some numbers are not finite; expected none that are")
            low, high = part.answers.min(), part.answers.max()
            if self.classifies and (low < 0 or high >= self.outputs):
                raise FredError(f"{name} data: class numbers run from {low} to {high}; expected 0 to {self.outputs - 1}")

    def _check_kinds(self) -> None:
        for name, part in (("training", self.train), ("evaluation", self.evaluation)):
            shape = () if self.classifies else (self.outputs,)
            kinds = part.inputs.dtype.kind, part.answers.dtype.kind
            if part.answers.shape[1:] != shape or kinds != ("f", "i" if self.classifies else "f"):
                expected = "class numbers [n] int32" if self.classifies else f"values [n, {self.outputs}] float32"
                found = f"answers are {list(part.answers.shape)} {part.answers.dtype}, inputs {part.inputs.dtype}"
                raise FredError(f"{name} data: {found}; expected {expected}, and inputs float32")

    @property
    def classifies(self) -> bool:
        """Whether answers are class numbers."""
        return self.train.answers.dtype.kind == "i"

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all arrays."""
        sha = hashlib.sha256()
        for part in (self.train, self.evaluation):
            for array in (part.inputs, part.answers):
                sha.update(f"{array.dtype.str} {array.shape}".encode())
                sha.update(np.ascontiguousarray(array).tobytes())
        return sha.hexdigest()


class Data(Component):
    """A data set, chosen by name."""

    generated: ClassVar[bool] = False  # whether the seed makes a difference

    @abstractmethod
    def load(self, seed: int) -> Dataset:
        """Read or generate the arrays; only generated data depend on the seed. Raises FredError where files are missing."""


def loaded(data: Data, seed: int) -> Dataset:
    """The arrays, read or generated once for all runs that share them. Raises FredError where files are missing."""
    return _loaded(data, seed if data.generated else 0)


def data_digest(data: Data) -> str | None:
    """SHA-256 of what the files hold; None for data that follow from the options and a seed. Raises FredError."""
    return None if data.generated else loaded(data, 0).digest


@remembered.data(4)
def _loaded(data: Data, seed: int) -> Dataset:
    if data.generated:
        return data.load(seed)
    with own_code.covered():  # by the data's digest
        return data.load(seed)
