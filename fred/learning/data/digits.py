"""1,797 handwritten digits of 8 x 8 pixels [Alpaydin & Kaynak 1998, UCI, CC BY 4.0], shipped with FRED: no download."""

from pathlib import Path

import numpy as np
from pydantic import Field

from fred.learning.data.dataset import Data, Dataset, Examples

_FILE = Path(__file__).with_suffix(".npz")  # the test part of "Optical Recognition of Handwritten Digits", in its order


class Digits(Data):
    """Handwritten digits, 8 x 8 grey pixels in [0, 1], 10 classes; the last `evaluation` of the 1,797 are held out."""

    evaluation: int = Field(360, ge=1, le=1796, description="examples held out, the last ones (by other writers)")

    def load(self, seed: int) -> Dataset:
        with np.load(_FILE) as digits:
            examples = Examples((digits["images"] / 16.0).astype(np.float32)[..., None], digits["answers"].astype(np.int32))
        return Dataset(examples[: -self.evaluation], examples[-self.evaluation :], outputs=10)
