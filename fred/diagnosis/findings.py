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
from fred.cluster.durations import nanoseconds
from fred.components.limits import NANOSECONDS
from fred.diagnosis import remedies, spells
from fred.diagnosis.remedies import Fairness, Remedy
from fred.diagnosis.slowness import Slowness, slowness
from fred.prediction.comparison import nodes_of
from fred.traces.doubts import Doubt, find_doubt
from fred.traces.trace import Trace

FEWEST = 8  # iterations needed for a diagnosis
ENOUGH = 100  # iterations needed for a verdict
QUIET = 1000  # iterations without a spell after which none is expected: 95 % bound of 3 beginnings in this number
LITTLE = 1.05  # relative throughput below which a gain is little
SAVES, SAVES_LITTLE, CANNOT_TELL, NO_VERDICT = "saves time", "saves little", "cannot tell", "no verdict"
ALL_SLOW = "all of these"  # name of all slow workers and nodes in the table below them
_WORTH = 1.02  # relative throughput from which a remedy saves time
_MOST_MORE = 20  # most further iterations recommended, as a multiple of those recorded
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
        told: True if the trace gives the workers' nodes.
        slowness: the loss and its causes.
        every: waiting for all.
        gains: all remedies, in the order of the table.
        bound: upper bound of all remedies that drop gradients.
        recommended: cutoff that the verdict is about.
    """

    trace: Trace
    first: int
    told: bool
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
        found = self.recommended.ratio
        if found.low == found.high == 1:
            return SAVES_LITTLE
        if self.trace.iterations < ENOUGH:
            return CANNOT_TELL
        if found.above and found.value >= _WORTH:
            return SAVES
        quiet = self.spells > 0 or any(each.spells for each in self.slowness.slow) or self.trace.iterations >= QUIET
        return SAVES_LITTLE if found.high < LITTLE and quiet else CANNOT_TELL

    @cached_property
    def more(self) -> int:
        """Return the approximate number of further iterations needed for a verdict; 0 if there is one, or none would do."""
        if self.verdict != CANNOT_TELL:
            return 0
        found, have = self.recommended.ratio, self.trace.iterations
        least = ENOUGH if found.value >= LITTLE or self.spells else QUIET
        return max(_rounded(least - have), min(self._narrower(found), _rounded(_MOST_MORE * have)))

    def _narrower(self, found: Ratio) -> int:
        """Return the number of further iterations for a narrow interval, whose width shrinks as 1 / sqrt(iterations)."""
        if not found.has_interval or found.above or found.high < LITTLE:
            return 0
        up = found.value >= math.sqrt(LITTLE)
        reach = math.log(found.value / found.low) if up else math.log(found.high / found.value)
        room = math.log(found.value) if up else math.log(LITTLE / found.value)
        return _rounded(self.trace.iterations * ((reach / room) ** 2 - 1))

    @property
    def fair(self) -> list[Gain]:
        """Return remedies with a gain that use all workers' data on the same machines, best first."""
        able = [each for each in self.gains if each.remedy.kind not in ("repair", "remove") and each.ratio.value > _WORTH]
        enough = _FAIR * len(self.trace.workers)
        kept = [each for each in able if not each.fairness.excluded and each.fairness.effective >= enough]
        return sorted(kept, key=lambda each: -each.ratio.value)

    def json(self) -> dict[str, Any]:
        """Return all of it as a JSON object; an interval is null where there are too few rounds for one."""
        about = {"trace": self.trace.source, "digest": self.trace.digest}
        read = {"notes": [*self.trace.notes, *self.trace.warnings], "repairs": list(self.trace.repairs)}
        size = {"iterations": self.trace.iterations, "workers": len(self.trace.workers), "learning": self.first}
        if self.doubt:
            return {**about, **read, **size, "verdict": {"cutoff": self.verdict, "doubt": self.doubt._asdict()}}
        found, lost = self.recommended, self.slowness
        every = self.every.played.throughput()
        return {
            **about,
            **read,
            **size,
            "rounds": self.rounds,
            "verdict": {
                "cutoff": self.verdict,
                "rule": found.remedy.name,
                **_ratio(found.ratio),
                "doubt": self.doubt and self.doubt._asdict(),
                "more_iterations": self.more,
                "excludes": self._names(found.fairness.excluded),
            },
            "lost": {
                **{"waiting": lost.waiting, "of_the_time": lost.lost, "slowdown": lost.slowdown, "lasting": lost.lasting},
                **{
                    "by_quarter": list(lost.parts),
                    "median_by_quarter": list(lost.paces),
                    "worst_iteration": lost.worst[0],
                    "worst_step": self.trace.step(lost.worst[0]),
                    "of_the_worst": lost.worst[1],
                    "spells": list(lost.spells),
                    "rounds_in_spells": lost.share,
                },
                **{"slow": [self._slow(each) for each in lost.slow], "together": lost.together},
                **self._events(),
            },
            "waiting_for_all": {"throughput": every},
            "remedies": [self._gain(each) for each in self.gains],
            "upper_bound": {"throughput": self.bound.remedy.played.throughput(), **_ratio(self.bound.ratio)},
        }

    def _slow(self, each: Any) -> dict[str, Any]:
        return {
            **{"name": each.name, "workers": self._names(each.workers), "pattern": each.pattern, "times": each.times},
            **{"share_of_rounds": each.share, "spells": [list(spell) for spell in each.spells]},
            **{"steps": [[self.trace.step(begin), self.trace.step(end - 1)] for begin, end in each.spells]},
            **{"slowdown_alone": each.alone, "share_of_the_loss": each.lost},
        }

    def _events(self) -> dict[str, Any]:
        """Return quick workers, stalls, pauses and changes for JSON."""
        lost = self.slowness
        quick, stalls = lost.quick, lost.stalls
        return {
            "quick": quick and {"workers": self._names(quick.workers), "times": quick.times},
            "stalls": stalls
            and {
                "steps": [self.trace.step(self.first + number) for number in stalls.rounds],
                **{"times": list(stalls.times), "share_of_the_time": stalls.share, "period": stalls.period},
            },
            "pauses": [
                {
                    "workers": self._names(each.workers),
                    "period": each.period,
                    "times": each.times,
                    "share_of_rounds": each.share,
                }
                for each in lost.pauses
            ],
            "changes": [
                {"workers": self._names(each.workers), "step": self.trace.step(self.first + each.round), "times": each.times}
                for each in lost.changes
            ],
        }

    def _gain(self, each: Gain) -> dict[str, Any]:
        fair, used = each.fairness, each.remedy.used.tolist()
        return {
            **{"name": each.remedy.name, "kind": each.remedy.kind, "throughput": each.remedy.played.throughput()},
            **_ratio(each.ratio),
            **{"dropped": fair.dropped, "effective_workers": fair.effective, "excludes": self._names(fair.excluded)},
            **{"same_workers": fair.same, "used": dict(zip(self.trace.workers, used, strict=True))},
        }

    def _names(self, workers: Any) -> list[str]:
        return [self.trace.workers[worker] for worker in workers]


