"""A diagnosis in sentences: the verdict, its reasons and the next steps on the first screen; then all the rest.

The reasons are the causes of lost time, with the trace's names: slow workers, stalls of all, pauses and changes.
"""

import math
import textwrap
from collections.abc import Iterator, Sequence

from fred.base.errors import percent
from fred.base.intervals import Ratio
from fred.diagnosis.findings import (
    ALL_SLOW,
    CANNOT_TELL,
    ENOUGH_ITERATIONS,
    LITTLE_GAIN,
    QUIET,
    SAVES,
    SAVES_LITTLE,
    Diagnosis,
    Gain,
)
from fred.diagnosis.slowness import Slow, name_workers
from fred.diagnosis.spells import Pauses, Stalls

LITTLE_LOSS = 0.05  # share of the time below which a loss is not explained
_LARGE_ROUND = 0.3  # share of the loss from which a single round is reported
_FEW_ROUNDS = 10  # in fewer, one round is often a large part
SCREEN = ("Verdict", "Why", "Next")  # headings of the first screen
_MOST_LETTERS, _LINES = 71, 12  # of a line of the first screen at 80 columns; lines of the whole screen
_REASONS = 4  # lines of the reasons
_NO_BREAK = "\N{NO-BREAK SPACE}"
_UNLIKE = 0.2  # difference between quarters of the record, in share of time lost, that is reported
_MANY_ROUNDS = 100  # in fewer, the median worker's time may change by chance
_CHANGES = 1.2  # ratio of the median worker's times in two quarters that is reported
_MOST_USED = 0.95  # share of rounds with the same workers that is reported


def causes(diagnosis: Diagnosis) -> list[str]:
    """Return the causes of lost time in sentences, costliest first; then facts about workers that cost nothing.

    Args:
        diagnosis: findings about a trace.

    >>> import numpy as np
    >>> from fred.diagnosis.findings import diagnose
    >>> from fred.traces.trace import Trace
    >>> seconds = np.ones((200, 4))
    >>> seconds[100:, 3] = 3.0
    >>> print(*causes(diagnose(Trace(seconds, ("a", "b", "c", "gpu-d")))), sep="\\n")
    gpu-d is 3.0 times slower from iteration 100 to the end of the record, 56 % of the time: 100 % of the loss goes if it is ...
    """
    return [sentence for _, sentence in sorted(_weighed(diagnosis), key=lambda weighed: -weighed[0])]


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


def _weighed(diagnosis: Diagnosis) -> Iterator[tuple[float, str]]:
    """Yield sentences with the share of the time that their causes cost; negative for facts that cost none, which come last."""
    slowness = diagnosis.slowness
    for slow in slowness.slow:
        yield slowness.lost_share * max(slow.loss_share, 0.0), _describe_slow(slow, diagnosis)
    if slowness.stalls:
        yield slowness.stalls.share, _describe_stalls(slowness.stalls, diagnosis)
    for pauses in slowness.pauses:
        yield pauses.share * (1 - 1 / pauses.times), _describe_pauses(pauses, diagnosis)
    if slowness.worst[1] >= _LARGE_ROUND and slowness.rounds >= _FEW_ROUNDS and slowness.lost_share >= LITTLE_LOSS:
        sentence = f"Iteration {diagnosis.trace.step(slowness.worst[0])} alone makes up {share(slowness.worst[1])} of the loss."
        yield slowness.lost_share * slowness.worst[1], sentence
    if not slowness.slow and not slowness.pauses:
        changing = "stands out: the slowest worker changes from round to round"
        yield 0.0, f"No worker or node {changing if slowness.lost_share >= LITTLE_LOSS else 'is slow for long'}."
    for change in slowness.changes:
        names, verb = name_workers(diagnosis.trace, change.workers), "is" if len(change.workers) == 1 else "are"
        rate = f"{change.times:.1f} times slower" if change.times > 1 else f"{1 / change.times:.1f} times faster"
        since = f"from iteration {diagnosis.trace.step(diagnosis.first + change.round)} to the end of the record"
        yield -1.0, f"{capital(names)} {verb} {rate} than before {since}."
    if slowness.quick:
        names, verb = name_workers(diagnosis.trace, slowness.quick.workers), "is" if len(slowness.quick.workers) == 1 else "are"
        yield -2.0, f"{capital(names)} {verb} {slowness.quick.times:.1f} times faster than the others, which costs no time."


