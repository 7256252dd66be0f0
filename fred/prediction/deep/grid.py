"""Workers arranged by node, so that shared values are computed once per node and sums run along an axis."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Grid:
    """A grid of nodes x places; nodes with fewer workers than the largest have empty places."""

    node_of: NDArray[np.int64]  # [workers], nodes numbered from 0

    @cached_property
    def place(self) -> NDArray[np.int64]:
        """Return the index of each worker in the flattened grid: [workers]."""
        order = np.argsort(self.node_of, kind="stable")
        place = np.empty(len(order), np.int64)
        starts = np.cumsum(self._sizes) - self._sizes
        place[order] = (
            np.arange(len(order))
            - np.repeat(starts, self._sizes)
            + np.repeat(np.arange(self.shape[0]), self._sizes) * self.shape[1]
        )
        return place

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Return the number of nodes, and of workers on the largest node."""
        return len(self._sizes), int(self._sizes.max())

    @cached_property
    def _sizes(self) -> NDArray[np.int64]:
        return np.bincount(self.node_of)

    @cached_property
    def there(self) -> NDArray[np.bool_]:
        """Return True for places that hold a worker: [nodes, places]."""
        return np.arange(self.shape[1]) < self._sizes[:, None]

    def spread(self, values: NDArray[Any]) -> NDArray[Any]:
        """Place the workers' values [..., workers] on the grid [..., nodes, places]; empty places get zeros."""
        flat = np.zeros((*values.shape[:-1], self.there.size), values.dtype)
        flat[..., self.place] = values
        return flat.reshape(*values.shape[:-1], *self.shape)
