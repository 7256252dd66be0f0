"""CIFAR-10 [Krizhevsky 2009] in its binary format, read from the user's own files."""

from pathlib import Path

import numpy as np
from pydantic import Field

from fred.base.errors import FredError
from fred.components.component import Count
from fred.components.input_path import InputPath
from fred.learning.data import files
from fred.learning.data.dataset import Data, Dataset, Examples

_RECORD = 1 + 3 * 32 * 32  # label byte, then red, green and blue planes
_MOST = 100_000  # images in a file; in CIFAR-10's own there are 10,000
_MD5 = {"data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25"}  # of the unpacked file


class CIFAR10(Data):
    """Colour photographs, 32 x 32 x 3 in [0, 1], 10 classes, from whichever `data_batch_*.bin` files are there."""

    directory: InputPath | None = Field(
        None, description="folder of the files, relative to the scenario file; absent: $FRED_DATA/cifar10"
    )
    evaluation: Count | None = Field(None, description="evaluate on the first so many images only")

    def load(self, seed: int) -> Dataset:
        directory = files.folder(self.directory, "cifar10")
        train, evaluation = self._examples(directory, "data_batch"), self._examples(directory, "test_batch")
        return Dataset(train, evaluation[: self.evaluation], outputs=10)

    def _examples(self, directory: Path, part: str) -> Examples:
        names = sorted({path.name.removesuffix(".gz") for path in directory.glob(f"{part}*.bin*")})
        if not names:
            raise FredError(f"missing data: put `{part}*.bin` or `{part}*.bin.gz` into {directory.resolve()}")
        records = np.concatenate([self._records(directory, name) for name in names])
        pixels = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        return Examples(np.divide(pixels, 255, dtype=np.float32), records[:, 0].astype(np.int32))

    def _records(self, directory: Path, name: str) -> np.ndarray:
        content = np.frombuffer(files.read(directory, name, lambda begins, path: _MOST * _RECORD, _MD5.get(name)), np.uint8)
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