def _describe_slow(slow: Slow, diagnosis: Diagnosis) -> str:
    """Return a sentence about slow workers: who they are, how slow, and the part of the loss that they cause."""
    trace = diagnosis.trace
    if slow.pattern == "always" and 2 * len(slow.workers) == len(trace.workers) > 2:
        other_workers = len(trace.workers) - len(slow.workers)
        effect = f"{share(slow.loss_share)} of the loss goes if they are as fast"
        takes = f"{slow.name} take{_verb_ending(slow)} {slow.times:.1f} times as long as the other {other_workers}"
        return f"There are two kinds: {takes}: {effect}."
    effect = f"{share(slow.loss_share)} of the loss goes if {'they are' if _is_plural(slow) else 'it is'} repaired"
    return f"{capital(slow.name)} {_describe_pattern(slow, diagnosis)}: {effect}."


def _describe_pattern(slow: Slow, diagnosis: Diagnosis) -> str:
    """Return the predicate of a sentence: how slow the workers are, and when."""
    verb, step = "are" if _is_plural(slow) else "is", diagnosis.trace.step
    if slow.pattern == "drift":
        return f"become{_verb_ending(slow)} slower little by little, {slow.times:.1f} times at the end of the record"
    if slow.pattern == "always":
        return f"{verb} always {slow.times:.1f} times slower than the others"
    if slow.pattern == "rarely":
        return f"{verb} {slow.times:.1f} times slower in {share(slow.share)} of the iterations, one by one"
    first, end = slow.spells[0][0], slow.spells[-1][1]
    of_time = f"{share(slow.share)} of the time"
    if len(slow.spells) == 1:
        begins_inside, ends_inside = first > diagnosis.first, end < diagnosis.trace.iterations
        since = f"from iteration {step(first)} " if begins_inside else ""
        until = f"until iteration {step(end - 1)}" if ends_inside else "to the end of the record"
        return f"{verb} {slow.times:.1f} times slower {since}{until}, {of_time}"
    # Spells that the record cuts off are longer than they look.
    lengths_inside = [end - begin for begin, end in slow.spells if begin > diagnosis.first and end < diagnosis.trace.iterations]
    lengths = lengths_inside or [end - begin for begin, end in slow.spells]
    length_range = f"{min(lengths)} to {max(lengths)}" if min(lengths) < max(lengths) else f"{max(lengths)}"
    return f"{verb} {slow.times:.1f} times slower in {len(slow.spells)} spells of {length_range} iterations, {of_time}"


def _describe_stalls(stalls: Stalls, diagnosis: Diagnosis) -> str:
    regular = f", every {stalls.period}," if stalls.period else ""
    return (
        f"All workers are slow at once in {len(stalls.rounds)} of {diagnosis.rounds} iterations{regular} by a factor of "
        f"{stalls.times[0]:.1f}: {share(stalls.share)} of the time, which is not part of the loss."
    )


def _describe_pauses(pauses: Pauses, diagnosis: Diagnosis) -> str:
    everybody = len(pauses.workers) == len(diagnosis.trace.workers)
    names = "All workers" if everybody else capital(name_workers(diagnosis.trace, pauses.workers))
    verb = "pauses" if len(pauses.workers) == 1 else "pause"
    addition = "not at the same ones, " if pauses.aligned is not None else ""
    return (
        f"{names} {verb} every {pauses.period} iterations, {addition}for {pauses.times:.1f} times the usual time: "
        f"{share(pauses.share)} of the rounds wait for a pause."
    )


