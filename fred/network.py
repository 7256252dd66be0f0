"""Networks between workers and servers, and the parts of one.

Example: links of 1 Gbit/s.
    >>> import fred
    >>> network = fred.network.Network(latency=fred.latency.Constant(seconds=1e-4), bandwidth="1GbE")
    >>> fred.Cluster(workers=4, network=network).network.bandwidth
    125000000.0
"""

from fred.cluster.bandwidths import Route as Route
from fred.cluster.bandwidths import SlowLinks as SlowLinks
from fred.cluster.bandwidths import SomeServers as SomeServers
from fred.cluster.bandwidths import Within as Within
from fred.cluster.network import Network as Network
from fred.cluster.regions import Regions as Regions
