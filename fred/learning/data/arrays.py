"""The user's own examples, from four arrays in an NPZ file or, in Python, in memory."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, model_validator

from fred.base import disk
from fred.base.errors import FredError
from fred.components.component import Object
from fred.components.input_path import InputPath, UnreadError
from fred.learning.data.dataset import Data, Dataset, Examples

_NAMES = tuple(f"{part}_{role}" for part in ("train", "evaluation") for role in ("inputs", "answers"))
_OWNERS = "train_owners"  # optional
_PARTS = dict(zip(_NAMES, ("X", "y", "X_eval", "y_eval"), strict=True))  # what the pages call them in Python
_MOST_LABELS = 3  # labels in a message
_ONE_IN = 5  # examples, of which one in five is for evaluation
_MOST_CLASSES = 1 << 20  # larger integers are hardly classes, but identities or times


class Arrays(Data):
    """Your own arrays. Answers that are integers or booleans are classes; other answers are values to predict."""

    file: InputPath = Field(
        description=f"NPZ file with {', '.join(_NAMES)} (and {_OWNERS}, if they have any), relative to the scenario file; "
        "`fred.arrays` writes one",
        examples=["examples.npz"],
    )
    digest: str = Field(
        default="", description="SHA-256 of the file; filled in by FRED, so that a manifest shows if it has changed"
    )

    @model_validator(mode="after")
    def _as_recorded(self) -> "Arrays":
        try:
            digest = disk.digest(self.file.located())
        except UnreadError:
            raise
        except FredError:  # `load` reports the reason
            return self
        if self.digest not in ("", digest):
            raise ValueError(f"{self.file} is not the file that was recorded: its digest is {digest}, not {self.digest}")
        object.__setattr__(self, "digest", digest)  # the model is frozen; this completes it
        return self

    def load(self, seed: int) -> Dataset:
        named = disk.arrays(self.file.located())
        missing = [name for name in _NAMES if name not in named]
        if missing:
            raise FredError(f"data `arrays`: {self.file} has no array `{missing[0]}`; expected {', '.join(_NAMES)}")
        try:
            return _make_dataset(named)
        except FredError as error:
            raise FredError(f"data `arrays`: {self.file}: {error}") from None


class ArraysObject(Object, Data):
    """Arrays of a program, in memory.

    >>> import numpy as np
    >>> from fred.learning.data.arrays import ArraysObject
    >>> data = ArraysObject.wrap((np.eye(10), np.arange(10) % 2))
    >>> len(data.content.train), data.content.evaluation.answers.tolist()
    (8, [0, 1])
    """

    @classmethod
    def wrap(cls, content: Any) -> "ArraysObject":
        """Return copies of the arrays as a data set. Raises FredError for arrays that do not form one.

        Args:
            content: `(X, y)`, of which the last fifth is for evaluation, `(X, y, X_eval, y_eval)`, or
                `((X, y), (X_eval, y_eval))`.
        """
        parts = list(content)
        pairs = [part for part in parts if isinstance(part, list | tuple) and len(part) == 2]
        # Lists (X, y) of two examples look like two pairs as well, but the last number of y is no array.
        if len(parts) == len(pairs) == 2 and np.ndim(pairs[1][1]):
            parts = [*parts[0], *parts[1]]
        if len(parts) not in (2, 4):
            raise FredError("expected arrays as (X, y), (X, y, X_eval, y_eval) or ((X, y), (X_eval, y_eval))")
        try:
            parts = [np.array(part) for part in parts]
        except ValueError as error:  # lists of different lengths
            raise FredError(f"expected arrays (X, y): {error}") from None
        for name, part in zip(_PARTS.values(), parts, strict=False):  # `parts` may be X and y alone
            _check_numbers(name, part, evaluated=len(parts) == len(_PARTS))
        four_arrays = parts if len(parts) == 4 else _split_off_evaluation(*parts)
        dataset = _make_dataset(dict(zip(_NAMES, four_arrays, strict=True)), labels=_PARTS)
        return cls(name="object", content=dataset, kind="arrays", digest=dataset.digest)

    def load(self, seed: int) -> Dataset:
        """Return the data set, the same for every `seed`."""
        return self.content


def _split_off_evaluation(inputs: NDArray[Any], answers: NDArray[Any]) -> list[NDArray[Any]]:
    """Return the examples for training, and the last fifth for evaluation. Raises FredError."""
    if not inputs.ndim or not answers.ndim or len(inputs) != len(answers) or len(inputs) < _ONE_IN:
        shapes = f"{list(inputs.shape)} and {list(answers.shape)}"
        raise FredError(f"X and y are {shapes}; expected as many answers as inputs, at least {_ONE_IN} of each")
    split = len(inputs) - len(inputs) // _ONE_IN
    return [inputs[:split], answers[:split], inputs[split:], answers[split:]]


def arrays(
    file: str | Path,
    train: tuple[ArrayLike, ArrayLike],
    evaluation: tuple[ArrayLike, ArrayLike],
    owners: ArrayLike | None = None,
) -> Arrays:
    """Write training and evaluation examples to an NPZ file, and return the data for a scenario: `task={"data": ...}`.

    Answers are class numbers (or booleans) [n], or values [n, outputs]. The name gets the ending .npz if it has another one.
    The result's `file` is the complete name. Raises FredError and writes nothing if the arrays do not fit together, or if the
    name belongs to another file.

    Args:
        file: path of the file. A file of examples with this name is replaced, but no other file.
        train: inputs [n, ...] and answers [n] or [n, outputs] for training.
        evaluation: inputs [m, ...] and answers of the same kinds for evaluation.
        owners: whole number of the owner of each training example [n], for `task.division: by-owner`; None: no owners.

    Returns:
        The data component, for a scenario.

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
    for name, array in named.items():
        _check_numbers(_PARTS[name], array, evaluated=True)
    if owners is not None:
        named[_OWNERS] = np.asarray(owners)
    _make_dataset(named)  # refuses arrays that do not fit together
    path = Path(file)
    path = path if path.suffix == ".npz" else path.with_name(f"{path.name}.npz")
    if path.exists() and not _are_examples(path):
        raise FredError(f"{path} exists and does not hold examples; choose another name")
    disk.write_arrays(path, named)
    return Arrays(file=path)


