"""The fit of a simulated cluster to a trace; if no simple cluster fits, the trace itself."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fred.base import numerics
from fred.base.errors import FredError
from fred.base.intervals import block_length
from fred.cluster.cluster import Cluster
from fred.fitting.behaviour import Behaviour, TraceMeasures, measure_trace
from fred.fitting.block import Block, cluster_block, families
from fred.fitting.description import Description, Matrix, describe
from fred.fitting.entities import Groups, Model, fit_model
from fred.fitting.fit_sentences import sentences
from fred.traces.doubts import refuse_doubtful
from fred.traces.trace import Trace, find_groups

Progress = Callable[[float], None]  # called with the share that is done
MARK = "fred fit: "  # first words of every block
_FEWEST_ITERATIONS = 8  # iterations needed
_FAMILIES = 2  # latencies tried with each model
_DRAWN_TIMES = 300_000  # compute times drawn from the trace to judge the trace itself
_SHORT = 3  # rows; shorter blocks become single rows


@dataclass(frozen=True)
class Candidate:
    """A cluster that was tried.

    Args:
        name: names of its parts.
        block: the cluster; for the trace itself, a cluster with the recorded times.
        behaviour: its behaviour, compared with the trace's.
        model: fitted model; None for the trace itself.
    """

    name: str
    block: Block
    behaviour: Behaviour
    model: Model | None = None


@dataclass(frozen=True)
class Fitted:
    """The findings about a trace.

    `text` is the `cluster:` block of a scenario, `block.options` the same as mappings. `fred.fitting.fit_figure.picture`
    draws it.

    Args:
        trace: fitted trace.
        group_of: node of each worker, as given in the trace or as found [workers].
        description: summary statistics of the trace.
        model: model of the first candidate, with slow workers and nodes.
        candidates: clusters in the order in which they were tried.
        choice: the first that behaves like the trace, or the trace itself.
    """

    trace: Trace
    group_of: Groups
    description: Description
    model: Model
    candidates: tuple[Candidate, ...]
    choice: Candidate

    @property
    def block(self) -> Block:
        """Return the chosen cluster."""
        return self.choice.block

    @property
    def behaviour(self) -> Behaviour:
        """Return the chosen cluster's behaviour."""
        return self.choice.behaviour

    @property
    def verdict(self) -> str:
        """Say whether the cluster behaves like the trace, or which measure is furthest off, and by how much."""
        outside = self.behaviour.outside
        if outside:
            rest = f" (and {len(outside) - 1} more)" if outside[1:] else ""
            return f"UNLIKE the trace: {outside[0]}, {outside[0].excess:.1%} outside{rest}"
        if self.choice.model is None:
            closest = min(
                (candidate.behaviour.outside[0] for candidate in self.candidates[:-1]), key=lambda measure: measure.excess
            )
            return (
                "No simple cluster behaves like this trace: the cluster uses the recorded times themselves. For the closest, "
                f"{closest}, {closest.excess:.1%} outside"
            )
        return "The cluster behaves like the trace: arrivals, backup workers and cutoff rules are inside its 95 % intervals"

    @property
    def sentences(self) -> list[str]:
        """Return sentences on slow workers and nodes, costliest first."""
        return sentences(self.model, self.trace.workers, self.group_of, self.trace.node_of is not None, self.trace.nodes)

    @property
    def comments(self) -> list[str]:
        """Return the comment lines above the block."""
        size = f"{self.description.iterations:,} iterations x {self.description.workers:,} workers"
        lines = [f"{MARK}{self.verdict}.", f"Fitted to {self.trace.source} ({size}): {self.choice.name}.", *self.sentences]
        if (self.block.order[1:] < self.block.order[:-1]).any():
            lines.append("Workers sorted by node: " + " ".join(self.trace.workers[worker] for worker in self.block.order))
        return lines

    @property
    def text(self) -> str:
        """Return the `cluster:` block as YAML."""
        return self.block.text(*self.comments)


