"""The findings of `fred diagnose`: every number, computed once from the same rounds."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fred.base.errors import FredError
from fred.base.intervals import Ratio, spell_ratio
from fred.base.progress import Show
from fred.base.types import Bools, Floats
from fred.cluster.durations import nanoseconds
from fred.components.component import NANOSECONDS
from fred.diagnosis import remedies
from fred.diagnosis.remedies import Fairness, Remedy
from fred.diagnosis.slowness import Slow, Slowness, slowness
from fred.prediction.comparison import nodes_of
from fred.traces.doubts import Doubt, find_doubt
from fred.traces.trace import Trace

FEWEST_ITERATIONS = 8  # iterations needed for a diagnosis
ENOUGH_ITERATIONS = 100  # iterations needed for a verdict
QUIET = 1000  # iterations without a spell after which none is expected: 95 % bound of 3 beginnings in this number
LITTLE_GAIN = 1.05  # relative throughput below which a gain is little
SAVES, SAVES_LITTLE, CANNOT_TELL, NO_VERDICT = "saves time", "saves little", "cannot tell", "no verdict"
ALL_SLOW = "all of these"  # name of all slow workers and nodes in the table below them
_WORTH = 1.02  # relative throughput from which a remedy saves time
_MOST_EXTENSION = 20  # most further iterations recommended, as a multiple of those recorded
_FAIR = 0.75  # least share of effective workers for a fair remedy
_LEARNING = ("deadline", "rule")
_NEVER_SLOWER = ("repair", "local", "asynchronous")  # whatever the times are
_CUTOFFS = ("backup", "deadline", "rule")


@dataclass(frozen=True, eq=False)
class Gain:
    """A remedy with its gain and its cost.

    Args:
        remedy: way of using the rounds.
        ratio: throughput relative to waiting for all, with an interval for the long run.
        fairness: share of gradients used.
    """

    remedy: Remedy
    ratio: Ratio
    fairness: Fairness


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """All findings about a trace.

    Args:
        trace: the trace, with times in whole nanoseconds.
        first: number of first iterations that only train rules and do not count.
        slowness: the loss and its causes.
        every: waiting for all.
        gains: all remedies, in the order of the table.
        bound: upper bound of all remedies that drop gradients.
        recommended: cutoff that the verdict is about.
    """

    trace: Trace
    first: int
    slowness: Slowness
    every: Remedy
    gains: tuple[Gain, ...]
    bound: Gain
    recommended: Gain

    @property
    def rounds(self) -> int:
        """Return the number of rounds that count."""
        return self.trace.iterations - self.first

    @property
    def spells(self) -> int:
        """Return the number of spells, which decide how wide intervals are."""
        return len(self.slowness.spells)

    @cached_property
    def doubt(self) -> Doubt | None:
        """Return the first reason not to believe the times, which takes the place of any verdict; None if there is none."""
        return find_doubt(self.trace)

    @cached_property
    def verdict(self) -> str:
        """Return the verdict on a cutoff: `saves time`, `saves little`, `cannot tell`, or `no verdict` with a doubt."""
        if self.doubt:
            return NO_VERDICT
        ratio = self.recommended.ratio
        if ratio.low == ratio.high == 1:  # the cutoff waits for all in every round: further iterations narrow nothing
            return SAVES_LITTLE
        if self.trace.iterations < ENOUGH_ITERATIONS:
            return CANNOT_TELL
        if ratio.above and ratio.value >= _WORTH:
            return SAVES
        has_spells = self.spells > 0 or any(slow.spells for slow in self.slowness.slow)
        spells_known = has_spells or self.trace.iterations >= QUIET  # otherwise spells may come, in which a cutoff would gain
        return SAVES_LITTLE if ratio.high < LITTLE_GAIN and spells_known else CANNOT_TELL

    @cached_property
    def more_iterations(self) -> int:
        """Return the approximate number of further iterations needed for a verdict; 0 if there is one, or none would do."""
        if self.verdict != CANNOT_TELL:
            return 0
        ratio, iterations = self.recommended.ratio, self.trace.iterations
        least = ENOUGH_ITERATIONS if ratio.value >= LITTLE_GAIN or self.spells else QUIET
        return max(_rounded(least - iterations), min(self._iterations_to_narrow(ratio), _rounded(_MOST_EXTENSION * iterations)))

    def _iterations_to_narrow(self, ratio: Ratio) -> int:
        """Return the number of further iterations after which the interval decides: it lies above 1, or below a little gain.

        Its width on a logarithmic scale shrinks as 1 / sqrt(iterations).
        """
        if not ratio.has_interval or ratio.above or ratio.high < LITTLE_GAIN:
            return 0
        is_nearer_to_gain = ratio.value >= math.sqrt(LITTLE_GAIN)
        half_width = math.log(ratio.value / ratio.low) if is_nearer_to_gain else math.log(ratio.high / ratio.value)
        deciding_half_width = math.log(ratio.value) if is_nearer_to_gain else math.log(LITTLE_GAIN / ratio.value)
        return _rounded(self.trace.iterations * ((half_width / deciding_half_width) ** 2 - 1))

    @property
    def fair(self) -> list[Gain]:
        """Return remedies with a gain that use all workers' data on the same machines, best first."""
        gains = [gain for gain in self.gains if gain.remedy.kind not in ("repair", "remove") and gain.ratio.value > _WORTH]
        least_effective = _FAIR * len(self.trace.workers)
        fair = [gain for gain in gains if not gain.fairness.excluded and gain.fairness.effective >= least_effective]
        return sorted(fair, key=lambda gain: -gain.ratio.value)

    def json(self) -> dict[str, Any]:
        """Return all of it as a JSON object; an interval is null where there are too few rounds for one."""
        about_trace = {
            "trace": self.trace.source,
            "digest": self.trace.digest,
            "notes": [*self.trace.notes, *self.trace.warnings],
            "repairs": list(self.trace.repairs),
            "iterations": self.trace.iterations,
            "workers": len(self.trace.workers),
            "learning": self.first,
        }
        if self.doubt:
            return {**about_trace, "verdict": {"cutoff": self.verdict, "doubt": self.doubt._asdict()}}
        recommended, slowness = self.recommended, self.slowness
        return {
            **about_trace,
            "rounds": self.rounds,
            "verdict": {
                "cutoff": self.verdict,
                "rule": recommended.remedy.name,
                **_ratio_json(recommended.ratio),
                "doubt": None,
                "more_iterations": self.more_iterations,
                "excludes": self._names(recommended.fairness.excluded),
            },
            "lost": {
                "waiting": slowness.waiting,
                "of_the_time": slowness.lost_share,
                "slowdown": slowness.slowdown,
                "lasting": slowness.lasting,
                "by_quarter": list(slowness.parts),
                "median_by_quarter": list(slowness.paces),
                "worst_iteration": slowness.worst[0],
                "worst_step": self.trace.step(slowness.worst[0]),
                "of_the_worst": slowness.worst[1],
                "spells": list(slowness.spells),
                "rounds_in_spells": slowness.share,
                "slow": [self._slow_json(slow) for slow in slowness.slow],
                "together": slowness.together,
                **self._events_json(),
            },
            "waiting_for_all": {"throughput": self.every.played.throughput()},
            "remedies": [self._gain_json(gain) for gain in self.gains],
            "upper_bound": {"throughput": self.bound.remedy.played.throughput(), **_ratio_json(self.bound.ratio)},
        }

    def _slow_json(self, slow: Slow) -> dict[str, Any]:
        return {
            **{"name": slow.name, "workers": self._names(slow.workers), "pattern": slow.pattern, "times": slow.times},
            **{"share_of_rounds": slow.share, "spells": [list(spell) for spell in slow.spells]},
            **{"steps": [[self.trace.step(begin), self.trace.step(end - 1)] for begin, end in slow.spells]},
            **{"slowdown_alone": slow.slowdown_alone, "share_of_the_loss": slow.loss_share},
        }

    def _events_json(self) -> dict[str, Any]:
        """Return quick workers, stalls, pauses and changes for JSON."""
        slowness = self.slowness
        quick, stalls = slowness.quick, slowness.stalls
        return {
            "quick": quick and {"workers": self._names(quick.workers), "times": quick.times},
            "stalls": stalls
            and {
                "steps": [self.trace.step(self.first + number) for number in stalls.rounds],
                **{"times": list(stalls.times), "share_of_the_time": stalls.share, "period": stalls.period},
            },
            "pauses": [
                {
                    "workers": self._names(pauses.workers),
                    "period": pauses.period,
                    "times": pauses.times,
                    "share_of_rounds": pauses.share,
                }
                for pauses in slowness.pauses
            ],
            "changes": [
                {
                    "workers": self._names(change.workers),
                    "step": self.trace.step(self.first + change.round),
                    "times": change.times,
                }
                for change in slowness.changes
            ],
        }

    def _gain_json(self, gain: Gain) -> dict[str, Any]:
        fair, used = gain.fairness, gain.remedy.used.tolist()
        return {
            **{"name": gain.remedy.name, "kind": gain.remedy.kind, "throughput": gain.remedy.played.throughput()},
            **_ratio_json(gain.ratio),
            **{"dropped": fair.dropped, "effective_workers": fair.effective, "excludes": self._names(fair.excluded)},
            **{"same_workers": fair.same_set_share, "used": dict(zip(self.trace.workers, used, strict=True))},
        }

    def _names(self, workers: Any) -> list[str]:
        return [self.trace.workers[worker] for worker in workers]


