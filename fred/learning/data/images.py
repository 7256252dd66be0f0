"""Image data sets: digits that come with FRED, MNIST and CIFAR-10.

| name   | source                                 |
|--------|----------------------------------------|
| Digits | Alpaydin & Kaynak 1998, UCI, CC BY 4.0 |

The user provides the files of MNIST [LeCun, Cortes, Burges 1998], in the IDX format, and of CIFAR-10 [Krizhevsky 2009], in its
binary format.
"""

import gzip
import hashlib
import math
import os
import struct
import zlib
from collections.abc import Callable
from io import BufferedIOBase
from pathlib import Path

import numpy as np
from pydantic import Field

from fred.base import disk
from fred.base.errors import FredError
from fred.components.component import Count, Natural
from fred.components.input_path import InputPath
from fred.learning.data.dataset import Data, Dataset, Examples

Size = Callable[[bytes, Path], int]  # returns the largest size of a file, given its first bytes
_BEGINNING, _PIECE = 16, 1 << 20  # bytes


_FILES = {
    "mnist": "train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz, t10k-labels-idx1-ubyte.gz",
    "cifar10": "data_batch_1.bin to data_batch_5.bin and test_batch.bin (the binary version)",
}


def data_folder(directory: InputPath | None, name: str) -> Path:
    """Return the folder of a data set's files: the given one, or else $FRED_DATA/<name>. Raises FredError."""
    if directory is None and not os.environ.get("FRED_DATA"):
        raise FredError(
            f"data `{name}`: no folder given; FRED downloads nothing: put {_FILES.get(name, 'its files')} into a folder "
            f"`{name}/`, and set the variable FRED_DATA to the folder that holds it, or `directory:` in the scenario to itself"
        )
    path = Path(os.environ["FRED_DATA"]) / name if directory is None else directory.located()
    try:
        path.is_dir()  # raises if it may not be read; `read_file` refuses a folder that does not exist
    except OSError as error:
        raise FredError(f"cannot read {path}: {error.strerror}") from None
    return path


def read_file(directory: Path, name: str, size: Size, md5: str | None = None) -> bytes:
    """Return the content of `directory/name`, or of `directory/name.gz` unpacked. Raises FredError.

    The unpacked bytes must have the MD5 digest `md5`, if it is given. `size` returns the largest valid size, given the first
    bytes of the content, because a small file may unpack to any size.
    """
    for path in (directory / name, directory / f"{name}.gz"):
        if path.is_file():  # neither a folder nor a pipe
            content = _content(path, size)
            if md5 is not None and hashlib.md5(content, usedforsecurity=False).hexdigest() != md5:
                raise FredError(f"{path} is not the canonical file: its unpacked bytes should have MD5 {md5}")
            return content
    raise FredError(f"missing data: put `{name}` or `{name}.gz` into {directory.resolve()}")


def _content(path: Path, size: Size) -> bytes:
    """Return the unpacked bytes of a file. Raises FredError if they are more than `size` allows."""
    with disk.opened(path) as file:
        stream: BufferedIOBase = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
        try:
            content = bytearray(stream.read(_BEGINNING))
            most = size(bytes(content), path)
            while len(content) <= most and (piece := stream.read(_PIECE)):
                content += piece
        except (OSError, EOFError, zlib.error) as error:
            raise FredError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}; get a fresh copy") from error
    if len(content) > most:
        raise FredError(f"{path} is too long: expected {most:,} bytes (unpacked) at most")
    return bytes(content)


_DIGITS = Path(__file__).with_name("digits.npz")  # test part of "Optical Recognition of Handwritten Digits", in its order
_RECORD = 1 + 3 * 32 * 32  # CIFAR-10: label byte, then red, green and blue planes
_MOST_IMAGES = 100_000  # images in a file; CIFAR-10's own files have 10,000
_BATCH_MD5 = {"data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25"}  # MD5 of the unpacked file
_MNIST_MD5 = {  # MNIST's unpacked files
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}


class Digits(Data):
    """Handwritten digits, 8 x 8 grey pixels in [0, 1], 10 classes; the last `evaluation` of the 1,797 are held out."""

    evaluation: int = Field(default=360, ge=1, le=1796, description="examples held out, the last ones (by other writers)")

    def load(self, seed: int) -> Dataset:
        with np.load(_DIGITS) as digits:
            examples = Examples((digits["images"] / 16.0).astype(np.float32)[..., None], digits["answers"].astype(np.int32))
        return Dataset(examples[: -self.evaluation], examples[-self.evaluation :], outputs=10)


