"""Comparison of runs with their pin: the first difference, or in another numeric environment the largest one."""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from fred.base.errors import FredError
from fred.outcomes.outcome import Outcome
from fred.results.pins import Pin, PinnedRun, Words, block_bounds, environment_of, evaluations_of, label, read_pin, rows_digest
from fred.results.result import Result
from fred.results.verify import difference_of, lengths, other_environment
from fred.running.execution import execute

_ROUNDING = 1e-6  # of the largest loss: differences of losses near 0


class Comparison(NamedTuple):
    """The result of comparing with a pin.

    Args:
        is_same: True if no run differs.
        text: the differences; if there are none, a remark on another numeric environment, or nothing.
    """

    is_same: bool
    text: str


def compare_with_pin(file: Path, result: Result, words: Words, tolerance: float) -> Comparison:
    """Compare a result with its pin, bit by bit.

    If bits differ and the numeric environment is another one, rows, times and losses may differ from the pinned ones by a
    tolerance; FRED computes the differing runs again, and compares these two runs with each other bit by bit.

    Args:
        file: the pin.
        result: the runs.
        words: parts of messages.
        tolerance: relative difference that is allowed in another numeric environment.

    Raises FredError if there is no pin, if it is damaged, and if bits differ because jax was imported before FRED.

    >>> import fred
    >>> scenario = fred.scenario(
    ...     cluster={"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
    ...     algorithm={"name": "asgd", "learning_rate": 0.1},
    ...     stop={"updates": 4},
    ... )
    >>> from fred.results.pins import write_pin
    >>> file, words = Path("asgd.pin.json"), Words("asgd.pin.json", "make pins", "import it first")
    >>> write_pin(file, fred.run(scenario), words), compare_with_pin(file, fred.run(scenario), words, 0.01)
    (True, Comparison(is_same=True, text=''))
    >>> print(compare_with_pin(file, fred.run(scenario.replace({"stop.updates": 2})), words, 0.01).text)
    1 of 1 runs differs from asgd.pin.json:
    asgd/seed-0: timing differs: recorded 9 rows, now 5; the first 5 are the same
      virtual time: 1 s -> 0.5 s
    numeric environment: the same
    If this is intended: make pins
    """
    old, new = read_pin(file, words), Pin.from_result(result)
    runs = {**old.runs, **new.runs}
    unlike = [name for name in runs if old.runs.get(name) != new.runs.get(name)]
    if not unlike:
        return Comparison(True, "")
    if new.unprepared:
        raise FredError(f"{words.file}: not compared: {words.lateness(new.unprepared)}")
    outcomes = {label(outcome): outcome for outcome in result.outcomes}
    pairs = [_Pair(old.runs[name], new.runs[name], outcomes[name]) for name in unlike if name in old.runs and name in outcomes]
    elsewhere = other_environment(old.numeric, new.numeric)
    differences = [f"{name}: pinned, but not run" for name in old.runs if name not in new.runs]
    differences += [f"{name}: run, but not pinned" for name in new.runs if name not in old.runs]
    differences += _farther(pairs, tolerance) if elsewhere else map(_difference, pairs)
    is_local = new.environment == environment_of()  # not loaded from elsewhere
    if elsewhere and is_local and not differences:
        differences = list(filter(None, (_difference_again(pair.outcome) for pair in pairs)))
    if not differences:
        largest = max(_deviation(pair)[0] for pair in pairs)
        timing = sum(pair.pinned.schedule != pair.now.schedule for pair in pairs)
        remark = (
            f"{words.file} is of another numeric environment, where {len(pairs)} of {len(runs)} runs have other bits ({timing} "
            f"of them other timing); losses, rows and times differ by at most {largest:.2g} (relative; tolerance {tolerance:g})"
            f"{'; two runs here have the same bits' if is_local else ''}:\n{elsewhere}"
        )
        return Comparison(True, remark)
    changed = other_environment(old.environment, new.environment)
    count = f"{len(differences)} of {len(runs)} runs {'differs' if len(differences) == 1 else 'differ'} from {words.file}"
    environment = f"numeric environment: {f'another one{chr(10)}{changed}' if changed else 'the same'}"
    return Comparison(False, "\n".join([f"{count}:", *differences, environment, f"If this is intended: {words.update}"]))


class _Pair(NamedTuple):
    """A run that differs from its pin."""

    pinned: PinnedRun
    now: PinnedRun
    outcome: Outcome