def diagnose(trace: Trace, progress: Show = lambda task, share: None) -> Diagnosis:
    """Return the loss of a trace, its causes, and the remedies with their gains, costs and intervals. Raises FredError.

    Args:
        trace: compute times of at least eight iterations and two workers.
        progress: called with the name of each task, and the share that is done.

    >>> from fred.traces.reading import read
    >>> diagnosis = diagnose(read("example"))
    >>> diagnosis.rounds, diagnosis.verdict
    (220, 'saves time')
    """
    iterations, workers = trace.seconds.shape
    if iterations < FEWEST_ITERATIONS or workers < 2:
        raise FredError(
            f"{trace.source} has {iterations} iterations of {workers} workers; "
            f"expected {FEWEST_ITERATIONS} iterations or more, of 2 workers or more"
        )
    trace = replace(trace, seconds=np.maximum(nanoseconds(trace.seconds), 1) / NANOSECONDS)
    first = remedies.learning(iterations)
    seconds, has_nodes = trace.seconds[first:], trace.node_of is not None
    loss = slowness(trace, seconds, nodes_of(trace, iterations), has_nodes)
    every, best = remedies.waiting_for_all(seconds), remedies.bound(seconds)

    def gain(remedy: Remedy) -> Gain:
        upper_bound = best.played if remedy.kind in _LEARNING else None  # rules that learn may gain more later
        ratio = spell_ratio(loss.high, remedy.played, every.played, upper_bound)
        if remedy.kind in _NEVER_SLOWER:  # so no end is below 1, except that the interval includes its value
            ratio = ratio._replace(low=max(ratio.low, min(1.0, ratio.value)), high=max(ratio.high, 1.0))
        return Gain(remedy, ratio, Fairness(remedy))

    gains = tuple(gain(remedy) for remedy in _remedies(trace, seconds, loss, progress))
    return Diagnosis(trace, first, loss, every, gains, gain(best), _recommended(gains, loss.high))


