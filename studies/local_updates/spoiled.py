"""Digits of which one worker's share has wrong labels."""

import numpy as np

from fred.base import numerics
from fred.learning.data.dataset import Dataset, Examples
from fred.learning.data.images import Digits
from fred.schedule.minibatches import divide


class Spoiled(Digits):
    """Digits divided among workers; those of the first worker have random labels."""

    workers: int = 4

    def load(self, seed: int) -> Dataset:
        whole = super().load(seed)
        order, begins = divide(seed, len(whole.train), self.workers)
        part = order[: begins[1]]
        answers = whole.train.answers.copy()
        answers[part] = (10 * numerics.uniforms(seed, "wrong labels", part, 0, 1)[:, 0]).astype(np.int32)
        return Dataset(Examples(whole.train.inputs, answers), whole.evaluation, whole.outputs)
