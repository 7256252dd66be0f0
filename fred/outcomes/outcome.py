"""What one run with one seed came to, in memory or on disk: everybody who counts, draws, stores or compares reads this."""

import hashlib
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.schedule.schedule import Schedule
from fred.specification.shape import Run

Named = dict[str, NDArray]  # parameters by path, such as `layer0/weights`


class Outcome(Protocol):
    """What one run with one seed came to; `Computed` holds it in memory, `Stored` reads it from its folder when it is asked."""

    @property
    def name(self) -> str:
        """The run's."""

    @property
    def seed(self) -> int:
        """The run's."""

    @property
    def run(self) -> Run:
        """All that was asked for."""

    @property
    def schedule(self) -> Schedule:
        """Who did what when."""

    @property
    def metrics(self) -> pd.DataFrame:
        """One row per evaluation point: virtual_seconds (s), updates, gradients, and with a task loss and error."""

    @property
    def initial(self) -> Named:
        """Parameters before the first update; each replica's under `replica-<number>/` where they start apart."""

    @property
    def final(self) -> Named:
        """Parameters after the last update; none without a task."""

    @property
    def data_digest(self) -> str | None:
        """SHA-256 of the data; None without a task."""

    @property
    def schedule_digest(self) -> str:
        """SHA-256 of the schedule: the identity of the timing."""

    @property
    def params_digest(self) -> str | None:
        """SHA-256 of the final parameters: the identity of the arithmetic; None without a task."""

    @property
    def run_times(self) -> pd.DataFrame:
        """How long each gradient took: iteration, worker, seconds, node."""

    @property
    def summary(self) -> dict[str, Any]:
        """All of it in numbers, as summary.json holds them."""

    def renamed(self, name: str) -> "Outcome":
        """The same under another name."""


def digest(params: Named) -> str | None:
    """SHA-256 of parameters; None if there are none.

    Args:
        params: arrays by path; their order does not count, types and shapes do.

    >>> digest({}), len(digest({"weights": np.zeros(2)}))
    (None, 64)
    """
    if not params:
        return None
    sha = hashlib.sha256()
    for path, array in sorted(params.items()):
        sha.update(f"{path} {array.dtype.str} {array.shape}".encode())
        sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()
