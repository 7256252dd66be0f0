"""From a trace to a simulated cluster that behaves like it."""

from dataclasses import dataclass

from fred.cluster.cluster import Cluster
from fred.fitting.block import Block, cluster_block
from fred.fitting.candidates import Groups
from fred.fitting.description import Description, Matrix, describe
from fred.fitting.judging import Agreement, agreement
from fred.fitting.ranking import Judged, Model, Progress, rank
from fred.traces.groups import find_groups
from fred.traces.trace import Trace


@dataclass(frozen=True)
class Fitted:
    """All there is to say about a trace.

    `text` is the `cluster:` of a scenario, `block.options` the same as mappings; `fred.views.fit_figure.picture` draws it.
    """

    trace: Trace
    group_of: Groups  # the node of each worker, told or found
    description: Description
    ranking: list[Judged]  # as good as the best and simple first
    chosen: Judged
    model: Model  # the chosen one, fitted to the whole trace
    block: Block
    agreement: Agreement  # of the block with the trace

    @property
    def comments(self) -> list[str]:
        """Where the block comes from, in words."""
        best = self.chosen
        size = f"{self.description.iterations:,} iterations x {self.description.workers:,} workers"
        lines = [f"fitted to {self.trace.source} ({size}): {best.name}; {best.unseen:.3f} nats per held-out run-time"]
        if self.description.groups > 1:
            lines.append(
                f"{self.description.groups} nodes, {'found in' if self.trace.node_of is None else 'told by'} the trace"
            )
        if (self.block.order[1:] < self.block.order[:-1]).any():
            lines.append("workers sorted by node: " + " ".join(self.trace.workers[worker] for worker in self.block.order))
        found = self.agreement
        off, error = (float(value[-1] / found.trace[-1]) for value in (found.cluster - found.trace, found.error))
        way = "longer" if off > 0 else "shorter"
        lines.append(f"a round that waits for all is {abs(off):.1%} (± {error:.1%}) {way} than in the trace, simulated again")
        return lines

    @property
    def text(self) -> str:
        """The `cluster:` block as YAML."""
        return self.block.text(*self.comments)


def fit(trace: Trace, progress: Progress = lambda share: None) -> Fitted:
    """Describe a trace, try every candidate on it, and make a cluster of one. FredError for too short a trace.

    Of the candidates that are as good as the best, it is the simplest whose cluster has the order statistics of the trace; the
    simplest, if there is none.

    Args:
        trace: run-times of at least eight iterations; if it does not say the workers' nodes, `find_groups` looks for them.
        progress: told the share of the candidates that were tried.

    >>> from fred.traces.reading import read
    >>> fitted = fit(read("example"))
    >>> fitted.chosen.name, fitted.block.options["nodes"]
    ('lognormal, worker and node noise', 2)
    >>> import fred
    >>> algorithm, stop = {"name": "ssgd", "learning_rate": 0.1}, {"updates": 20}
    >>> fred.run(fred.scenario(cluster=fitted.block.options, algorithm=algorithm, stop=stop)).summary["workers"].tolist()
    [8]
    """
    seconds = trace.seconds
    group_of = find_groups(seconds) if trace.node_of is None else trace.node_of
    ranking = rank(seconds, group_of, progress)
    tried = (_made(each, seconds, group_of) for each in ranking if each.as_good)
    first = next(tried)
    chosen = first if first[-1].holds else next((each for each in tried if each[-1].holds), first)
    return Fitted(trace, group_of, describe(seconds, group_of), ranking, *chosen)


def _made(candidate: Judged, seconds: Matrix, group_of: Groups) -> tuple[Judged, Model, Block, Agreement]:
    """A candidate fitted to the whole trace, its cluster, and how that behaves."""
    model = candidate.fit(seconds, group_of)
    block = cluster_block(model, seconds, group_of)
    return candidate, model, block, agreement(seconds, Cluster.model_validate(block.options))
