"""Examples of one's own, from four arrays in an NPZ file."""

import hashlib
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, ValidationInfo, model_validator

from fred.component import beside_the_scenario
from fred.errors import FredError
from fred.learning.data.dataset import Data, Dataset, Examples

_NAMES = tuple(f"{part}_{what}" for part in ("train", "evaluation") for what in ("inputs", "answers"))


class Arrays(Data):
    """Arrays of one's own: whole numbers as answers are classes, others are values to predict."""

    file: str = Field(
        description=f"NPZ file with {', '.join(_NAMES)}, relative to the scenario file; `fred.arrays` writes one",
        examples=["examples.npz"],
    )
    digest: str = Field("", description="SHA-256 of the file; filled in, so that a manifest tells when it changed")

    @model_validator(mode="before")
    @classmethod
    def _beside_the_scenario(cls, options: Any, info: ValidationInfo) -> Any:
        return beside_the_scenario(options, "file", info)

    @model_validator(mode="after")
    def _as_recorded(self) -> "Arrays":
        try:
            with Path(self.file).open("rb") as content:
                digest = hashlib.file_digest(content, "sha256").hexdigest()
        except OSError:  # `load` says why
            return self
        if self.digest not in ("", digest):
            raise ValueError(f"{self.file} is not the file that was recorded: its digest is {digest}, not {self.digest}")
        object.__setattr__(self, "digest", digest)  # found out, not changed
        return self

    def load(self, seed: int) -> Dataset:
        try:
            with np.load(self.file, allow_pickle=False) as stored:
                found = {name: stored[name] for name in _NAMES}
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise FredError(f"data `arrays`: cannot read {self.file}: {error}; expected an NPZ file with {_NAMES}") from None
        train, evaluation = (
            Examples(_inputs(found[f"{part}_inputs"]), _answers(found[f"{part}_answers"])) for part in ("train", "evaluation")
        )
        if train.answers.dtype.kind == "i":
            return Dataset(train, evaluation, outputs=1 + int(max(train.answers.max(), evaluation.answers.max())))
        return Dataset(train, evaluation, outputs=train.answers.shape[-1])


def arrays(file: str | Path, train: tuple[ArrayLike, ArrayLike], evaluation: tuple[ArrayLike, ArrayLike]) -> Arrays:
    """Write (inputs [n, ...], answers) to train and to evaluate on, and say that they are the data: `task={"data": ...}`.

    Answers are class numbers [n] or values [n, outputs]. Raises FredError for arrays that do not belong together.
    """
    named = dict(zip(_NAMES, map(np.asarray, (*train, *evaluation)), strict=True))
    path = Path(file).with_suffix(".npz")
    try:
        np.savez(path, allow_pickle=False, **named)
    except (OSError, ValueError) as error:
        raise FredError(f"cannot write {path}: {error}") from error
    data = Arrays(file=str(path.absolute()))
    data.load(0)
    return data


def _inputs(array: NDArray[Any]) -> NDArray[np.float32]:
    return array.astype(np.float32)


def _answers(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind in "iu":
        return array.astype(np.int32)
    return array.astype(np.float32).reshape(len(array), -1)
