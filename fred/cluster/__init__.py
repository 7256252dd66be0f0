"""The simulated machines, as a scenario describes them: compute times, networks, contention and faults.

Example: two fast workers and a slow one, and their price per hour.
    >>> import fred
    >>> groups = fred.cluster.Group(workers=2), fred.cluster.Group(workers=1, speed=0.5)
    >>> prices = fred.cluster.Prices(workers=(fred.cluster.PricedWorkers(per_hour=2.0),))
    >>> fred.Cluster(groups=groups, prices=prices).worker_speeds()
    [1.0, 1.0, 0.5]
"""

from fred.base import imports

__getattr__, __dir__, __all__ = imports.attach(__name__, __file__)
