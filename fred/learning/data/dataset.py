"""What every data set is: arrays to train on, arrays to evaluate on, and what kind of answer is wanted."""

import hashlib
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fred.component import Component


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
