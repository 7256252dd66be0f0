"""The base class of protocols."""

from abc import abstractmethod
from typing import ClassVar, Literal

from fred.cluster.cluster import Cluster
from fred.components.component import Component
from fred.schedule.layout import Layout
from fred.timing.simulation import Simulation


class Protocol(Component):
    """A set of processes that pull, compute and push, and so decide which workers wait for which.

    The server decides what an update does. A custom protocol, in which every worker fetches the next model while its gradient
    is on the way, so that it never waits:

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

    name: ClassVar[str] = ""  # in scenarios, of a class in `fred/systems` or `fred/protocols`
    has_clock: ClassVar[bool] = True  # False: no virtual time passes, only the order of events matters
    asks_for: ClassVar[Literal["statistic", "loss"]] = "statistic"  # value on which timing depends, if `needs_values`
    faults: ClassVar[str] = ""  # effect of an offline worker on itself and on the others

    @abstractmethod
    def start(self, sim: Simulation) -> None:
        """Start the processes of every worker and server.

        Args:
            sim: the run, at time 0; `sim.process` and `sim.work` start processes.
        """

    @property
    def needs_values(self) -> bool:
        """Return True if timing depends on learning, so that simulation and training run together."""
        return False

    @property
    def sends_sums(self) -> bool:
        """Return True if one message may be the sum of several gradients or pseudo-gradients."""
        return False

    @property
    def needs_examples(self) -> bool:
        """Return True if the protocol depends on the number of each worker's examples (`sim.sizes.examples`)."""
        return False

    @property
    def needs_division(self) -> str:
        """Return the option, as messages name it, by which the protocol needs data divided among the workers; else nothing."""
        return ""

    @property
    def needs_plain_steps(self) -> str:
        """Return the option, as messages name it, by which local steps must be plain SGD; else nothing."""
        return ""

    def check(self, cluster: Cluster) -> None:
        """Raise ValueError for a `cluster` on which the protocol cannot run."""

    def doubts(self) -> tuple[str, ...]:
        """Return warnings about components that the protocol names, as sentences; none by default."""
        return ()

    def layout(self, cluster: Cluster) -> Layout:
        """Return the replicas of the parameters on a `cluster`: by default one, on a server."""
        return Layout.central()
