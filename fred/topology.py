"""Topologies: which workers are neighbours.

Example:
    >>> import fred
    >>> fred.protocols.Gossip(topology=fred.topology.Star()).topology
    Star()
"""

from fred.protocols.topology import Bipartite as Bipartite
from fred.protocols.topology import Complete as Complete
from fred.protocols.topology import Edges as Edges
from fred.protocols.topology import Exponential as Exponential
from fred.protocols.topology import Hypercube as Hypercube
from fred.protocols.topology import Ring as Ring
from fred.protocols.topology import Star as Star
