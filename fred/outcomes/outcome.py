"""The outcome of one run with one seed, in memory or on disk: the interface for summaries, figures, storage, comparisons."""

import hashlib
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.specification.summary import Finished

Named = dict[str, NDArray]  # parameters by path, such as `layer0/weights`


class Outcome(Finished, Protocol):
    """The outcome of one run with one seed; `Computed` has it in memory, `Stored` reads it from its folder on demand.

    Example: `fred.Result.outcome` returns one:
        >>> import fred
        >>> scenario = fred.scenario(
        ...     cluster=fred.Cluster(workers=2), algorithm=fred.systems.ASGD(learning_rate=0.1), stop=fred.Stop(updates=4)
        ... )
        >>> outcome = fred.run(scenario).outcome("asgd")
        >>> outcome.seed, outcome.has_clock, len(outcome.run_times)
        (0, True, 4)
    """

    @property
    def has_clock(self) -> bool:
        """Return True if virtual time passes in the run."""

    @property
    def initial(self) -> Named:
        """Return the initial parameters; those of each replica under `replica-<number>/`, if they differ."""

    @property
    def final(self) -> Named:
        """Return the parameters after the last update; empty without a task."""

    @property
    def data_digest(self) -> str | None:
        """Return the SHA-256 of the data; None without a task."""

    @property
    def run_times(self) -> pd.DataFrame:
        """Return the compute time of each gradient: iteration, worker, seconds, node."""

    @property
    def summary(self) -> dict[str, Any]:
        """Return all results as numbers, as in summary.json."""

    @property
    def params(self) -> Any:
        """Return the final parameters as the pytree that the model's `init` returns."""

    def module(self) -> Any:
        """Return the Flax or Equinox module with the final parameters."""

    def predict(self, inputs: Any) -> NDArray:
        """Return the trained model's outputs [n, outputs] for `inputs` [n, ...]."""

    def renamed(self, name: str) -> "Outcome":
        """Return the same outcome under another name."""


def digest(params: Named) -> str | None:
    """Return the SHA-256 of parameters; None if there are none.

    Args:
        params: arrays by path; their order does not matter, types and shapes do.

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