def _difference(pair: _Pair) -> str:
    """Return in which of timing and arithmetic a run differs from its pin, where first, and its time and loss at the end."""
    pinned, now, outcome = pair
    name = label(outcome)
    before, after = ((run.losses.split() or [""])[-1] for run in (pinned, now))
    ends = f"\n  at the end: loss {before} -> {after}" if before != after else ""
    if pinned.schedule != now.schedule:
        times = f"\n  virtual time: {pinned.seconds:.9g} s -> {now.seconds:.9g} s" if pinned.seconds != now.seconds else ""
        return f"{name}: timing differs: {_first_rows(pinned, outcome)}{times}{ends}"
    if pinned.params != now.params:
        return f"{name}: arithmetic differs, timing is the same: {_first_evaluation(pair)}{ends}"
    return f"{name}: metrics differ, digests are the same: {_first_evaluation(pair)}{ends}"


def _first_rows(pinned: PinnedRun, outcome: Outcome) -> str:
    """Return the first block of rows that differs from the pinned one, or else the other number of rows."""
    schedule = outcome.schedule
    for (first, last), block in zip(block_bounds(pinned.rows), pinned.blocks.split(), strict=True):
        if len(schedule) < last:
            return lengths("row", pinned.rows, len(schedule), first)
        if rows_digest(schedule, first, last) != block:
            rows = f"at row {first:,}" if last == first + 1 else f"in rows {first:,} to {last - 1:,}"
            begin, end = (f"{schedule['time_ns'][row] / 1e9:.6g} s" for row in (first, last - 1))
            span = begin if begin == end else f"{begin} to {end}"
            return f"first {rows} ({span} of virtual time)" if outcome.has_clock else f"first {rows}"
    if len(schedule) != pinned.rows:
        return lengths("row", pinned.rows, len(schedule), pinned.rows)
    return "rows are the same, intervals or the end differ"


def _first_evaluation(pair: _Pair) -> str:
    """Return the first evaluation whose loss differs from the pinned one, or those of which one must be the first."""
    pinned, now, outcome = pair
    if pinned.evaluations != now.evaluations:
        return f"recorded {pinned.evaluations} evaluations, now {now.evaluations}"
    before = -1
    for position, old, new in zip(evaluations_of(pinned.evaluations), pinned.losses.split(), now.losses.split(), strict=True):
        if old != new:
            at = f"{position}" if position == before + 1 else f"{before + 1} to {position}"
            updates = int(outcome.metrics["updates"].iloc[position])
            return f"first at evaluation {at}\n  after {updates:,} update{'s' * (updates != 1)}: loss {old} -> {new}"
        before = position
    return "all pinned losses are the same"


def _deviation(pair: _Pair) -> tuple[float, str]:
    """Return the largest relative difference of rows, times and losses, and the quantity that has it, with its values."""
    pinned, now, _ = pair
    if pinned.evaluations != now.evaluations:
        return math.inf, f"recorded {pinned.evaluations} evaluations, now {now.evaluations}"
    losses = dict(zip(evaluations_of(pinned.evaluations), zip(pinned.numbers, now.numbers, strict=True), strict=True))
    least = _ROUNDING * max((abs(old) for old, _ in losses.values() if math.isfinite(old)), default=0.0)
    pairs = {"rows": (pinned.rows, now.rows), "virtual time at the end": (pinned.seconds, now.seconds)}
    pairs |= {f"loss at evaluation {position}": pair for position, pair in losses.items()}
    relative = {name: _relative(*pair, least) for name, pair in pairs.items()}
    worst = max(relative, key=lambda name: relative[name])
    return relative[worst], "{} {:.8g} -> {:.8g}".format(worst, *pairs[worst])


def _relative(old: float, new: float, least: float) -> float:
    """Return the relative difference of two numbers, of which those below `least` count as that large."""
    if old == new or (math.isnan(old) and math.isnan(new)):
        return 0.0
    difference = abs(new - old) / max(abs(old), least) if max(abs(old), least) else math.inf
    return difference if math.isfinite(difference) else math.inf


def _farther(pairs: Iterable[_Pair], tolerance: float) -> Iterator[str]:
    """Yield the runs whose largest deviation is above the tolerance."""
    for pair in pairs:
        relative, quantity = _deviation(pair)
        if relative > tolerance:
            yield f"{label(pair.outcome)}: {quantity}, a relative difference of {relative:.2g} (tolerance {tolerance:g})"


def _difference_again(outcome: Outcome) -> str:
    """Compute a run again, and return the difference from its first time; empty if there is none."""
    difference = difference_of(outcome, execute(outcome.name, outcome.run, outcome.seed))
    return f"{label(outcome)}: two runs in this environment differ from each other: {difference}" if difference else ""