def diagnose(trace: Trace, progress: Show = lambda what, share: None) -> Diagnosis:
    """Return the loss of a trace, its causes, and the remedies with their gains, costs and intervals. Raises FredError.

    Args:
        trace: compute times of at least eight iterations and two workers.
        progress: called with the name of each task, and the share that is done.

    >>> from fred.traces.reading import read
    >>> found = diagnose(read("example"))
    >>> found.rounds, found.verdict
    (220, 'saves time')
    """
    iterations, workers = trace.seconds.shape
    if iterations < FEWEST or workers < 2:
        raise FredError(
            f"{trace.source} has {iterations} iterations of {workers} workers; expected {FEWEST} iterations or more, of 2 "
            "workers or more"
        )
    trace = replace(trace, seconds=np.maximum(nanoseconds(trace.seconds), 1) / NANOSECONDS)
    first = remedies.learning(iterations)
    counted, told = trace.seconds[first:], trace.node_of is not None
    found = slowness(trace, counted, nodes_of(trace, iterations), told)
    every, best = remedies.waiting_for_all(counted), remedies.bound(counted)

    def gain(remedy: Remedy) -> Gain:
        learns = best.played if remedy.kind in _LEARNING else None
        ratio = spell_ratio(found.high, remedy.played, every.played, learns)
        if remedy.kind in _NEVER_SLOWER:
            ratio = ratio._replace(low=max(ratio.low, min(1.0, ratio.value)), high=max(ratio.high, 1.0))
        return Gain(remedy, ratio, Fairness(remedy))

    gains = tuple(gain(remedy) for remedy in _tried(trace, counted, found, progress))
    return Diagnosis(trace, first, told, found, every, gains, gain(best), _recommended(gains, found.high))


def _tried(trace: Trace, counted: spells.Floats, found: Slowness, progress: Show) -> Iterator[Remedy]:
    """Yield all remedies that are tried, in the order of the table."""
    for slow in found.slow:
        yield from remedies.repaired(counted, slow.workers, slow.name)
    if len(found.slow) > 1:
        everybody = sorted(worker for slow in found.slow for worker in slow.workers)
        yield from remedies.repaired(counted, everybody, ALL_SLOW)
    for pauses in found.pauses:
        if pauses.aligned is not None:
            yield remedies.aligned(pauses.aligned, pauses.period)
    for number in remedies.numbers_of_backups(counted):
        yield remedies.backups(counted, number)
    yield remedies.deadline(trace, progress)
    yield remedies.rule(trace, progress)
    for period in remedies.LOCAL_STEPS:
        if 2 * period <= len(counted):
            yield remedies.local_steps(counted, period)
    yield remedies.asynchronous(counted)


def _recommended(gains: tuple[Gain, ...], slow: spells.Bools) -> Gain:
    """Return the rule that chooses by itself, or the best other cutoff if that is significantly better."""
    own = next(each for each in gains if each.remedy.kind == "rule")
    best = max((each for each in gains if each.remedy.kind in _CUTOFFS), key=lambda each: each.ratio.value)
    return best if spell_ratio(slow, best.remedy.played, own.remedy.played).above else own


def _ratio(found: Ratio) -> dict[str, Any]:
    return {"gain": found.value, "interval": found.interval and list(found.interval)}


def _rounded(number: float) -> int:
    """Return a number of iterations rounded up to two digits; 0 if it is not positive."""
    if number <= 0:
        return 0
    digits = 10 ** max(0, math.floor(math.log10(number)) - 1)
    return math.ceil(number / digits) * digits
