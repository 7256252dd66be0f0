"""MNIST [LeCun, Cortes, Burges 1998] and other image sets in its IDX format, read from the user's own files."""

import math
import struct
from pathlib import Path

import numpy as np
from pydantic import Field

from fred.base.errors import FredError
from fred.components.component import Count, Whole
from fred.components.input_path import InputPath
from fred.learning.data import files
from fred.learning.data.dataset import Data, Dataset, Examples

_MD5 = {  # of the unpacked files
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}


class MNIST(Data):
    """Handwritten digits, 28 x 28 grey pixels in [0, 1], 10 classes, from the four IDX files (plain or .gz)."""

    directory: InputPath | None = Field(
        None, description="folder of the files, relative to the scenario file; absent: $FRED_DATA/mnist"
    )
    canonical: bool = Field(True, description="refuse files other than MNIST's own; false admits e.g. Fashion-MNIST")
    validation: Whole = Field(0, description="hold out the last so many training images and evaluate on them instead")
    evaluation: Count | None = Field(None, description="evaluate on the first so many images only")

    def load(self, seed: int) -> Dataset:
        train, evaluation = self._examples("train"), self._examples("t10k")
        if self.validation >= len(train):
            raise FredError(f"data `mnist`: `validation` ({self.validation}) leaves none of {len(train)} images to train on")
        if self.validation:
            train, evaluation = train[: -self.validation], train[-self.validation :]
        classes, different = int(train.answers.max()) + 1, len(np.unique(train.answers))
        if classes > 2 * max(different, 10):
            raise FredError(
                f"{files.folder(self.directory, 'mnist')}: labels run up to {classes - 1}, but only {different} "
                "different ones occur; expected class numbers from 0 without large gaps"
            )
        return Dataset(train, evaluation[: self.evaluation], outputs=classes)

    def _examples(self, part: str) -> Examples:
        images = self._array(f"{part}-images-idx3-ubyte")
        labels = self._array(f"{part}-labels-idx1-ubyte")
        if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels) or not len(labels):
            raise FredError(
                f"{files.folder(self.directory, 'mnist')}: expected as many labels as images, found labels {labels.shape} and "
                f"images {images.shape} in `{part}-*`"
            )
        return Examples(np.divide(images, 255, dtype=np.float32)[..., None], labels.astype(np.int32))

    def _array(self, name: str) -> np.ndarray:
        directory = files.folder(self.directory, "mnist")
        content = files.read(directory, name, _size, _MD5[name] if self.canonical else None)
        return parse_idx(content, directory / name)


def parse_idx(content: bytes, path: Path) -> np.ndarray:
    """The unsigned bytes of an IDX file, shaped as its header says. Raises FredError for anything else."""
    shape = _shape(content, path)
    data = np.frombuffer(content, np.uint8, offset=4 + 4 * len(shape))
    if data.size != math.prod(shape):
        raise FredError(f"{path} is cut short or too long: its header promises {shape}, it holds {data.size} bytes")
    return data.reshape(shape)


def _size(begins: bytes, path: Path) -> int:
    """Of the file, as its header says."""
    shape = _shape(begins, path)
    return 4 + 4 * len(shape) + math.prod(shape)


def _shape(content: bytes, path: Path) -> tuple[int, ...]:
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise FredError(f"{path} is not an IDX file of unsigned bytes: it should begin with 00 00 08")
    if content[3] > 3:
        raise FredError(f"{path}: its header says {content[3]} dimensions; expected at most 3")
    if len(content) < 4 + 4 * content[3]:
        raise FredError(f"{path} is cut short: it ends within its header")
    return struct.unpack_from(f">{content[3]}I", content, 4)
