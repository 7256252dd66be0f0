"""Contention: temporary slowdowns of workers.

Example: another job on the first machine, from 10 s on.
    >>> import fred
    >>> job = fred.contention.Job(nodes=(0,), slowdown=4.0, begin=10.0)
    >>> fred.Cluster(workers=4, nodes=2, contention=(job,)).contention[0].slowdown
    4.0
"""

from fred.cluster.contention import Job as Job
from fred.cluster.contention import MarkovSwitching as MarkovSwitching
from fred.cluster.contention import RandomDelays as RandomDelays
from fred.cluster.regimes import Diurnal as Diurnal
from fred.cluster.regimes import MovingJob as MovingJob
from fred.cluster.regimes import PersistentNoise as PersistentNoise
from fred.cluster.regimes import RareDelays as RareDelays
