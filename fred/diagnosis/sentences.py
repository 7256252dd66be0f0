"""The causes of lost time in sentences, with the trace's names: slow workers, stalls of all, pauses, changes.

A diagnosis in sentences: first the verdict, its reasons and what to do next; then all the rest.
"""

import math
import textwrap
from collections.abc import Iterator, Sequence

from fred.base.intervals import Ratio
from fred.base.words import percent
from fred.diagnosis.findings import ALL_SLOW, CANNOT_TELL, ENOUGH, LITTLE, QUIET, SAVES, SAVES_LITTLE, Diagnosis, Gain
from fred.diagnosis.slowness import Slow
from fred.diagnosis.spells import Pauses, Stalls
from fred.diagnosis.worker_names import several

LITTLE_LOST = 0.05  # share of the time below which a loss is not explained
_ALONE = 0.3  # share of the loss from which a single round is reported
_FEW_ROUNDS = 10  # in fewer, one round is often a large part


def causes(found: Diagnosis) -> list[str]:
    """Return the causes of lost time in sentences, costliest first; then facts about workers that cost nothing.

    Args:
        found: findings about a trace.

    >>> import numpy as np
    >>> from fred.diagnosis.findings import diagnose
    >>> from fred.traces.trace import Trace
    >>> seconds = np.ones((200, 4))
    >>> seconds[100:, 3] = 3.0
    >>> print(*causes(diagnose(Trace(seconds, ("a", "b", "c", "gpu-d")))), sep="\\n")
    gpu-d is 3.0 times slower from iteration 100 to the end of the record, 56 % of the time: 100 % of the loss goes if it is ...
    """
    return [sentence for _, sentence in sorted(_weighed(found), key=lambda weighed: -weighed[0])]


def share(part: float) -> str:
    """Return a share in percent.

    Args:
        part: share, from 0 to 1; NaN counts as 0.
    >>> share(0.123), share(0.0123), share(math.nan)
    ('12 %', '1.2 %', '0 %')
    """
    if math.isnan(part):
        return "0 %"
    return f"{100 * part:.1f} %" if 0 < part < 0.1 or 0.99 < part < 1 else f"{100 * part:.0f} %"


def capital(words: str) -> str:
    """Return words with a capital at the beginning, unless they begin with a name.

    Args:
        words: beginning of a sentence.
    >>> capital("worker 3"), capital("node 1 is"), capital("gpu-3")
    ('Worker 3', 'Node 1 is', 'gpu-3')
    """
    return words[:1].upper() + words[1:] if words.split(" ")[0] in ("worker", "node", "workers") else words


def _weighed(found: Diagnosis) -> Iterator[tuple[float, str]]:
    """Yield sentences with the share of the time that their causes cost."""
    lost = found.slowness
    for slow in lost.slow:
        yield lost.lost * max(slow.lost, 0.0), _slow(slow, found)
    if lost.stalls:
        yield lost.stalls.share, _stalls(lost.stalls, found)
    for pauses in lost.pauses:
        yield pauses.share * (1 - 1 / pauses.times), _pauses(pauses, found)
    if lost.worst[1] >= _ALONE and lost.rounds >= _FEW_ROUNDS and lost.lost >= LITTLE_LOST:
        alone = f"Iteration {found.trace.step(lost.worst[0])} alone makes up {share(lost.worst[1])} of the loss."
        yield lost.lost * lost.worst[1], alone
    if not lost.slow and not lost.pauses:
        changing = "stands out: the slowest worker changes from round to round"
        yield 0.0, f"No worker or node {changing if lost.lost >= LITTLE_LOST else 'is slow for long'}."
    for change in lost.changes:
        names, verb = several(found.trace, change.workers), "is" if len(change.workers) == 1 else "are"
        how = f"{change.times:.1f} times slower" if change.times > 1 else f"{1 / change.times:.1f} times faster"
        since = f"from iteration {found.trace.step(found.first + change.round)} to the end of the record"
        yield -1.0, f"{capital(names)} {verb} {how} than before {since}."
    if lost.quick:
        names, verb = several(found.trace, lost.quick.workers), "is" if len(lost.quick.workers) == 1 else "are"
        yield -2.0, f"{capital(names)} {verb} {lost.quick.times:.1f} times faster than the others, which costs no time."


