"""What every protocol is: who waits for whom."""

from abc import abstractmethod
from typing import ClassVar

from fred.component import Component
from fred.timing.cluster import Cluster
from fred.timing.simulation import Simulation


class Protocol(Component):
    """Starts the processes that pull, compute and push; says nothing about what an update does."""

    has_clock: ClassVar[bool] = True  # False: no virtual time passes, only the order of events is meant
    needs_values: ClassVar[bool] = False  # True: timing depends on what is learned, so both happen at once
    has_server: ClassVar[bool] = True  # False: workers send to each other only
    decentralised: ClassVar[bool] = False  # True: every worker has a replica of its own, and there is no server
    sharded: ClassVar[bool] = False  # True: each server is a replica of its own block of the parameters

    @abstractmethod
    def start(self, sim: Simulation) -> None:
        """Start the processes of every worker and server."""

    def check(self, cluster: Cluster) -> None:
        """Refuse, with ValueError, a cluster on which the protocol cannot run."""

    def replicas(self, cluster: Cluster) -> int:
        """How many replicas there are: one for all servers together, one per server, or one per worker."""
        return cluster.size if self.decentralised else self.blocks(cluster)

    def blocks(self, cluster: Cluster) -> int:
        """Into how many blocks the parameters are cut."""
        return cluster.servers if self.sharded else 1
