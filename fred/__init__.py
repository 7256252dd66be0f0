"""FRED: a deterministic simulator of distributed SGD on one machine.

Importing it sets the numeric environment, so import it before jax. `load` reads a scenario file, `run` executes it:

    >>> import fred
    >>> scenario = fred.scenario(
    ...     cluster=fred.Cluster(workers=2, compute=fred.latency.Constant(seconds=0.5)),
    ...     stop=fred.Stop(updates=4),
    ...     algorithm=fred.systems.ASGD(learning_rate=0.1),
    ... )
    >>> fred.run(scenario).summary["virtual_seconds"].tolist()
    [1.0]

`__init__.pyi` lists all public names; import them from here, not from FRED's modules.
"""

from fred.base import environment, imports
from fred.base.environment import __version__ as __version__

environment.prepare()

__getattr__, __dir__, __all__ = imports.attach(__name__, __file__)  # `python -m fred --help` needs neither jax nor pandas