def _slow(slow: Slow, found: Diagnosis) -> str:
    trace = found.trace
    if slow.pattern == "always" and 2 * len(slow.workers) == len(trace.workers) > 2:
        others = len(trace.workers) - len(slow.workers)
        goes = f"{share(slow.lost)} of the loss goes if they are as fast"
        return f"There are two kinds: {slow.name} take{_s(slow)} {slow.times:.1f} times as long as the other {others}: {goes}."
    goes = f"{share(slow.lost)} of the loss goes if {'they are' if _are(slow) else 'it is'} repaired"
    return f"{capital(slow.name)} {_pattern(slow, found)}: {goes}."


def _pattern(slow: Slow, found: Diagnosis) -> str:
    verb, step = "are" if _are(slow) else "is", found.trace.step
    if slow.pattern == "drift":
        return f"become{_s(slow)} slower little by little, {slow.times:.1f} times at the end of the record"
    if slow.pattern == "always":
        return f"{verb} always {slow.times:.1f} times slower than the others"
    if slow.pattern == "rarely":
        return f"{verb} {slow.times:.1f} times slower in {share(slow.share)} of the iterations, one by one"
    first, last = slow.spells[0][0], slow.spells[-1][1]
    of_time = f"{share(slow.share)} of the time"
    if len(slow.spells) == 1:
        begins, ends = first > found.first, last < found.trace.iterations
        since = f"from iteration {step(first)} " if begins else ""
        until = f"until iteration {step(last - 1)}" if ends else "to the end of the record"
        return f"{verb} {slow.times:.1f} times slower {since}{until}, {of_time}"
    whole = [end - begin for begin, end in slow.spells if begin > found.first and end < found.trace.iterations]
    lengths = whole or [end - begin for begin, end in slow.spells]
    between = f"{min(lengths)} to {max(lengths)}" if min(lengths) < max(lengths) else f"{max(lengths)}"
    return f"{verb} {slow.times:.1f} times slower in {len(slow.spells)} spells of {between} iterations, {of_time}"


def _stalls(stalls: Stalls, found: Diagnosis) -> str:
    regular = f", every {stalls.period}," if stalls.period else ""
    return (
        f"All workers are slow at once in {len(stalls.rounds)} of {found.rounds} iterations{regular} by a factor of "
        f"{stalls.times[0]:.1f}: {share(stalls.share)} of the time, which is not part of the loss."
    )


def _pauses(pauses: Pauses, found: Diagnosis) -> str:
    everybody = len(pauses.workers) == len(found.trace.workers)
    names = "All workers" if everybody else capital(several(found.trace, pauses.workers))
    verb = "pauses" if len(pauses.workers) == 1 else "pause"
    apart = "not at the same ones, " if pauses.aligned is not None else ""
    return (
        f"{names} {verb} every {pauses.period} iterations, {apart}for {pauses.times:.1f} times the usual time: "
        f"{share(pauses.share)} of the rounds wait for a pause."
    )


def _are(slow: Slow) -> bool:
    """Return True if a sentence treats them as several: workers, not a node."""
    return len(slow.workers) > 1 and (" and " in slow.name or "(" in slow.name)


def _s(slow: Slow) -> str:
    return "" if _are(slow) else "s"


SCREEN = ("Verdict", "Why", "Next")  # headings of the first screen
_LETTERS, _LINES = 71, 12  # of a line of the first screen at 80 columns; lines of the whole screen
_REASONS = 4  # lines of the reasons
_NO_BREAK = "\N{NO-BREAK SPACE}"
_UNLIKE = 0.2  # difference between quarters of the record, in share of time lost, that is reported
_MANY_ROUNDS = 100  # in fewer, the median worker's time may change by chance
_CHANGES = 1.2  # ratio of the median worker's times in two quarters that is reported
_MOST_USED = 0.95  # share of rounds with the same workers that is reported


