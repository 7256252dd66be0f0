"""Topologies: which workers are neighbours.

Example:
    >>> import fred
    >>> fred.protocols.Gossip(topology=fred.topology.Star()).topology
    Star()
"""

from fred.protocols.gossip import Bipartite as Bipartite
from fred.protocols.gossip import Complete as Complete
from fred.protocols.gossip import Edges as Edges
from fred.protocols.gossip import Exponential as Exponential
from fred.protocols.gossip import Hypercube as Hypercube
from fred.protocols.gossip import Ring as Ring
from fred.protocols.gossip import Star as Star
