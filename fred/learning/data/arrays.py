"""Examples of one's own, from four arrays in an NPZ file."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, model_validator

from fred.base import inputs
from fred.base.errors import FredError
from fred.components.input_path import InputPath, UnreadError
from fred.learning.data.dataset import Data, Dataset, Examples

_NAMES = tuple(f"{part}_{what}" for part in ("train", "evaluation") for what in ("inputs", "answers"))
_MOST_CLASSES = 1 << 20  # more are no classes, but something else: identities, times


class Arrays(Data):
    """Arrays of one's own: whole numbers (and true and false) as answers are classes, others are values to predict."""

    file: InputPath = Field(
        description=f"NPZ file with {', '.join(_NAMES)}, relative to the scenario file; `fred.arrays` writes one",
        examples=["examples.npz"],
    )
    digest: str = Field("", description="SHA-256 of the file; filled in, so that a manifest tells when it changed")

    @model_validator(mode="after")
    def _as_recorded(self) -> "Arrays":
        try:
            digest = inputs.digest(self.file.located())
        except UnreadError:
            raise
        except FredError:  # `load` says why
            return self
        if self.digest not in ("", digest):
            raise ValueError(f"{self.file} is not the file that was recorded: its digest is {digest}, not {self.digest}")
        object.__setattr__(self, "digest", digest)  # found out, not changed
        return self

    def load(self, seed: int) -> Dataset:
        found = inputs.arrays(self.file.located())
        absent = [name for name in _NAMES if name not in found]
        if absent:
            raise FredError(f"data `arrays`: {self.file} has no array `{absent[0]}`; expected {', '.join(_NAMES)}")
        try:
            return _dataset(found)
        except FredError as error:
            raise FredError(f"data `arrays`: {self.file}: {error}") from None


def arrays(file: str | Path, train: tuple[ArrayLike, ArrayLike], evaluation: tuple[ArrayLike, ArrayLike]) -> Arrays:
    """Write (inputs [n, ...], answers) to train and to evaluate on, and say that they are the data: `task={"data": ...}`.

    Answers are class numbers (or truth values) [n], or values [n, outputs]. The file's name gets the ending .npz where it has
    another; what it is called then is the result's `file`. Raises FredError, and writes nothing, for arrays that do not belong
    together, and where something else has that name.

    Args:
        file: where to write them; examples that were written there before are replaced, nothing else is.
        train: inputs [n, ...] and answers [n] or [n, outputs], to train on.
        evaluation: inputs [m, ...] and answers, of the same kinds, to evaluate on.

    Returns:
        The data, as a scenario has them.

        >>> import fred
        >>> import numpy as np
        >>> inputs = np.linspace(-1, 1, 8).reshape(8, 1)
        >>> answers = (inputs[:, 0] > 0).astype(int)
        >>> data = fred.arrays("halves", train=(inputs, answers), evaluation=(inputs, answers))
        >>> data.file.endswith("halves.npz"), data.load(0).outputs, data.load(0).train.answers.tolist()
        (True, 2, [0, 0, 0, 0, 1, 1, 1, 1])
    """
    try:
        named = dict(zip(_NAMES, map(np.asarray, (*train, *evaluation)), strict=True))
    except ValueError as error:
        raise FredError(f"`train` and `evaluation`: expected (inputs, answers) each, as arrays: {error}") from None
    _dataset(named)
    path = Path(file)
    path = path if path.suffix == ".npz" else path.with_name(f"{path.name}.npz")
    if path.exists() and not _are_examples(path):
        raise FredError(f"{path} is there, and holds something else than examples; expected another name for what is written")
    inputs.write_arrays(path, named)
    return Arrays(file=path)


def _are_examples(path: Path) -> bool:
    try:
        return set(inputs.arrays(path)) == set(_NAMES)
    except FredError:
        return False


def _dataset(named: Mapping[str, NDArray[Any]]) -> Dataset:
    """The arrays as examples. Raises FredError where they cannot be."""
    for name in _NAMES:
        if named[name].dtype.kind not in inputs.REAL:
            raise FredError(f"`{name}` holds {named[name].dtype}; expected numbers")
        if not named[name].ndim:
            raise FredError(f"`{name}` is a single number; expected an array with one entry for each example")
    train, evaluation = (
        Examples(_float(named[f"{part}_inputs"]), _answers(f"{part}_answers", named)) for part in ("train", "evaluation")
    )
    if train.answers.dtype.kind == "i":
        classes = [each.answers for each in (train, evaluation) if each.answers.dtype.kind == "i"]  # else it is refused
        return Dataset(train, evaluation, outputs=1 + max(int(each.max(initial=0)) for each in classes))
    return Dataset(train, evaluation, outputs=train.answers.shape[-1])


def _float(array: NDArray[Any]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # what becomes infinite is refused as such
        return array.astype(np.float32)


def _answers(name: str, named: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    array = named[name]
    if array.dtype.kind in "iub":
        low, high = array.min(initial=0), array.max(initial=0)
        if low < 0 or high >= _MOST_CLASSES:
            raise FredError(f"`{name}` has class numbers from {low} to {high}; expected 0 to {_MOST_CLASSES - 1} at most")
        return array.astype(np.int32)
    return _float(array).reshape(len(array), math.prod(array.shape[1:]))