def sections(found: Diagnosis) -> dict[str, list[str]]:
    """Return the sentences below each heading: those of the first screen, then the rest. None is there twice.

    Args:
        found: findings about a trace.
    >>> import numpy as np
    >>> from fred.diagnosis.findings import diagnose
    >>> from fred.traces.trace import Trace
    >>> seconds = np.tile([1.0, 1.0, 1.0, 3.0], (200, 1))
    >>> screen = sections(diagnose(Trace(seconds, ("a", "b", "c", "gpu-d"))))
    >>> print(*screen["Why"], *screen["Next"], sep="\\n")
    gpu-d is always 3.0 times slower than the others: 100 % of the loss goes if it is repaired.
    Repair gpu-d: +200 %.
    Workers that never wait: +150 % (+150 to +150 %), with stale gradients.
    """
    if doubt := found.doubt:
        return {"Verdict": [f"No verdict. {doubt.reason}"], "Why": [doubt.evidence], "Next": list(doubt.remedies)}
    verdict, reasons, steps = [_loss(found), _cutoff(found)], causes(found), list(_next(found))
    why = _fitting(reasons, _REASONS)
    todo = _fitting(steps, _LINES - sum(len(wrapped(sentence)) for sentence in [*verdict, *why]))
    rest = {
        "What is lost": [*reasons[len(why) :], *_lost(found)],
        "What helps": [*steps[len(todo) :], *_helps(found)],
        "What it costs": list(_costs(found)),
        "How surely": list(_surely(found)),
    }
    screen = dict(zip(SCREEN, (verdict, why, todo), strict=True))
    return screen | {heading: lines for heading, lines in rest.items() if lines}


def gain(found: Ratio) -> str:
    """Return a gain in words.

    Args:
        found: throughput relative to waiting for all.
    >>> import math
    >>> gain(Ratio(1.25, 1.1, 1.4)), gain(Ratio(3.0, 0.0, math.inf)), gain(Ratio(1.0, 1.0, 1.0))
    ('+25 % (+10 to +40 %)', '+200 %', '+0 %')
    """
    if not found.has_interval or found.low == found.high:
        return f"{percent(found.value)} %"
    return f"{percent(found.value)} % ({percent(found.low)} to {percent(found.high)} %)"


def wrapped(sentence: str, letters: int = _LETTERS) -> list[str]:
    """Return the lines of a sentence, none of which begins with a percent sign.

    Args:
        sentence: words of a sentence.
        letters: maximum number of letters of a line.
    >>> wrapped("Waiting loses 9 % of it.", 15)
    ['Waiting loses', '9 % of it.']
    """
    lines = textwrap.wrap(sentence.replace(" %", f"{_NO_BREAK}%"), letters)
    return [line.replace(_NO_BREAK, " ") for line in lines]


def _fitting(sentences: Sequence[str], room: int) -> list[str]:
    """Return the first sentences, at least one, as many as fit into a number of lines."""
    number, lines = 0, 0
    while number < len(sentences) and (lines := lines + len(wrapped(sentences[number]))) <= room:
        number += 1
    return list(sentences[: max(1, number)])


def _loss(found: Diagnosis) -> str:
    lost, workers = found.slowness, len(found.trace.workers)
    long = f"rounds take {lost.slowdown:.2f} times as long as if all were as the median worker"
    return f"Waiting for all {workers} workers loses {share(lost.lost)} of the time: {long}."


def _cutoff(found: Diagnosis) -> str:
    best, workers = found.recommended, len(found.trace.workers)
    excluded = len(best.fairness.excluded)
    without = f", without the data of {excluded} of {workers} workers" if excluded else ""
    told = f"{gain(best.ratio)} gradients per second with {_the(best)}{without}"
    if found.verdict == SAVES:
        return f"A cutoff saves time: {told}."
    if found.verdict == SAVES_LITTLE:
        return f"A cutoff saves little or nothing here: {told}."
    so_far = told.replace(" gradients per second", "")
    return f"Cannot tell yet whether a cutoff saves time; so far {so_far}."


