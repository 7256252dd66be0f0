"""The systems to try on a cluster, with their knobs, and reasons why others are not tried.

Every system gets the same number of points; systems without a knob try more learning rates. Learning rates lie around one
for synchronous SGD. Where every gradient is an update of its own, the rate is divided by the number of workers. Then one
update from each worker moves the model about as far.
"""

from dataclasses import dataclass
from typing import Any

from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.components import registry
from fred.specification.loading import scenario

POINTS = 12  # points tried of each system
SYNC = "sync"  # the baseline, which waits for all
RATE = "algorithm.learning_rate"
_SPAN = 5.0  # rates go from this factor below to this factor above


@dataclass(frozen=True)
class Candidate:
    """A system with at most one knob."""

    run: str  # name of the run
    algorithm: str
    knob: str = ""  # `protocol.key`
    values: tuple[Any, ...] = ()  # values of the knob
    natural: tuple[Any, ...] = ()  # natural limits, which do not count as edges of the search
    shared_by: float = 1.0  # divisor of synchronous SGD's learning rate
    protocol: str = ""  # absent: the algorithm's default protocol

    def settings(self, rate: float, best: str = "seconds") -> dict[str, Any]:
        """Return the run as part of a scenario: a sweep over the knob and learning rates around `rate`.

        Args:
            rate: learning rate of synchronous SGD.
            best: criterion for the best point.
        """
        number = POINTS // max(1, len(self.values))
        centre = rate / self.shared_by
        rates = {"first": float(f"{centre / _SPAN:.3g}"), "last": float(f"{centre * _SPAN:.3g}"), "number": number}
        over = ({self.knob: list(self.values)} if self.knob else {}) | {RATE: rates}
        return {"algorithm": {"name": self.algorithm}, "sweep": {"over": over, "best": best}}


def of_cluster(cluster: Cluster) -> list[Candidate]:
    """Return all systems that may apply, with knobs that suit the number of workers.

    Args:
        cluster: cluster on which they are tried.
    """
    workers = cluster.size
    backups = tuple(sorted({1, workers // 4, workers // 2} & set(range(1, workers))))
    splits = tuple(n for n in (2, 4, 8) if workers // n > 1)  # otherwise every gradient is an update, as with asgd
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
    """Return the systems that can run, and by name the reasons why others cannot.

    Args:
        cluster: cluster on which they are tried.
        parts: scenario fields shared by all runs.
        rate: learning rate of synchronous SGD.
    """
    can, cannot = list[Candidate](), dict[str, str]()
    for each in of_cluster(cluster):
        try:
            scenario(parts, runs={each.run: each.settings(rate)})
        except FredError as error:
            if each.run == SYNC:  # an error of the baseline affects all systems
                raise
            cannot[each.run] = str(error).splitlines()[0].partition(": ")[2]
        else:
            can.append(each)
    return can, cannot


def not_considered(cluster: Cluster) -> list[str]:
    """Return the names of FRED's algorithms without a candidate.

    Args:
        cluster: cluster on which the candidates are tried.
    """
    return sorted(set(registry.REGISTRY["algorithm"]) - {each.algorithm for each in of_cluster(cluster)})
