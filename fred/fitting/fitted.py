"""The fit of a simulated cluster to a trace, and its `cluster:` block; if no simple cluster fits, the trace itself."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fred.base import numerics
from fred.base.errors import FredError
from fred.base.intervals import block_length
from fred.base.types import OnProgress
from fred.cluster.cluster import Cluster
from fred.cluster.latency import Mixture
from fred.components.one_of import OneOf
from fred.fitting.behaviour import Behaviour, TraceMeasures, measure_trace
from fred.fitting.description import Description, Matrix, describe
from fred.fitting.entities import Groups, Model, fit_model, sentences
from fred.fitting.entity_regimes import InSpells, InWaves, Regime
from fred.fitting.latencies import FITS, log_density
from fred.fitting.series import Noise
from fred.specification.text import written
from fred.traces.doubts import refuse_doubtful
from fred.traces.trace import Trace, find_groups

_PARTS = 4  # steps of the noise in a usual iteration, so that even a short iteration has its own step
_DIGITS = 4  # significant digits
_LEAST_DEVIATION = 1e-4  # deviation of a logarithm below which it counts as none
_STEPS = 48  # steps of a wave


@dataclass(frozen=True)
class Block:
    """A `cluster:` block, and the trace's worker behind each of its workers.

    Args:
        options: options of the cluster.
        order: the trace's worker, by number, for each of the cluster's [workers].
        family: name of the latency of the compute times.
    """

    options: dict[str, Any]
    order: NDArray[np.int64]
    family: str = ""

    def text(self, *comments: str) -> str:
        """Return the block as YAML, with comments on top.

        Args:
            comments: one line each, without `#`.

        >>> print(Block({"workers": 2, "speeds": [1.0, 0.5]}, np.arange(2)).text("two of them"), end="")
        # two of them
        cluster:
          workers: 2
          speeds: [1.0, 0.5]
        """
        return written({"cluster": self.options}, *comments)


def families(model: Model) -> list[str]:
    """Return the names of latencies, best first by the Bayesian information criterion.

    Args:
        model: model with the compute times to fit, without levels and regimes.
    """
    scores = {}
    for name in FITS:
        try:
            fitted = [(FITS[name](times), times) for times in _compute_times(model)]
            likelihood = sum(float(log_density(latency, times).sum()) for latency, times in fitted)
        except ValueError:  # the latency cannot fit such times
            continue
        # Median, sigma and weight of each component; the last component's weight follows from the others.
        parameters = sum(3 * len(latency.components) - 1 if isinstance(latency, Mixture) else 2 for latency, _ in fitted)
        scores[name] = likelihood - 0.5 * parameters * np.log(model.rest.size)
    return sorted((name for name in scores if np.isfinite(scores[name])), key=lambda name: -scores[name])


def cluster_block(model: Model, family: str, rounds: NDArray[np.float64], group_of: Groups) -> Block:
    """Write a model as a cluster.

    Workers of a node must have successive numbers, so the workers are reordered.

    Args:
        model: model fitted to a trace.
        family: name of the latency of the compute times.
        rounds: duration of each iteration, s [iterations].
        group_of: node number of each worker, from 0 [workers].
    """
    order = np.argsort(group_of, kind="stable")
    sizes = np.bincount(group_of).tolist()
    latencies = [_round_options(OneOf("latency").dump(FITS[family](times))) for times in _compute_times(model)]
    speeds = [_round(speed) for speed in np.exp(np.median(model.levels) - model.levels)[order]]  # 1: the median worker
    options: dict[str, Any] = {"workers": len(order)}
    kind_of = model.kind_of[order]
    main_kind = int(np.bincount(kind_of).argmax())
    options["compute"] = latencies[main_kind]
    if len(latencies) > 1:
        options["groups"] = _worker_groups(speeds, [None if kind == main_kind else latencies[kind] for kind in kind_of])
    elif np.ptp(np.log(speeds)) > _LEAST_DEVIATION:
        options["speeds"] = speeds
    if len(sizes) > 1:
        options["nodes"] = len(sizes) if len(set(sizes)) == 1 else sizes
    if regimes := [
        *_noise_options(model, float(rounds.mean()), sizes),
        *(_regime_options(regime, order, group_of, rounds) for regime in model.regimes),
    ]:
        options["contention"] = regimes
    return Block(options, order, family)


def _compute_times(model: Model) -> list[NDArray[np.float64]]:
    """Return the compute times of each kind of workers without levels, regimes and noise, s."""
    # The block simulates persistent and shared noise as contention. The latency must not contain them a second time, so the
    # remaining logarithms are scaled down to the deviation of the independent noise; their shape stays.
    deviation = np.maximum(model.rest.std(0), 1e-12)
    rest = model.rest * np.minimum(model.white / deviation, 1.0) if model.noisy else model.rest
    centred = np.exp(np.median(model.levels) + rest)
    return [centred[:, model.kind_of == kind].ravel() for kind in range(int(model.kind_of.max()) + 1)]


def _worker_groups(speeds: list[float], latencies: list[dict[str, Any] | None]) -> list[dict[str, Any]]:
    """Merge successive equal workers into groups; a group without a latency uses the cluster's."""
    runs = [(key, len(list(members))) for key, members in groupby(zip(speeds, latencies, strict=True))]
    return [
        {"workers": count, "speed": speed} | ({"compute": deepcopy(latency)} if latency else {})
        for (speed, latency), count in runs
    ]


