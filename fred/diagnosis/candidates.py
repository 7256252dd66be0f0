"""Which systems are tried on a cluster, with which of their knobs, and which are not, because of what.

Every system has as many points: those without a knob try more learning rates. Rates lie around one of synchronous SGD; where
every gradient is an update of its own, that is shared among the workers, so that a step of all of them goes about as far.
"""

from dataclasses import dataclass
from typing import Any

from fred.cluster.cluster import Cluster
from fred.components import registry
from fred.errors import FredError
from fred.specification.loading import scenario

POINTS = 12  # tried of each system
SYNC = "sync"  # who waits for all, with which the others are compared
RATE = "algorithm.learning_rate"
_SPAN = 5.0  # rates from so many times less to so many times more


@dataclass(frozen=True)
class Candidate:
    """A system with at most one knob."""

    run: str  # what it is called
    algorithm: str
    knob: str = ""  # `protocol.key`
    values: tuple[Any, ...] = ()  # of the knob
    natural: tuple[Any, ...] = ()  # values that are no edge: beyond them is nothing, or another of the systems
    shared_by: float = 1.0  # by what the rate of synchronous SGD is divided
    protocol: str = ""  # absent: the algorithm's own

    def settings(self, rate: float) -> dict[str, Any]:
        """The run as a scenario has it, swept over the knob and learning rates around one.

        Args:
            rate: of synchronous SGD.
        """
        number = POINTS // max(1, len(self.values))
        centre = rate / self.shared_by
        rates = {"first": float(f"{centre / _SPAN:.3g}"), "last": float(f"{centre * _SPAN:.3g}"), "number": number}
        over = ({self.knob: list(self.values)} if self.knob else {}) | {RATE: rates}
        return {"algorithm": {"name": self.algorithm}, "sweep": {"over": over, "best": "seconds"}}


def of_cluster(cluster: Cluster) -> list[Candidate]:
    """All systems that may apply; knobs fit the number of workers.

    Args:
        cluster: on which they are tried.
    """
    workers = cluster.size
    backups = tuple(sorted({1, workers // 4, workers // 2} & set(range(1, workers))))
    splits = tuple(n for n in (2, 4, 8) if workers // n > 1)  # or every gradient is an update, as with asgd
    groups = tuple(size for size in (2, 4, 8) if size < workers)
    sizes = tuple(sorted({max(1, workers // 2), workers, 4 * workers}))
    several = [
        Candidate("backup-workers", "ssgd", "protocol.backup_workers", backups, (1,)),
        Candidate("m-sync", "m-sync", "protocol.backup_workers", backups, (1,)),
        Candidate("cutoff", "cutoff-sgd", "protocol.rule", ("auto", "hmm")),
        Candidate("rennala", "rennala", "protocol.batch", sizes),
        Candidate("ringmaster", "ringmaster", "protocol.threshold", sizes, shared_by=workers),
        Candidate("delay-adaptive", "delay-adaptive", shared_by=workers),
        Candidate("softsync", "softsync-sgd", "protocol.n", splits, splits, shared_by=min(4.0, workers)),
        Candidate("asgd", "asgd", shared_by=workers),
        Candidate("sasgd", "sasgd"),
        Candidate("fasgd", "fasgd", shared_by=workers),
        Candidate("ssp", "ssp", "protocol.bound", (0, 3, 12), (0,), shared_by=workers),
        Candidate("local-sgd", "local-sgd", "protocol.period", (1, 4, 16), (1,)),
        Candidate("d-psgd", "d-psgd", "protocol.topology", ("ring", "exponential")),
        Candidate("ad-psgd", "ad-psgd"),
        Candidate("wagma-sgd", "wagma-sgd", "protocol.group_size", groups, groups),
    ]
    own = [Candidate(SYNC, "ssgd"), *([Candidate("allreduce", "allreduce-sgd")] if cluster.network else [])]
    return own + [each for each in several if not each.knob or each.values]


def that_apply(cluster: Cluster, parts: dict[str, Any], rate: float) -> tuple[list[Candidate], dict[str, str]]:
    """The systems that can be run, and why others cannot, by name.

    Args:
        cluster: on which they are tried.
        parts: what all runs share, as a scenario has it.
        rate: of synchronous SGD.
    """
    can, cannot = list[Candidate](), dict[str, str]()
    for each in of_cluster(cluster):
        try:
            scenario(parts, runs={each.run: each.settings(rate)})
        except FredError as error:
            if each.run == SYNC:  # what is wrong is wrong with all
                raise
            cannot[each.run] = str(error).splitlines()[0].partition(": ")[2]
        else:
            can.append(each)
    return can, cannot


def not_considered(cluster: Cluster) -> list[str]:
    """The algorithms that FRED has and no candidate names.

    Args:
        cluster: on which those are tried.
    """
    return sorted(set(registry.REGISTRY["algorithm"]) - {each.algorithm for each in of_cluster(cluster)})
