"""Digits that are divided among clients, in the order of their share of the last digits."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

import fred
from fred.learning.data.dataset import Dataset
from fred.learning.data.images import Digits
from fred.schedule.minibatches import Parts, divide, divide_by_shares

LAST = 7  # 7, 8 and 9 are the last digits


class Owned(fred.Data):
    """Digits with owners, in the order of their share of the digits 7, 8 and 9: client 0 has the smallest.

    Args:
        clients: number of owners.
        concentration: of the Dirichlet distribution that draws each class's shares; 0: even, random parts.
    """

    generated: ClassVar[bool] = True

    clients: int
    concentration: float

    def load(self, seed: int) -> Dataset:
        data = Digits().load(seed)
        labels = data.train.answers
        order, begins = self._parts(seed, labels)
        parts = np.split(order, begins[1:-1])
        last = [float(np.mean(labels[part] >= LAST)) for part in parts]
        owners = np.empty(len(labels), np.int64)
        for owner, number in enumerate(np.argsort(last, kind="stable").tolist()):
            owners[parts[number]] = owner
        return replace(data, owners=owners)

    def _parts(self, seed: int, labels: NDArray) -> Parts:
        if self.concentration:
            return divide_by_shares(seed, labels, self.clients, self.concentration)
        return divide(seed, len(labels), self.clients)
