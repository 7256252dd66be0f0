"""Faults: which workers or servers are offline and when, and which messages are lost.

Example: the first worker is offline for 5 s.
    >>> import fred
    >>> outage = fred.faults.Outage(workers=(0,), begin=1.0, end=6.0)
    >>> fred.Cluster(workers=4, faults=(outage,)).faults[0].end
    6.0
"""

from fred.cluster.faults import Crashes as Crashes
from fred.cluster.faults import LostMessages as LostMessages
from fred.cluster.faults import Outage as Outage
from fred.cluster.sessions import Periodic as Periodic
from fred.cluster.sessions import Sessions as Sessions
