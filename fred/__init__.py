"""FRED: a deterministic simulator of distributed SGD on one machine.

Importing it sets the numeric environment, so import it before jax. `load` reads a scenario file, `run` executes it.
"""

import importlib
from typing import TYPE_CHECKING, Any

from fred import environment
from fred.version import __version__ as __version__

if TYPE_CHECKING:
    from fred.errors import FredError as FredError
    from fred.learning.data.sampling import batch_indices as batch_indices
    from fred.loading import load as load
    from fred.result import Result as Result
    from fred.result import run as run

environment.prepare()

_PUBLIC = {
    "FredError": "fred.errors",
    "Result": "fred.result",
    "batch_indices": "fred.learning.data.sampling",
    "load": "fred.loading",
    "run": "fred.result",
}
__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    """Load what is asked for when it is asked for: `python -m fred --help` needs neither jax nor pandas."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'fred' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)