def _is_plural(slow: Slow) -> bool:
    """Return True if a sentence treats them as several: workers, not a node."""
    return len(slow.workers) > 1 and (" and " in slow.name or "(" in slow.name)


def _verb_ending(slow: Slow) -> str:
    return "" if _is_plural(slow) else "s"


def sections(diagnosis: Diagnosis) -> dict[str, list[str]]:
    """Return the sentences below each heading: those of the first screen, then the rest. None is there twice.

    Args:
        diagnosis: findings about a trace.
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
    if doubt := diagnosis.doubt:
        return {"Verdict": [f"No verdict. {doubt.reason}"], "Why": [doubt.evidence], "Next": list(doubt.remedies)}
    verdict = [_describe_loss(diagnosis), _describe_cutoff(diagnosis)]
    reasons, steps = causes(diagnosis), list(_next_steps(diagnosis))
    why = _take_fitting(reasons, _REASONS)
    todo = _take_fitting(steps, _LINES - sum(len(wrapped(sentence)) for sentence in [*verdict, *why]))
    rest = {
        "What is lost": [*reasons[len(why) :], *_describe_loss_details(diagnosis)],
        "What helps": [*steps[len(todo) :], *_describe_bound(diagnosis)],
        "What it costs": list(_describe_costs(diagnosis)),
        "How surely": list(_describe_certainty(diagnosis)),
    }
    screen = dict(zip(SCREEN, (verdict, why, todo), strict=True))
    return screen | {heading: lines for heading, lines in rest.items() if lines}


def gain(ratio: Ratio) -> str:
    """Return a gain in words.

    Args:
        ratio: throughput relative to waiting for all.
    >>> import math
    >>> gain(Ratio(1.25, 1.1, 1.4)), gain(Ratio(3.0, 0.0, math.inf)), gain(Ratio(1.0, 1.0, 1.0))
    ('+25 % (+10 to +40 %)', '+200 %', '+0 %')
    """
    if not ratio.has_interval or ratio.low == ratio.high:
        return f"{percent(ratio.value)} %"
    return f"{percent(ratio.value)} % ({percent(ratio.low)} to {percent(ratio.high)} %)"


def wrapped(sentence: str, letters: int = _MOST_LETTERS) -> list[str]:
    """Return the lines of a sentence, none of which begins with a percent sign.

    Args:
        sentence: words of a sentence.
        letters: maximum number of letters of a line.
    >>> wrapped("Waiting loses 9 % of it.", 15)
    ['Waiting loses', '9 % of it.']
    """
    lines = textwrap.wrap(sentence.replace(" %", f"{_NO_BREAK}%"), letters)
    return [line.replace(_NO_BREAK, " ") for line in lines]


def _take_fitting(sentences: Sequence[str], room: int) -> list[str]:
    """Return the first sentences, at least one, as many as fit into a number of lines."""
    count, lines = 0, 0
    while count < len(sentences) and (lines := lines + len(wrapped(sentences[count]))) <= room:
        count += 1
    return list(sentences[: max(1, count)])


def _describe_loss(diagnosis: Diagnosis) -> str:
    slowness, workers = diagnosis.slowness, len(diagnosis.trace.workers)
    slowdown = f"rounds take {slowness.slowdown:.2f} times as long as if all were as the median worker"
    return f"Waiting for all {workers} workers loses {share(slowness.lost_share)} of the time: {slowdown}."


def _describe_cutoff(diagnosis: Diagnosis) -> str:
    best, workers = diagnosis.recommended, len(diagnosis.trace.workers)
    excluded = len(best.fairness.excluded)  # a number, not the workers
    exclusion = f", without the data of {excluded} of {workers} workers" if excluded else ""
    rate = f"{gain(best.ratio)} gradients per second with {_remedy_phrase(best)}{exclusion}"
    if diagnosis.verdict == SAVES:
        return f"A cutoff saves time: {rate}."
    if diagnosis.verdict == SAVES_LITTLE:
        return f"A cutoff saves little or nothing here: {rate}."
    so_far = rate.replace(" gradients per second", "")
    return f"Cannot tell yet whether a cutoff saves time; so far {so_far}."


def _next_steps(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield what to do next, what gains most first."""
    for option in [option for option in diagnosis.gains if option.remedy.kind == "align" and option.ratio.value > 1]:
        # Only the remedy's name, `pauses every 10 iterations at once`, has the period.
        period = next(pauses.period for pauses in diagnosis.slowness.pauses if f" {pauses.period} " in option.remedy.name)
        hint = "Python: gc.disable(), then gc.collect() at the same step"
        yield f"Let all workers pause at once, every {period} iterations ({hint}): {gain(option.ratio)}."
    for option in _best_of_kinds(diagnosis, "repair", "remove"):
        name = option.remedy.name.replace(ALL_SLOW, "all that are slow")
        yield f"{name[:1].upper()}{name[1:]}: {gain(option.ratio)}."
    if stalls := diagnosis.slowness.stalls:
        when = f"runs every {stalls.period} iterations" if stalls.period else "all workers share"
        yield f"Look for what {when} (checkpoint, evaluation, storage): nothing that drops gradients helps against it."
    if diagnosis.verdict == CANNOT_TELL:
        yield _explain_no_verdict(diagnosis)
    if diagnosis.slowness.lost_share >= LITTLE_LOSS:
        yield from _without_waiting(diagnosis)
    elif not diagnosis.slowness.stalls:
        yield "Leave the workers as they are: little time is lost to slow ones."


