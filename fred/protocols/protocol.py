"""What every protocol is: who waits for whom."""

from abc import abstractmethod
from typing import ClassVar, Literal

from fred.cluster.cluster import Cluster
from fred.components.component import Component
from fred.schedule.layout import Layout
from fred.timing.simulation import Simulation


class Protocol(Component):
    """Starts the processes that pull, compute and push; says nothing about what an update does.

    A protocol of one's own: every worker fetches the model before it has delivered its gradient, so that it never waits.
        >>> import fred
        >>> class Ahead(fred.Protocol):
        ...     '''Workers read the next model while their gradients are on the way.'''
        ...     def start(self, sim):
        ...         for worker in range(sim.workers):
        ...             sim.process(self.work(sim, worker))
        ...     def work(self, sim, worker):
        ...         while True:
        ...             gradient = sim.compute(worker, sim.read(worker))
        ...             yield gradient.finished
        ...             sim.process(self.deliver(sim, gradient))
        ...     def deliver(self, sim, gradient):
        ...         yield from sim.send(gradient)
        ...         sim.push(gradient)
        >>> scenario = fred.scenario({
        ...     "cluster": {"workers": 2, "network": {"latency": {"name": "constant", "seconds": 0.25}}},
        ...     "stop": {"updates": 4},
        ...     "protocol": Ahead(),
        ...     "algorithm": {"name": "asgd", "learning_rate": 0.1},
        ... })
        >>> fred.run(scenario).summary[["virtual_seconds", "staleness_mean"]].values.tolist()
        [[2.25, 1.5]]
    """

    has_clock: ClassVar[bool] = True  # False: no virtual time passes, only the order of events is meant
    asks_for: ClassVar[Literal["statistic", "loss"]] = "statistic"  # where timing depends on what is learned: on what of it
    faults: ClassVar[str] = ""  # what becomes of a worker that is away for a while, and of those who need it

    @abstractmethod
    def start(self, sim: Simulation) -> None:
        """Start the processes of every worker and server.

        Args:
            sim: the run, which is at time 0; `sim.process` or `sim.work` start them.
        """

    @property
    def needs_values(self) -> bool:
        """Whether timing depends on what is learned, so that both happen at once."""
        return False

    @property
    def sends_sums(self) -> bool:
        """Whether several gradients or differences may be one message."""
        return False

    def check(self, cluster: Cluster) -> None:
        """Refuse, with ValueError, a `cluster` on which the protocol cannot run."""

    def doubts(self) -> tuple[str, ...]:
        """In words, what is known that speaks against what the protocol names; by default nothing."""
        return ()

    def layout(self, cluster: Cluster) -> Layout:
        """What replicas of the parameters there are on a `cluster`: by default one, on a server."""
        return Layout.central()