def _next(found: Diagnosis) -> Iterator[str]:
    """Yield what to do next, what gains most first."""
    for each in [each for each in found.gains if each.remedy.kind == "align" and each.ratio.value > 1]:
        period = next(pauses.period for pauses in found.slowness.pauses if f" {pauses.period} " in each.remedy.name)
        how = "Python: gc.disable(), then gc.collect() at the same step"
        yield f"Let all workers pause at once, every {period} iterations ({how}): {gain(each.ratio)}."
    for each in _machines(found):
        name = each.remedy.name.replace(ALL_SLOW, "all that are slow")
        yield f"{name[:1].upper()}{name[1:]}: {gain(each.ratio)}."
    if stalls := found.slowness.stalls:
        when = f"runs every {stalls.period} iterations" if stalls.period else "all workers share"
        yield f"Look for what {when} (checkpoint, evaluation, storage): nothing that drops gradients helps against it."
    if found.verdict == CANNOT_TELL:
        yield _why_not(found)
    if found.slowness.lost >= LITTLE_LOST:
        yield from _without_waiting(found)
    elif not found.slowness.stalls:
        yield "Leave the workers as they are: little time is lost to slow ones."


def _lost(found: Diagnosis) -> Iterator[str]:
    lost = found.slowness
    if lost.slowdown > 1:
        yield f"Workers wait for the slowest {share(lost.waiting)} of their time."
    if len(lost.slow) > 1:
        yield f"All of these together make up {share(lost.together)} of the loss."
    least, most = min(lost.parts), max(lost.parts)
    if most - least > _UNLIKE:
        parts = ", ".join(f"{part:.0%}".replace("%", " %") for part in lost.parts)
        yield f"The record is not homogeneous: its quarters lose {parts} of their time."
    if max(lost.shared_paces) >= _CHANGES * min(lost.shared_paces) and lost.rounds >= _MANY_ROUNDS:
        paces = ", ".join(f"{pace:.3g}" for pace in lost.shared_paces)
        yield f"The median worker's time changes: {paces} s in the quarters of the record. This is not part of the loss."


def _helps(found: Diagnosis) -> Iterator[str]:
    bound = f"all times known in advance, is {percent(found.bound.ratio.value)} %"
    yield f"The upper bound of all that drop gradients, {bound}."
    if found.slowness.lost < LITTLE_LOST:
        yield from _without_waiting(found)


def _without_waiting(found: Diagnosis) -> Iterator[str]:
    """Yield what ways of learning gain in which workers wait less, if it is anything."""
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
        f"With {_the(found.recommended)}, {share(fair.dropped)} of the gradients are dropped; the used ones are worth the "
        f"data of {fair.effective:.1f} of {workers} workers."
    )
    if fair.excluded:
        names = several(trace, fair.excluded)
        number = len(fair.excluded)
        same = f", and takes the same workers in {share(fair.same)} of the rounds" if fair.same >= _MOST_USED else ""
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
    if not found.recommended.ratio.has_interval:
        yield "There are too few rounds for intervals."
    elif spells:
        number = "1 spell" if spells == 1 else f"{spells} spells"
        yield (
            f"In brackets: 95 % intervals of the long run. They depend on the {number} of the record more than on its rounds: "
            f"{share(found.slowness.share)} of the rounds are in spells."
        )
    elif any(slow.spells for slow in found.slowness.slow):
        yield (
            "In brackets: 95 % intervals of the long run. Some worker or node is in a spell all the time, so the cost of a "
            "round has no spells, and they count as single rounds."
        )
    else:
        yield (
            "In brackets: 95 % intervals of the long run, as long as no spell of slowness occurs. The record has none, so "
            f"spells begin in fewer than 1 of {max(1, rounds // 3)} rounds."
        )
    yield from found.trace.warnings


def _why_not(found: Diagnosis) -> str:
    """Return the reason why there is no verdict, and what would give one."""
    have = found.trace.iterations
    if have < ENOUGH:
        why = f"{have} iterations are too few"
    elif found.recommended.ratio.high < LITTLE:
        why = f"{have} iterations without a spell of slowness say little about spells; {QUIET} would do"
    else:
        why = "the interval includes both a gain and none"
    return f"Record about {found.more:,} more iterations for a verdict on a cutoff: {why}."
