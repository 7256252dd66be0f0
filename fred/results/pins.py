"""Pins: small files of digests and losses with which tests compare their runs; `pytest_fred.py` is pytest's plugin."""

import hashlib
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from fred.base import disk, environment
from fred.base.environment import __version__
from fred.base.errors import FredError, quoted
from fred.outcomes.outcome import Outcome
from fred.results import folder
from fred.results.result import Result
from fred.results.verify import difference_of, lengths, other_environment
from fred.running.execution import execute
from fred.running.stored import Stored
from fred.schedule.schedule import Schedule

FORMAT = 1  # of pins; increased when readers would have to change
_DIGITS = 16  # hexadecimal ones of a digest: enough against chance
_BLOCKS, _LOSSES = 16, 12  # at most, of a run


class PinnedRun(BaseModel):
    """One run with one seed, as its pin has it. Lists are strings, so that each takes one line of the file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    schedule: str  # digest
    rows: NonNegativeInt
    seconds: float  # virtual time at the end, s
    blocks: str  # digests of parts of the rows, which are equally long except the last
    params: str = ""  # digest; empty without a task
    evaluations: NonNegativeInt = 0
    losses: str = ""  # at the first evaluation, the last one, and some in between; float32

    @property
    def numbers(self) -> list[float]:
        """Return the losses."""
        return [float(loss) for loss in self.losses.split()]

    @classmethod
    def from_outcome(cls, outcome: Outcome) -> "PinnedRun":
        """Return what a pin records of an outcome."""
        schedule, metrics = outcome.schedule, outcome.metrics
        blocks = [rows_digest(schedule, first, last) for first, last in block_bounds(len(schedule))]
        pinned = cls(
            schedule=outcome.schedule_digest[:_DIGITS],
            rows=len(schedule),
            seconds=schedule.end_ns / 1e9,
            blocks=" ".join(blocks),
        )
        if outcome.params_digest is None:
            return pinned
        losses = [str(np.float32(metrics["loss"].iloc[i])) for i in evaluations_of(len(metrics))]
        arithmetic = {"params": outcome.params_digest[:_DIGITS], "evaluations": len(metrics), "losses": " ".join(losses)}
        return pinned.model_copy(update=arithmetic)


class Pin(BaseModel):
    """The content of a pin."""

    model_config = ConfigDict(extra="forbid", strict=True)

    format: int
    environment: dict[str, str]
    runs: dict[str, PinnedRun]  # by the folders that units have in a result

    @classmethod
    def from_result(cls, result: Result) -> "Pin":
        """Return the pin of a result. Raises FredError for another object."""
        if not isinstance(result, Result):
            raise FredError(f"expected a result, as `fred.run(scenario)` returns it; found {type(result).__name__}")
        runs = {label(outcome): PinnedRun.from_outcome(outcome) for outcome in result.outcomes}
        return cls(format=FORMAT, environment=environment_of(result), runs=runs)

    @property
    def unprepared(self) -> str:
        """Return the settings of FRED's that jax lacks, because it was imported first; usually none."""
        return ", ".join(self.environment.get("unprepared", "").split())

    @property
    def numeric(self) -> dict[str, str]:
        """Return the numeric environment; FRED's version is not part of it."""
        return {name: fact for name, fact in self.environment.items() if name != "fred"}


class Words(NamedTuple):
    """Parts of messages, which depend on the program that compares.

    Args:
        file: the pin, as its user knows it.
        update: the command that writes it.
        first: the way to import FRED before jax.
    """

    file: str
    update: str
    first: str

    def lateness(self, settings: str) -> str:
        """Return that jax was imported before FRED, and the cure.

        Args:
            settings: what jax lacks.
        """
        return f"jax was imported before FRED, without FRED's {settings}, so bits may differ: {self.first}"


def write_pin(file: Path, result: Result, words: Words) -> bool:
    """Write the pin of a result, atomically, and return True; return False if the file has the same content already.

    Args:
        file: the pin; its folder is made if necessary.
        result: the runs.
        words: parts of messages.

    Raises FredError if jax was imported before FRED, or if the file cannot be written.
    """
    pin = Pin.from_result(result)
    if pin.unprepared:
        raise FredError(f"{words.file}: not written: {words.lateness(pin.unprepared)}")
    content = json.dumps(pin.model_dump(exclude_defaults=True), indent=1).encode() + b"\n"
    if file.is_file() and disk.content(file) == content:
        return False
    disk.write(file, content)
    return True


def read_pin(file: Path, words: Words) -> Pin:
    """Return the pin in a file. Raises FredError if there is none, or other content.

    Args:
        file: the pin.
        words: parts of messages.
    """
    if not file.exists():
        raise FredError(f"there is no pin {words.file}: write it, and commit it: {words.update}")
    restored = f"restore it from version control, or write it again: {words.update}"
    try:
        content = json.loads(disk.text(file))
        if isinstance(content, dict) and content.get("format", FORMAT) != FORMAT:
            raise ValueError(f"its format is {quoted(content['format'])}, and this FRED reads format {FORMAT}")
        pin = Pin.model_validate(content)
        for run in pin.runs.values():
            counts = len(run.blocks.split()), len(run.numbers)
            if counts != (len(block_bounds(run.rows)), len(evaluations_of(run.evaluations))):
                raise ValueError("its lists are not as long as its numbers of rows and evaluations say")
    except ValidationError as error:
        first = error.errors()[0]
        raise FredError(f"{words.file} is no pin: {'.'.join(map(str, first['loc']))}: {first['msg']}; {restored}") from None
    except (FredError, ValueError, RecursionError) as error:
        raise FredError(f"{words.file} is no pin: {error}; {restored}") from None
    return pin