def _remedies(trace: Trace, seconds: Floats, loss: Slowness, progress: Show) -> Iterator[Remedy]:
    """Yield all remedies that are tried, in the order of the table."""
    for slow in loss.slow:
        yield from remedies.repaired(seconds, slow.workers, slow.name)
    if len(loss.slow) > 1:
        everybody = sorted(worker for slow in loss.slow for worker in slow.workers)
        yield from remedies.repaired(seconds, everybody, ALL_SLOW)
    for pauses in loss.pauses:
        if pauses.aligned is not None:
            yield remedies.aligned(pauses.aligned, pauses.period)
    for number in remedies.numbers_of_backups(seconds):
        yield remedies.backups(seconds, number)
    yield remedies.deadline(trace, progress)
    yield remedies.rule(trace, progress)
    for period in remedies.LOCAL_STEPS:
        if 2 * period <= len(seconds):
            yield remedies.local_steps(seconds, period)
    yield remedies.asynchronous(seconds)


def _recommended(gains: tuple[Gain, ...], high: Bools) -> Gain:
    """Return the rule that chooses by itself, or the best cutoff if that is significantly better; `high`: rounds in spells."""
    rule_gain = next(gain for gain in gains if gain.remedy.kind == "rule")
    best = max((gain for gain in gains if gain.remedy.kind in _CUTOFFS), key=lambda gain: gain.ratio.value)
    return best if spell_ratio(high, best.remedy.played, rule_gain.remedy.played).above else rule_gain


def _ratio_json(ratio: Ratio) -> dict[str, Any]:
    return {"gain": ratio.value, "interval": ratio.interval and list(ratio.interval)}


def _rounded(number: float) -> int:
    """Return a number of iterations rounded up to two digits; 0 if it is not positive."""
    if number <= 0:
        return 0
    unit = 10 ** max(0, math.floor(math.log10(number)) - 1)  # of the second digit
    return math.ceil(number / unit) * unit