def _are_examples(path: Path) -> bool:
    try:
        return set(disk.arrays(path)) - {_OWNERS} == set(_NAMES)
    except FredError:
        return False


def _check_numbers(name: str, array: NDArray[Any], evaluated: bool) -> None:
    """Raise FredError for an array of a program that does not hold real numbers, with the line that makes them.

    Args:
        name: the program's name of it, from `_PARTS`.
        array: the array.
        evaluated: True if the program also gives examples for evaluation.
    """
    if array.dtype.kind in disk.REAL:
        return
    values = array.ravel().tolist()
    labels = sorted({str(value) for value in values if not isinstance(value, int | float)})
    if array.dtype.kind == "O" and not labels:  # as of a data frame with columns of several types
        kind = np.array(values).dtype.name
        raise FredError(f"`{name}` holds objects; expected an array of numbers: `{name}.astype({kind!r})`")
    if array.dtype.kind not in "OUST":
        raise FredError(f"`{name}` holds {array.dtype}; expected numbers")
    listing = ", ".join(map(repr, labels[:_MOST_LABELS])) + ", ..." * (len(labels) > _MOST_LABELS)
    cure = "expected numbers; leave such columns out, or use numbers instead, such as those of `pandas.get_dummies(X)`"
    if name.startswith("y"):
        flat_text = "{}" if array.ndim == 1 and all(isinstance(value, str) for value in values) else "np.ravel({}).astype(str)"
        y, y_eval = flat_text.format("y"), flat_text.format("y_eval")
        cure = f"expected class numbers: `y = np.unique({y}, return_inverse=True)[1]`"
        if evaluated:
            classes = f"np.unique(np.concatenate([{y}, {y_eval}]), return_inverse=True)"
            cure = f"expected class numbers: `y, y_eval = np.split({classes}[1], [len(y)])`"
    raise FredError(f"`{name}` holds text ({listing}); {cure}")


def _make_dataset(named: Mapping[str, NDArray[Any]], labels: Mapping[str, str] | None = None) -> Dataset:
    """Return the data set of these arrays. Raises FredError if they do not form one.

    Args:
        named: the arrays, by the names of a file.
        labels: names in messages, by those of a file; None: the same.
    """
    labels = labels or {name: name for name in _NAMES}
    for name, label in labels.items():
        if named[name].dtype.kind not in disk.REAL:
            raise FredError(f"`{label}` holds {named[name].dtype}; expected numbers")
        if not named[name].ndim:
            raise FredError(f"`{label}` is a single number; expected an array with one entry for each example")
    train, evaluation = (
        Examples(_to_float(named[f"{part}_inputs"]), _to_answers(labels[f"{part}_answers"], named[f"{part}_answers"]))
        for part in ("train", "evaluation")
    )
    owners = named.get(_OWNERS)
    if train.answers.dtype.kind == "i":
        # `Dataset` refuses evaluation answers that are no class numbers.
        class_numbers = [part.answers for part in (train, evaluation) if part.answers.dtype.kind == "i"]
        classes = 1 + max(int(numbers.max(initial=0)) for numbers in class_numbers)
        return Dataset(train, evaluation, outputs=classes, owners=owners)
    return Dataset(train, evaluation, outputs=train.answers.shape[-1], owners=owners)


def _to_float(array: NDArray[Any]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # infinite numbers are refused later
        return array.astype(np.float32)


def _to_answers(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """Return class numbers [n, ...] int32, or values [n, outputs] float32. Raises FredError for impossible classes."""
    if array.dtype.kind in "iub":
        low, high = array.min(initial=0), array.max(initial=0)
        if low < 0 or high >= _MOST_CLASSES:
            raise FredError(f"`{name}` has class numbers from {low} to {high}; expected 0 to {_MOST_CLASSES - 1} at most")
        return array.astype(np.int32)
    return _to_float(array).reshape(len(array), math.prod(array.shape[1:]))
