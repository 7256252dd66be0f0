"""FRED: a deterministic simulator of distributed SGD on one machine.

Importing it sets the numeric environment, so import it before jax. `load` reads a scenario file, `run` executes it.
"""

import importlib
from typing import TYPE_CHECKING, Any

from fred.process import environment
from fred.version import __version__ as __version__

if TYPE_CHECKING:
    from fred.errors import FredError as FredError
    from fred.learning.data.arrays import arrays as arrays
    from fred.results.experiment import run as run
    from fred.results.folder import load_result as load_result
    from fred.results.result import Result as Result
    from fred.schedule.minibatches import batch_indices as batch_indices
    from fred.specification.loading import load as load
    from fred.specification.loading import scenario as scenario

environment.prepare()

_PUBLIC = {
    "arrays": "fred.learning.data.arrays",
    "FredError": "fred.errors",
    "Result": "fred.results.result",
    "batch_indices": "fred.schedule.minibatches",
    "load": "fred.specification.loading",
    "load_result": "fred.results.folder",
    "run": "fred.results.experiment",
    "scenario": "fred.specification.loading",
}
__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    """Load what is asked for when it is asked for: `python -m fred --help` needs neither jax nor pandas."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'fred' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)