def label(outcome: Outcome) -> str:
    """Return the name of an outcome in a pin, which is its folder in a result.

    Args:
        outcome: the outcome.
    """
    return f"{outcome.name}/seed-{outcome.seed}"


def environment_of(result: Result | None = None) -> dict[str, str]:
    """Return FRED's version and the numeric environment, without empty facts, in which a result was computed.

    Args:
        result: the result; default: that of this process.
    """
    facts, version, first = environment.describe(), __version__, result.outcomes[0] if result else None
    if isinstance(first, Stored):
        manifest, _ = folder.read_manifest(first.folder.parents[1])
        facts, version = manifest.environment, manifest.fred
    return {"fred": version} | {name: fact for name, fact in facts.items() if fact}


def block_bounds(rows: int) -> list[tuple[int, int]]:
    """Return the first row of each block, and the one after its last.

    Args:
        rows: number of rows of the schedule.

    >>> block_bounds(3), block_bounds(100)[-2:]
    ([(0, 1), (1, 2), (2, 3)], [(91, 98), (98, 100)])
    """
    size = -(-rows // _BLOCKS)
    return [(first, min(first + size, rows)) for first in range(0, rows, size or 1)]


def rows_digest(schedule: Schedule, first: int, last: int) -> str:
    """Return 8 digits of the SHA-256 of some rows.

    Args:
        schedule: the schedule.
        first: position of the first row.
        last: position after the last one.
    """
    sha = hashlib.sha256()
    for column in schedule.columns.values():
        sha.update(np.ascontiguousarray(column[first:last], column.dtype.newbyteorder("<")).tobytes())
    return sha.hexdigest()[:8]


def evaluations_of(number: int) -> list[int]:
    """Return the evaluations whose losses are pinned, by their positions.

    Args:
        number: number of evaluations of the run.

    >>> evaluations_of(3), evaluations_of(100)
    ([0, 1, 2], [0, 9, 18, 27, 36, 45, 54, 63, 72, 81, 90, 99])
    """
    count = min(number, _LOSSES)
    return [i * (number - 1) // max(count - 1, 1) for i in range(count)]


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
    elsewhere = other_environment(old.numeric, new.numeric)  # in words; empty if the numeric environment is the same
    differences = [f"{name}: pinned, but not run" for name in old.runs if name not in new.runs]
    differences += [f"{name}: run, but not pinned" for name in new.runs if name not in old.runs]
    differences += _beyond_tolerance(pairs, tolerance) if elsewhere else map(_difference, pairs)
    is_local = new.environment == environment_of()  # not loaded from elsewhere
    if elsewhere and is_local and not differences:
        differences = list(filter(None, (_repeat(pair.outcome) for pair in pairs)))
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
    pinned_loss, loss = ((run.losses.split() or [""])[-1] for run in (pinned, now))
    ends = f"\n  at the end: loss {pinned_loss} -> {loss}" if pinned_loss != loss else ""
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
    previous = -1  # pinned evaluation; those between it and the next one are not pinned
    for position, old, new in zip(evaluations_of(pinned.evaluations), pinned.losses.split(), now.losses.split(), strict=True):
        if old != new:
            numbers = f"{position}" if position == previous + 1 else f"{previous + 1} to {position}"
            updates = int(outcome.metrics["updates"].iloc[position])
            return f"first at evaluation {numbers}\n  after {updates:,} update{'s' * (updates != 1)}: loss {old} -> {new}"
        previous = position
    return "all pinned losses are the same"


def _deviation(pair: _Pair) -> tuple[float, str]:
    """Return the largest relative difference of rows, times and losses, and the quantity that has it, with its values."""
    pinned, now, _ = pair
    if pinned.evaluations != now.evaluations:
        return math.inf, f"recorded {pinned.evaluations} evaluations, now {now.evaluations}"
    losses = dict(zip(evaluations_of(pinned.evaluations), zip(pinned.numbers, now.numbers, strict=True), strict=True))
    least = _ROUNDING * max((abs(old) for old, _ in losses.values() if math.isfinite(old)), default=0.0)
    values = {"rows": (pinned.rows, now.rows), "virtual time at the end": (pinned.seconds, now.seconds)}
    values |= {f"loss at evaluation {position}": old_and_new for position, old_and_new in losses.items()}
    relative = {name: _relative(*old_and_new, least) for name, old_and_new in values.items()}
    worst = max(relative, key=lambda name: relative[name])
    return relative[worst], "{} {:.8g} -> {:.8g}".format(worst, *values[worst])


def _relative(old: float, new: float, least: float) -> float:
    """Return the relative difference of two numbers, of which those below `least` count as that large."""
    if old == new or (math.isnan(old) and math.isnan(new)):
        return 0.0
    difference = abs(new - old) / max(abs(old), least) if max(abs(old), least) else math.inf
    return difference if math.isfinite(difference) else math.inf


def _beyond_tolerance(pairs: Iterable[_Pair], tolerance: float) -> Iterator[str]:
    """Yield the runs whose largest deviation is above the tolerance."""
    for pair in pairs:
        relative, quantity = _deviation(pair)
        if relative > tolerance:
            yield f"{label(pair.outcome)}: {quantity}, a relative difference of {relative:.2g} (tolerance {tolerance:g})"


def _repeat(outcome: Outcome) -> str:
    """Compute a run again, and return the difference from its first time; empty if there is none."""
    difference = difference_of(outcome, execute(outcome.name, outcome.run, outcome.seed))
    return f"{label(outcome)}: two runs in this environment differ from each other: {difference}" if difference else ""
