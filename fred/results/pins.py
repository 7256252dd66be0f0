"""Pins: small files of digests and losses with which tests compare their runs; `pytest_fred.py` is pytest's plugin."""

import hashlib
import json
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
