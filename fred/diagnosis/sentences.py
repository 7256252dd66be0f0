"""A diagnosis in sentences, with the trace's own names."""

import math
from collections.abc import Iterator

from fred.base.intervals import Ratio
from fred.base.numbers import percent
from fred.diagnosis.findings import CANNOT_TELL, ENOUGH, QUIET, SAVES, SAVES_LITTLE, Diagnosis, Gain
from fred.diagnosis.slowness import Slow
from fred.diagnosis.worker_names import several

_LITTLE_LOST = 0.05  # share of the time below which a loss is not explained
_UNLIKE = 0.2  # difference between quarters of the record, in share of time lost, that is reported
_ALONE = 0.3  # share of the loss from which a single round is reported
_FEW_ROUNDS = 10  # in fewer, one round is often a large part
_MANY_ROUNDS = 100  # in fewer, the median worker's time may change by chance
_CHANGES = 1.2  # ratio of the median worker's times in two quarters that is reported
_MOST_USED = 0.95  # share of rounds with the same workers that is reported


def sections(found: Diagnosis) -> dict[str, list[str]]:
    """Return the sentences below each heading.

    Args:
        found: findings about a trace.
    >>> import numpy as np
    >>> from fred.diagnosis.findings import diagnose
    >>> from fred.traces.trace import Trace
    >>> seconds = np.tile([1.0, 1.0, 1.0, 3.0], (200, 1))
    >>> said = sections(diagnose(Trace(seconds, ("a", "b", "c", "gpu-d"))))
    >>> print(*said["What is lost"], sep="\\n")
    Waiting for all 4 workers loses 67 % of the time: rounds take 3.00 times as long as if all were as the median worker.
    Workers wait for the slowest 50 % of their time.
    gpu-d is always 3.0 times slower than the others: 100 % of the loss goes if it is repaired.
    """
    if doubt := found.doubt:
        return {"Verdict": [f"No verdict. {doubt.reason}"], "Why": [doubt.evidence], "Next": list(doubt.remedies)}
    return {
        "What is lost": list(_lost(found)),
        "What helps": list(_helps(found)),
        "What it costs": list(_costs(found)),
        "How surely": list(_surely(found)),
    }


def gain(found: Ratio) -> str:
    """Return a gain in words.

    Args:
        found: throughput relative to waiting for all.
    >>> gain(Ratio(1.25, 1.1, 1.4)), gain(Ratio(3.0, 0.0, math.inf)), gain(Ratio(1.0, 1.0, 1.0))
    ('+25 % (+10 to +40 %)', '+200 %', '+0 %')
    """
    if not found.known or found.low == found.high:
        return f"{percent(found.value)} %"
    return f"{percent(found.value)} % ({percent(found.low)} to {percent(found.high)} %)"


def _lost(found: Diagnosis) -> Iterator[str]:
    lost, workers = found.slowness, len(found.trace.workers)
    long = f"rounds take {lost.slowdown:.2f} times as long as if all were as the median worker"
    yield f"Waiting for all {workers} workers loses {_share(lost.lost)} of the time: {long}."
    if lost.slowdown > 1:
        yield f"Workers wait for the slowest {_share(lost.waiting)} of their time."
    for slow in lost.slow:
        goes = f"{_share(slow.lost)} of the loss goes if {'they are' if _are(slow) else 'it is'} repaired"
        yield f"{_capital(slow.name)} {_pattern(slow, found)}: {goes}."
    if len(lost.slow) > 1:
        yield f"All of these together make up {_share(lost.together)} of the loss."
    elif not lost.slow and lost.lost >= _LITTLE_LOST:
        yield "No worker or node stands out: the slowest worker changes from round to round."
    least, most = min(lost.parts), max(lost.parts)
    if most - least > _UNLIKE:
        parts = ", ".join(f"{part:.0%}".replace("%", " %") for part in lost.parts)
        yield f"The record is not homogeneous: its quarters lose {parts} of their time."
    if lost.worst[1] >= _ALONE and lost.rounds >= _FEW_ROUNDS and lost.lost >= _LITTLE_LOST:
        yield f"Iteration {lost.worst[0]} alone makes up {_share(lost.worst[1])} of the loss."
    if max(lost.paces) >= _CHANGES * min(lost.paces) and lost.rounds >= _MANY_ROUNDS:
        paces = ", ".join(f"{pace:.3g}" for pace in lost.paces)
        yield f"The median worker's time changes: {paces} s in the quarters of the record. This is not part of the loss."


def _pattern(slow: Slow, found: Diagnosis) -> str:
    verb = "are" if _are(slow) else "is"
    if slow.pattern == "always":
        return f"{verb} always {slow.times:.1f} times slower than the others"
    if slow.pattern == "rarely":
        return f"{verb} {slow.times:.1f} times slower in {_share(slow.share)} of the iterations, one by one"
    first, last = slow.spells[0][0], slow.spells[-1][1]
    share = f"{_share(slow.share)} of the time"
    if len(slow.spells) == 1:
        begun, over = first > found.first, last < found.trace.iterations
        since = f"from iteration {first} " if begun else ""
        until = f"until iteration {last - 1}" if over else "to the end of the record"
        return f"{verb} {slow.times:.1f} times slower {since}{until}, {share}"
    whole = [end - begin for begin, end in slow.spells if begin > found.first and end < found.trace.iterations]
    lengths = whole or [end - begin for begin, end in slow.spells]
    between = f"{min(lengths)} to {max(lengths)}" if min(lengths) < max(lengths) else f"{max(lengths)}"
    return f"{verb} {slow.times:.1f} times slower in spells of {between} iterations, {share}"


