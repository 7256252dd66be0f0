"""Workers arranged by nodes, so that what nodes share is computed once and what they sum is a sum along an axis."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Grid:
    """Nodes x places; nodes of fewer workers than the largest have empty places."""

    node_of: NDArray[np.int64]  # [workers], nodes are numbered from 0

    @cached_property
    def place(self) -> NDArray[np.int64]:
        """Where each worker lies in the flattened grid: [workers]."""
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
        """Nodes, and workers of the largest."""
        return len(self._sizes), int(self._sizes.max())

    @cached_property
    def _sizes(self) -> NDArray[np.int64]:
        return np.bincount(self.node_of)

    @cached_property
    def there(self) -> NDArray[np.bool_]:
        """Whether somebody lies at a place: [nodes, places]."""
        return np.arange(self.shape[1]) < self._sizes[:, None]

    def spread(self, values: NDArray[Any]) -> NDArray[Any]:
        """Workers' values [..., workers] at their places [..., nodes, places]; zeros where nobody is."""
        flat = np.zeros((*values.shape[:-1], self.there.size), values.dtype)
        flat[..., self.place] = values
        return flat.reshape(*values.shape[:-1], *self.shape)
