"""The causes of lost time in sentences, with the trace's names: slow workers, stalls of all, pauses, changes."""

import math
from collections.abc import Iterator

from fred.diagnosis.findings import Diagnosis
from fred.diagnosis.pauses import Pauses, Stalls
from fred.diagnosis.slowness import Slow
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
