"""1,797 handwritten digits of 8 x 8 pixels [Alpaydin & Kaynak 1998, UCI], shipped inside scikit-learn: no download."""

import numpy as np
from pydantic import Field
from sklearn.datasets import load_digits

from fred.learning.data.dataset import Data, Dataset, Examples


class Digits(Data):
    """Handwritten digits, 8 x 8 grey pixels in [0, 1], 10 classes; the last `evaluation` of the 1,797 are held out."""

    evaluation: int = Field(360, ge=1, le=1796, description="examples held out, the last ones (by other writers)")

    def load(self, seed: int) -> Dataset:
        digits = load_digits()
        inputs = (digits.images / 16.0).astype(np.float32)[..., None]
        examples = Examples(inputs, digits.target.astype(np.int32))
        return Dataset(examples[: -self.evaluation], examples[-self.evaluation :], outputs=10)
