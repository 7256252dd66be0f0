"""From a trace to a simulated cluster that behaves like it."""

from dataclasses import dataclass

from fred.fitting.block import Block, cluster_block
from fred.fitting.candidates import Groups
from fred.fitting.description import Description, describe
from fred.fitting.ranking import Judged, Model, Progress, rank
from fred.traces.groups import find_groups
from fred.traces.trace import Trace


@dataclass(frozen=True)
class Fitted:
    """All there is to say about a trace."""

    trace: Trace
    group_of: Groups  # the node of each worker, told or found
    description: Description
    ranking: list[Judged]  # the best first
    model: Model  # the best, fitted to the whole trace
    block: Block

    @property
    def comments(self) -> list[str]:
        """Where the block comes from, in words."""
        best = self.ranking[0]
        size = f"{self.description.iterations:,} iterations x {self.description.workers:,} workers"
        lines = [f"fitted to {self.trace.source} ({size}): {best.name}; {best.unseen:.3f} nats per held-out run-time"]
        if self.description.groups > 1:
            lines.append(
                f"{self.description.groups} nodes, {'found in' if self.trace.node_of is None else 'told by'} the trace"
            )
        if (self.block.order[1:] < self.block.order[:-1]).any():
            lines.append("workers sorted by node: " + " ".join(self.trace.workers[worker] for worker in self.block.order))
        return lines

    @property
    def text(self) -> str:
        """The `cluster:` block as YAML."""
        return self.block.text(*self.comments)


def fit(trace: Trace, progress: Progress = lambda name, share: None) -> Fitted:
    """Describe a trace, try every candidate on it, and make a cluster of the best. FredError for too short a trace."""
    seconds = trace.seconds
    group_of = find_groups(seconds) if trace.node_of is None else trace.node_of
    ranking = rank(seconds, group_of, progress)
    model = ranking[0].fit(seconds, group_of)
    return Fitted(trace, group_of, describe(seconds, group_of), ranking, model, cluster_block(model, seconds, group_of))