class MNIST(Data):
    """Handwritten digits, 28 x 28 grey pixels in [0, 1], 10 classes, from the four IDX files (plain or .gz)."""

    directory: InputPath | None = Field(
        default=None, description="folder of the files, relative to the scenario file; absent: $FRED_DATA/mnist"
    )
    canonical: bool = Field(default=True, description="accept only MNIST's own files; false accepts e.g. Fashion-MNIST")
    validation: Natural = Field(
        default=0, description="number of training images, the last ones, to hold out and evaluate on instead"
    )
    evaluation: Count | None = Field(default=None, description="number of images to evaluate on, the first ones; absent: all")

    def load(self, seed: int) -> Dataset:
        train, evaluation = self._examples("train"), self._examples("t10k")
        if self.validation >= len(train):
            raise FredError(f"data `mnist`: `validation` ({self.validation}) leaves none of {len(train)} images to train on")
        if self.validation:
            train, evaluation = train[: -self.validation], train[-self.validation :]
        classes, different = int(train.answers.max()) + 1, len(np.unique(train.answers))
        if classes > 2 * max(different, 10):  # some labels may be missing, but not most of them
            raise FredError(
                f"{data_folder(self.directory, 'mnist')}: labels run up to {classes - 1}, but only {different} "
                "different ones occur; expected class numbers from 0 without large gaps"
            )
        return Dataset(train, _take_first("mnist", evaluation, self.evaluation), outputs=classes)

    def _examples(self, part: str) -> Examples:
        images = self._array(f"{part}-images-idx3-ubyte")
        labels = self._array(f"{part}-labels-idx1-ubyte")
        if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels) or not len(labels):
            raise FredError(
                f"{data_folder(self.directory, 'mnist')}: expected as many labels as images, found labels {labels.shape} and "
                f"images {images.shape} in `{part}-*`"
            )
        return Examples(np.divide(images, 255, dtype=np.float32)[..., None], labels.astype(np.int32))

    def _array(self, name: str) -> np.ndarray:
        directory = data_folder(self.directory, "mnist")
        content = read_file(directory, name, _idx_size, _MNIST_MD5[name] if self.canonical else None)
        return parse_idx(content, directory / name)


class CIFAR10(Data):
    """Colour photographs, 32 x 32 x 3 in [0, 1], 10 classes, from all `data_batch_*.bin` files in the folder."""

    directory: InputPath | None = Field(
        default=None, description="folder of the files, relative to the scenario file; absent: $FRED_DATA/cifar10"
    )
    evaluation: Count | None = Field(default=None, description="number of images to evaluate on, the first ones; absent: all")

    def load(self, seed: int) -> Dataset:
        directory = data_folder(self.directory, "cifar10")
        train, evaluation = self._examples(directory, "data_batch"), self._examples(directory, "test_batch")
        return Dataset(train, _take_first("cifar10", evaluation, self.evaluation), outputs=10)

    def _examples(self, directory: Path, part: str) -> Examples:
        names = sorted({path.name.removesuffix(".gz") for path in directory.glob(f"{part}*.bin*")})
        if not names:
            raise FredError(f"missing data: put `{part}*.bin` or `{part}*.bin.gz` into {directory.resolve()}")
        records = np.concatenate([self._records(directory, name) for name in names])
        pixels = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        return Examples(np.divide(pixels, 255, dtype=np.float32), records[:, 0].astype(np.int32))

    def _records(self, directory: Path, name: str) -> np.ndarray:
        content = np.frombuffer(
            read_file(directory, name, lambda beginning, path: _MOST_IMAGES * _RECORD, _BATCH_MD5.get(name)), np.uint8
        )
        if content.size == 0 or content.size % _RECORD:
            raise FredError(f"{directory / name} is not a CIFAR-10 file: expected a multiple of {_RECORD} bytes")
        records = content.reshape(-1, _RECORD)
        if records[:, 0].max() > 9:
            wrong = int(np.argmax(records[:, 0] > 9))
            raise FredError(
                f"{directory / name} is not a CIFAR-10 file: image {wrong} has label {records[wrong, 0]}, expected 0 to 9; "
                "are its bytes shifted?"
            )
        return records


def _take_first(name: str, examples: Examples, number: int | None) -> Examples:
    """Return the first examples of a data set, or all. Raises FredError if there are fewer."""
    if number is not None and number > len(examples):
        raise FredError(
            f"data `{name}`: `evaluation` asks for {number:,} images, and there are {len(examples):,}: give that number or "
            "fewer, or leave it out for all"
        )
    return examples[:number]


def parse_idx(content: bytes, path: Path) -> np.ndarray:
    """Return the unsigned bytes of an IDX file, in the shape that its header gives. Raises FredError for anything else."""
    shape = _idx_shape(content, path)
    data = np.frombuffer(content, np.uint8, offset=4 + 4 * len(shape))
    if data.size != math.prod(shape):
        raise FredError(f"{path} is cut short or too long: its header promises {shape}, it holds {data.size} bytes")
    return data.reshape(shape)


def _idx_size(beginning: bytes, path: Path) -> int:
    """Return the size of the file that its header gives, in bytes."""
    shape = _idx_shape(beginning, path)
    return 4 + 4 * len(shape) + math.prod(shape)


def _idx_shape(content: bytes, path: Path) -> tuple[int, ...]:
    # Two zeros, the type (8: unsigned bytes), the number of dimensions, and the size of each in four bytes.
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise FredError(f"{path} is not an IDX file of unsigned bytes: it should begin with 00 00 08")
    if content[3] > 3:
        raise FredError(f"{path}: its header says {content[3]} dimensions; expected at most 3")
    if len(content) < 4 + 4 * content[3]:
        raise FredError(f"{path} is cut short: it ends within its header")
    return struct.unpack_from(f">{content[3]}I", content, 4)
