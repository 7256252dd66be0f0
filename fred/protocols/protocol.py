"""What every protocol is: who waits for whom."""

from abc import abstractmethod
from typing import ClassVar

from fred.cluster.cluster import Cluster
from fred.components.component import Component
from fred.schedule.layout import Layout
from fred.timing.simulation import Simulation


class Protocol(Component):
    """Starts the processes that pull, compute and push; says nothing about what an update does."""

    has_clock: ClassVar[bool] = True  # False: no virtual time passes, only the order of events is meant
    faults: ClassVar[str] = ""  # what becomes of a worker that is away for a while, and of those who need it

    @abstractmethod
    def start(self, sim: Simulation) -> None:
        """Start the processes of every worker and server."""

    @property
    def needs_values(self) -> bool:
        """Whether timing depends on what is learned, so that both happen at once."""
        return False

    def check(self, cluster: Cluster) -> None:
        """Refuse, with ValueError, a cluster on which the protocol cannot run."""

    def layout(self, cluster: Cluster) -> Layout:
        """What replicas of the parameters there are: by default one, on a server."""
        return Layout.central()