def fit(trace: Trace, recorded: Mapping[str, Any] | None = None, progress: Progress = lambda share: None) -> Fitted:
    """Fit a cluster that behaves like a trace; if no simple one does, the cluster uses the trace's own times.

    Raises FredError if the trace has fewer than eight iterations, or if its times cannot be compute times, such as times
    that contain waiting.

    Args:
        trace: compute times; if the trace does not give the workers' nodes, `find_groups` looks for them.
        recorded: options of the latency `trace` that reads the same times; None: its file is `trace.source`.
        progress: called with the share of the candidates that were tried.

    >>> from fred.traces.reading import read
    >>> fitted = fit(read("example"))
    >>> fitted.behaviour.holds, fitted.block.options["nodes"]
    (True, 4)
    >>> import fred
    >>> algorithm, stop = {"name": "ssgd", "learning_rate": 0.1}, {"updates": 20}
    >>> fred.run(fred.scenario(cluster=fitted.block.options, algorithm=algorithm, stop=stop)).summary["workers"].tolist()
    [8]
    """
    refuse_doubtful(trace)
    seconds = trace.seconds
    if len(seconds) < _FEWEST_ITERATIONS:
        raise FredError(
            f"the trace has {len(seconds)} complete iterations; expected at least {_FEWEST_ITERATIONS}, to fit and to judge"
        )
    group_of = find_groups(seconds) if trace.node_of is None else trace.node_of
    trace_measures = measure_trace(seconds, group_of)
    models = _models(seconds, group_of)
    candidates: list[Candidate] = []
    for number, (model, family) in enumerate(_pair_families(models)):
        progress(number / (_FAMILIES * len(models) + 1))
        block = cluster_block(model, family, seconds.max(1), group_of)
        behaviour = trace_measures.judge(Cluster.model_validate(block.options))
        candidates.append(Candidate(_name(model, family), block, behaviour, model))
        if behaviour.holds:
            break
    else:
        candidates.append(_resample_rows(trace, group_of, {"file": trace.source, **(recorded or {})}, trace_measures))
    return Fitted(trace, group_of, describe(seconds, group_of), models[0], tuple(candidates), candidates[-1])


def _models(seconds: Matrix, group_of: Groups) -> list[Model]:
    """Fit the complete model, one without shared noise, and one without regimes."""
    complete = fit_model(seconds, group_of)
    models = [complete]
    if complete.noise.variance:
        models.append(fit_model(seconds, group_of, noise=False))
    if complete.regimes:
        models.append(fit_model(seconds, group_of, regimes=False))
    return models


def _pair_families(models: list[Model]) -> Iterator[tuple[Model, str]]:
    for model in models:
        for family in families(model)[:_FAMILIES]:
            yield model, family


def _name(model: Model, family: str) -> str:
    regimes = {regime.kind for regime in model.regimes} | ({"noise"} if model.noise.variance else set())
    return ", ".join([f"{family} times", *sorted(regimes)])


def _resample_rows(trace: Trace, group_of: Groups, recorded: Mapping[str, Any], trace_measures: TraceMeasures) -> Candidate:
    """Resample the trace's own rows, in blocks as long as its spells; repeat them in order if blocks behave differently."""
    seconds = trace.seconds
    slowest = seconds.max(1)
    length = block_length(slowest / slowest.mean()) if np.ptp(slowest) > 0 else 1
    length = length if length >= _SHORT else 1
    count = max(1, _DRAWN_TIMES // (length * len(group_of)))
    starts = (numerics.uniforms(0, "played", 0, 0, count) * len(seconds)).astype(np.int64)
    numbers = (starts[:, None] + np.arange(length)).ravel() % len(seconds)
    behaviour = trace_measures.compare(seconds[numbers], group_of)
    rows: dict[str, Any] = {"rows": "block", "block": length} if length > 1 else {"rows": "resampled"}
    if not behaviour.holds:
        behaviour, rows = trace_measures.compare(seconds, group_of), {"rows": "cycled"}
    options: dict[str, Any] = {"workers": len(group_of), "compute": {"name": "trace", **recorded, **rows}}
    sizes = np.bincount(group_of).tolist()
    if len(sizes) > 1 and (np.diff(group_of) >= 0).all():
        options["nodes"] = sizes
    return Candidate(f"the trace's own times, {rows['rows']}", Block(options, np.arange(len(group_of))), behaviour)