def _describe_loss_details(diagnosis: Diagnosis) -> Iterator[str]:
    slowness = diagnosis.slowness
    if slowness.slowdown > 1:
        yield f"Workers wait for the slowest {share(slowness.waiting)} of their time."
    if len(slowness.slow) > 1:
        yield f"All of these together make up {share(slowness.together)} of the loss."
    least, most = min(slowness.parts), max(slowness.parts)
    if most - least > _UNLIKE:
        parts = ", ".join(f"{part:.0%}".replace("%", " %") for part in slowness.parts)
        yield f"The record is not homogeneous: its quarters lose {parts} of their time."
    if max(slowness.shared_paces) >= _CHANGES * min(slowness.shared_paces) and slowness.rounds >= _MANY_ROUNDS:
        paces = ", ".join(f"{pace:.3g}" for pace in slowness.shared_paces)
        yield f"The median worker's time changes: {paces} s in the quarters of the record. This is not part of the loss."


def _describe_bound(diagnosis: Diagnosis) -> Iterator[str]:
    bound = f"all times known in advance, is {percent(diagnosis.bound.ratio.value)} %"
    yield f"The upper bound of all that drop gradients, {bound}."
    if diagnosis.slowness.lost_share < LITTLE_LOSS:
        yield from _without_waiting(diagnosis)