def _helps(found: Diagnosis) -> Iterator[str]:
    best = found.recommended
    told = f"{gain(best.ratio)} gradients per second with {_the(best)}"
    bound = f"The upper bound of all that drop gradients, all times known in advance, is {percent(found.bound.ratio.value)} %."
    if found.verdict == SAVES:
        yield f"A cutoff saves time: {told}. {bound}"
    elif found.verdict == SAVES_LITTLE:
        yield f"A cutoff saves little or nothing here: {told}. {bound}"
    else:
        yield f"Cannot tell yet whether a cutoff saves time; so far {told}. {bound}"
    for each in _machines(found):
        yield f"{each.remedy.name[:1].upper()}{each.remedy.name[1:]}: {gain(each.ratio)}."
    for kind, stale in (("local", ""), ("asynchronous", ", with stale gradients")):
        own = [each for each in found.gains if each.remedy.kind == kind]
        if own and (most := max(own, key=lambda each: each.ratio.value)).ratio.value > 1:
            yield f"{_the(most).capitalize()}: {gain(most.ratio)}{stale}."


def _the(each: Gain) -> str:
    """Return the name of a remedy in a sentence."""
    return {
        "rule": f"the {each.remedy.name}",
        "deadline": f"a {each.remedy.name}",
        "local": f"{each.remedy.name} between two synchronisations",
        "asynchronous": "workers that never wait",
    }.get(each.remedy.kind, each.remedy.name)


def _machines(found: Diagnosis) -> list[Gain]:
    """Return the repair or removal with the largest gain, if any gains: a list of at most one."""
    own = [each for each in found.gains if each.remedy.kind in ("repair", "remove") and each.ratio.value > 1]
    return sorted(own, key=lambda each: -each.ratio.value)[:1]


def _costs(found: Diagnosis) -> Iterator[str]:
    fair, trace = found.recommended.fairness, found.trace
    workers = len(trace.workers)
    yield (
        f"With {_the(found.recommended)}, {_share(fair.dropped)} of the gradients are dropped; the used ones are worth the "
        f"data of {fair.effective:.1f} of {workers} workers."
    )
    if fair.excluded:
        names = several(trace, fair.excluded)
        number = len(fair.excluded)
        same = f", and takes the same workers in {_share(fair.same)} of the rounds" if fair.same >= _MOST_USED else ""
        yield (
            f"It excludes {number} of {workers} workers and their data{same}: fewer than 5 % of the gradients of {names} are "
            "used. The model does not learn what only their data show."
        )
        yield _instead(found)
    if fair.rare:
        yield f"Fewer than half of the gradients of {several(trace, fair.rare)} are used."


def _instead(found: Diagnosis) -> str:
    """Name the best remedies that exclude no worker."""
    repair = [each for each in found.gains if each.remedy.kind == "repair"]
    ways = [*sorted(repair, key=lambda each: -each.ratio.value)[:1], *found.fair[:3]]
    if not ways:
        return "No other remedy gains time and uses the data of all."
    told = [f"{each.remedy.name} ({percent(each.ratio.value)} %)" for each in ways]
    return f"With the data of all: {', or '.join(told)}."


def _surely(found: Diagnosis) -> Iterator[str]:
    spells, rounds = found.spells, found.rounds
    if found.first:
        yield f"All numbers refer to {rounds} rounds; the first {found.first} iterations only trained the rules."
    else:
        yield f"All numbers refer to {rounds} rounds."
    if not found.recommended.ratio.known:
        yield "There are too few rounds for intervals."
    elif spells:
        number = "1 spell" if spells == 1 else f"{spells} spells"
        yield (
            f"In brackets: 95 % intervals of the long run. They depend on the {number} of the record more than on its rounds: "
            f"{_share(found.slowness.share)} of the rounds are in spells."
        )
    else:
        yield (
            "In brackets: 95 % intervals of the long run, as long as no spell of slowness occurs. The record has none, so "
            f"spells begin in fewer than 1 of {max(1, rounds // 3)} rounds."
        )
    if found.verdict == CANNOT_TELL:
        yield _why_not(found)
    yield from found.trace.warnings


def _why_not(found: Diagnosis) -> str:
    """Return the reason why there is no verdict, and what would give one."""
    have = found.trace.iterations
    if have < ENOUGH:
        why = f"{have} iterations are too few"
    elif found.recommended.ratio.high < 1.05:
        why = f"{have} iterations without a spell of slowness say little about spells; {QUIET} would do"
    else:
        why = "the interval includes both a gain and none"
    return f"Cannot tell yet, because {why}: record about {found.more:,} more iterations."


def _share(share: float) -> str:
    if math.isnan(share):
        return "0 %"
    return f"{100 * share:.1f} %" if 0 < share < 0.1 or 0.99 < share < 1 else f"{100 * share:.0f} %"


def _are(slow: Slow) -> bool:
    """Return True if a sentence treats them as several: workers, not a node."""
    return len(slow.workers) > 1 and (" and " in slow.name or "(" in slow.name)


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:] if words.split(" ")[0] in ("worker", "node", "workers") else words