def _noise_options(model: Model, round_seconds: float, sizes: list[int]) -> list[dict[str, Any]]:
    """Return the shared noise as entries of `contention`."""
    shared = "node" if len(sizes) > 1 else "cluster"
    white = Noise(model.noise.node_white, 0.0)
    noises = [("worker", model.noise.worker), (shared, model.noise.node), (shared, white)]
    return [
        _persistent_options(noise, scope, round_seconds)
        for scope, noise in noises
        if noise is not None and noise.deviation > _LEAST_DEVIATION
    ]


def _persistent_options(noise: Noise, scope: str, round_seconds: float) -> dict[str, Any]:
    return {
        "name": "persistent-noise",
        "deviation": _round(noise.deviation),
        # Of one step; over all steps of an iteration, the fitted one.
        "persistence": round(noise.persistence ** (1 / _PARTS), 5),
        "every": _round(round_seconds / _PARTS),
        "of": scope,
    }


def _regime_options(regime: Regime, order: NDArray[np.int64], group_of: Groups, rounds: NDArray[np.float64]) -> dict[str, Any]:
    """Return a regime as an entry of `contention`.

    Args:
        regime: the fitted regime.
        order: the trace's worker that each worker of the cluster is [workers].
        group_of: node number of each of the trace's workers [workers].
        rounds: duration of each iteration, s [iterations].
    """
    if isinstance(regime, InSpells):
        seconds = {"fast_seconds": _round(regime.fast_seconds), "slow_seconds": _round(regime.slow_seconds)}
        options = {"name": "markov-switching", "slowdown": _round(regime.slowdown), **seconds, "of": regime.scope}
    elif isinstance(regime, InWaves):
        times = {"period": _round(regime.period), "peak": _round(regime.peak), "steps": _STEPS}
        shape = "linear" if regime.linear else "cosine"
        options = {"name": "diurnal", "slowdown": _round(regime.slowdown), **times, "shape": shape}
    else:
        options = _persistent_options(Noise(regime.deviation, regime.persistence), regime.scope, float(rounds.mean()))
    workers = _affected_workers(regime, order, group_of)
    return {**options, "only": workers} if workers else options


def _affected_workers(regime: Regime, order: NDArray[np.int64], group_of: Groups) -> list[int]:
    """Return the cluster's workers that a regime applies to; empty: all."""
    if regime.scope == "cluster" or not regime.entities:
        return []
    entity_of = group_of if regime.scope == "node" else np.arange(len(group_of))
    return np.flatnonzero(np.isin(entity_of[order], regime.entities)).tolist()


def _round_options(options: Any) -> Any:
    if isinstance(options, dict):
        return {name: _round_options(value) for name, value in options.items() if value not in (None, 0.0)}
    if isinstance(options, list | tuple):
        return [_round_options(value) for value in options]
    return _round(options) if isinstance(options, float) else options


def _round(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


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
            further_ones = f" (and {len(outside) - 1} more)" if outside[1:] else ""
            return f"UNLIKE the trace: {outside[0]}, {outside[0].excess:.1%} outside{further_ones}"
        if self.choice.model is None:
            *simple_clusters, _ = self.candidates  # the last one is the trace itself
            furthest_measures = [cluster.behaviour.outside[0] for cluster in simple_clusters]  # `outside` begins with it
            closest = min(furthest_measures, key=lambda measure: measure.excess)
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


def fit(trace: Trace, recorded: Mapping[str, Any] | None = None, progress: OnProgress = lambda share: None) -> Fitted:
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
    models = _fit_models(seconds, group_of)
    candidates: list[Candidate] = []
    for number, (model, family) in enumerate(_pair_families(models)):
        progress(number / (_FAMILIES * len(models) + 1))  # the last one may be the trace itself
        block = cluster_block(model, family, seconds.max(1), group_of)
        behaviour = trace_measures.judge(Cluster.model_validate(block.options))
        candidates.append(Candidate(_name(model, family), block, behaviour, model))
        if behaviour.holds:
            break
    else:
        candidates.append(_resample_rows(trace, group_of, {"file": trace.source, **(recorded or {})}, trace_measures))
    return Fitted(trace, group_of, describe(seconds, group_of), models[0], tuple(candidates), candidates[-1])


def _fit_models(seconds: Matrix, group_of: Groups) -> list[Model]:
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
    blocks = max(1, _DRAWN_TIMES // (length * len(group_of)))
    first_rows = (numerics.uniforms(0, "played", 0, 0, blocks) * len(seconds)).astype(np.int64)
    drawn_rows = (first_rows[:, None] + np.arange(length)).ravel() % len(seconds)  # a block goes on at the trace's begin
    behaviour = trace_measures.compare(seconds[drawn_rows], group_of)
    rows: dict[str, Any] = {"rows": "block", "block": length} if length > 1 else {"rows": "resampled"}
    if not behaviour.holds:
        behaviour, rows = trace_measures.compare(seconds, group_of), {"rows": "cycled"}
    options: dict[str, Any] = {"workers": len(group_of), "compute": {"name": "trace", **recorded, **rows}}
    sizes = np.bincount(group_of).tolist()
    if len(sizes) > 1 and (np.diff(group_of) >= 0).all():  # workers of a node have successive numbers
        options["nodes"] = sizes
    return Candidate(f"the trace's own times, {rows['rows']}", Block(options, np.arange(len(group_of))), behaviour)
