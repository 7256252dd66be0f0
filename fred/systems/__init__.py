"""Systems: a page for a paper or a close family, with its algorithms and its protocol. The folder is the registry.

Example: the algorithms are in this namespace, the protocols in `fred.protocols`.
    >>> import fred
    >>> fred.systems.DiLoCo(learning_rate=0.1, outer_rate=0.5).protocol
    'outer-steps'
"""

from fred.base import imports

__getattr__, __dir__, __all__ = imports.attach(__name__, __file__)
