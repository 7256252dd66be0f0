"""Protocols, which decide which workers wait for which: their contract, one file each, shared parts. SimPy, never JAX.

Example:
    >>> import fred
    >>> fred.protocols.StaleSynchronous(bound=8).bound
    8
"""

from fred.base import imports

__getattr__, __dir__, __all__ = imports.attach(__name__, __file__)