def _without_waiting(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield the gains of local steps and of asynchronous workers, if there are any."""
    for kind, stale in (("local", ""), ("asynchronous", ", with stale gradients")):
        gains = [option for option in diagnosis.gains if option.remedy.kind == kind]
        if gains and (best := max(gains, key=lambda option: option.ratio.value)).ratio.value > 1:
            yield f"{_remedy_phrase(best).capitalize()}: {gain(best.ratio)}{stale}."


def _remedy_phrase(option: Gain) -> str:
    """Return the name of a remedy as a part of a sentence, with its article if it needs one."""
    return {
        "rule": f"the {option.remedy.name}",
        "deadline": f"a {option.remedy.name}",
        "local": f"{option.remedy.name} between two synchronisations",
        "asynchronous": "workers that never wait",
    }.get(option.remedy.kind, option.remedy.name)


def _best_of_kinds(diagnosis: Diagnosis, *kinds: str) -> list[Gain]:
    """Return the remedy of these kinds with the largest gain, if any gains: a list of at most one."""
    gains = [option for option in diagnosis.gains if option.remedy.kind in kinds and option.ratio.value > 1]
    return sorted(gains, key=lambda option: -option.ratio.value)[:1]


def _describe_costs(diagnosis: Diagnosis) -> Iterator[str]:
    fair, trace = diagnosis.recommended.fairness, diagnosis.trace
    workers = len(trace.workers)
    yield (
        f"With {_remedy_phrase(diagnosis.recommended)}, {share(fair.dropped)} of the gradients are dropped; the used ones are "
        f"worth the data of {fair.effective:.1f} of {workers} workers."
    )
    if fair.excluded:
        names = name_workers(trace, fair.excluded)
        repetition = (
            f", and takes the same workers in {share(fair.same_set_share)} of the rounds"
            if fair.same_set_share >= _MOST_USED
            else ""
        )
        yield (
            f"It excludes {len(fair.excluded)} of {workers} workers and their data{repetition}: fewer than 5 % of the "
            f"gradients of {names} are used. The model does not learn what only their data show."
        )
        yield _name_fair_remedies(diagnosis)
    if fair.rare:
        yield f"Fewer than half of the gradients of {name_workers(trace, fair.rare)} are used."


def _name_fair_remedies(diagnosis: Diagnosis) -> str:
    """Return a sentence on the best remedies that keep the data of all.

    At most a repair, which `fair` leaves out because it changes a machine, and three others.
    """
    options = [*_best_of_kinds(diagnosis, "repair"), *diagnosis.fair[:3]]
    if not options:
        return "No other remedy gains time and uses the data of all."
    phrases = [f"{option.remedy.name} ({percent(option.ratio.value)} %)" for option in options]
    return f"With the data of all: {', or '.join(phrases)}."


def _describe_certainty(diagnosis: Diagnosis) -> Iterator[str]:
    spells, rounds = diagnosis.spells, diagnosis.rounds
    if diagnosis.first:
        yield f"All numbers refer to {rounds} rounds; the first {diagnosis.first} iterations only trained the rules."
    else:
        yield f"All numbers refer to {rounds} rounds."
    if not diagnosis.recommended.ratio.has_interval:
        yield "There are too few rounds for intervals."
    elif spells:
        spell_count = "1 spell" if spells == 1 else f"{spells} spells"
        yield (
            f"In brackets: 95 % intervals of the long run. They depend on the {spell_count} of the record more than on its "
            f"rounds: {share(diagnosis.slowness.share)} of the rounds are in spells."
        )
    elif any(slow.spells for slow in diagnosis.slowness.slow):
        yield (
            "In brackets: 95 % intervals of the long run. Some worker or node is in a spell all the time, so the cost of a "
            "round has no spells, and they count as single rounds."
        )
    else:  # by the rule of three: no event in n rounds has a rate below 3 / n, at 95 %
        yield (
            "In brackets: 95 % intervals of the long run, as long as no spell of slowness occurs. The record has none, so "
            f"spells begin in fewer than 1 of {max(1, rounds // 3)} rounds."
        )
    yield from diagnosis.trace.warnings


def _explain_no_verdict(diagnosis: Diagnosis) -> str:
    """Return the reason why there is no verdict, and what would give one."""
    iterations = diagnosis.trace.iterations
    if iterations < ENOUGH_ITERATIONS:
        reason = f"{iterations} iterations are too few"
    elif diagnosis.recommended.ratio.high < LITTLE_GAIN:
        reason = f"{iterations} iterations without a spell of slowness say little about spells; {QUIET} would do"
    else:
        reason = "the interval includes both a gain and none"
    return f"Record about {diagnosis.more_iterations:,} more iterations for a verdict on a cutoff: {reason}."
