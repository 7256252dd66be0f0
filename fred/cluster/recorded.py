"""Recorded compute times. Unlike independent draws, they keep what makes a cluster's stragglers predictable.

Blocks of rows are drawn circularly [Politis, Romano 1992, "A circular block-resampling procedure for stationary data"], so
that every row is equally likely.
"""

from functools import cached_property, lru_cache
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, model_validator

from fred.base import streams
from fred.base.errors import FredError
from fred.cluster.latency import Latency, Seconds, Uniforms
from fred.cluster.measured import Empirical
from fred.components.component import Count
from fred.components.input_path import InputPath, UnreadError
from fred.traces.reading import EXAMPLE, Reading
from fred.traces.trace import Trace


class TraceFile(InputPath):
    """The path of a trace, or the name of the one that comes with FRED."""

    words: ClassVar[tuple[str, ...]] = (EXAMPLE,)


class RecordedTrace(Reading, Latency):
    """A recorded trace: the i-th worker's k-th gradient takes the time of the trace's i-th worker in one row of the trace."""

    file: TraceFile = Field(
        description="CSV or Parquet file of the trace, relative to the scenario file; `example`: the one that comes with FRED",
        examples=[EXAMPLE],
    )
    more: tuple[TraceFile, ...] = Field(default=(), description="further files of the trace, such as one for each node or day")
    digest: str = Field(default="", description="SHA-256 of the trace's times; filled in, so that a manifest detects changes")
    rows: Literal["cycled", "resampled", "block"] = Field(
        default="cycled",
        description="use of the trace's rows: in order and repeated, drawn one by one, or drawn in blocks",
    )
    block: Count | None = Field(default=None, description="length of a block, in rows")
    workers: Literal["refuse", "cycled"] = Field(
        default="refuse",
        description="`cycled`: fewer workers than in the trace take its first ones, more start over with the first",
        examples=["cycled"],
    )

    @model_validator(mode="after")
    def _as_recorded(self) -> "RecordedTrace":
        if (self.block is None) == (self.rows == "block"):
            raise ValueError("give `block`, its length, with `rows: block`, and only then")
        try:
            trace = self.trace
        except UnreadError:
            raise
        except FredError as error:
            raise ValueError(str(error)) from error
        if (self.block or 1) > trace.iterations:
            raise ValueError(f"`block` ({self.block}) must not exceed the trace's {trace.iterations} iterations")
        object.__setattr__(self, "digest", trace.digest)  # fills in a blank, so the frozen latency stays the same
        return self

    @cached_property
    def trace(self) -> Trace:
        """Return the trace in the file. Raises FredError, also if it differs from the recorded digest."""
        options = {name: getattr(self, name) for name in Reading.model_fields}
        paths = tuple(file.located() for file in (self.file, *self.more))
        trace = _read(Reading.model_validate(options), paths, tuple(map(_state, paths)))
        if self.digest not in ("", trace.digest):
            raise FredError(
                f"{trace.source} does not hold the times that were recorded: its digest is {trace.digest}, not {self.digest}. "
                "Bring the old file back, or leave out `digest` to take the new one"
            )
        return trace

    def check(self, members: int) -> None:
        if self.workers == "refuse" and members != len(self.trace.workers):
            raise ValueError(
                f"{self.file} has {len(self.trace.workers)} workers, but {members} take their times: change the number, or "
                "set `workers: cycled`, by which fewer take the first ones, and more start over with the first"
            )

    def draws(self, seed: int, purpose: str, members: ArrayLike, ranks: ArrayLike, position: int, size: int) -> Seconds:
        """Return, by rank, the worker's times in the rows at these positions, which are the same for all workers."""
        columns = np.asarray(ranks) % len(self.trace.workers)
        return self.trace.seconds[self._rows(seed, f"{purpose} rows", position, size), columns[..., None]]

    def doubts(self) -> tuple[str, ...]:
        try:
            return tuple(f"{self.file}: {warning}" for warning in self.trace.warnings)
        except UnreadError:  # a result is read, which needs none of its inputs
            return ()

    def of_member(self, rank: int) -> Latency:
        """Return the distribution of the times of the trace's worker with this rank, so that fast and slow ones differ."""
        return self._of_workers[rank % len(self.trace.workers)]

    @cached_property
    def _of_workers(self) -> list[Empirical]:
        return [Empirical.model_construct(values=tuple(column)) for column in self.trace.seconds.T.tolist()]

    def _rows(self, seed: int, purpose: str, position: int, size: int) -> NDArray[np.int64]:
        """Return the rows of the trace, in the order of use."""
        iterations, positions = self.trace.iterations, position + np.arange(size)
        if self.rows == "cycled":
            return positions % iterations
        length = self.block or 1
        blocks = positions // length
        drawn = streams.uniforms(seed, purpose, 0, int(blocks[0]), int(blocks[-1] - blocks[0]) + 1)
        starts = (drawn * iterations).astype(np.int64)
        return (starts[blocks - blocks[0]] + positions % length) % iterations

    def sample(self, u: Uniforms) -> Seconds:
        """Return any of the times, whatever the worker or row: the marginal distribution of the trace."""
        return self._sorted[(u * len(self._sorted)).astype(np.intp)]

    @cached_property
    def _sorted(self) -> Seconds:
        return np.sort(self.trace.seconds, axis=None)

    @property
    def mean(self) -> float:
        return float(np.mean(self.trace.seconds))


def _state(path: Path) -> tuple[int, int]:
    """Return a stamp that changes when a file is written again."""
    try:
        found = path.stat()
        return found.st_mtime_ns, found.st_size
    except OSError:  # reading the file reports the reason
        return 0, 0


@lru_cache(maxsize=8)
def _read(reading: Reading, paths: tuple[Path, ...], states: tuple[tuple[int, int], ...]) -> Trace:
    """Read the files, once for all runs of a scenario."""
    return reading.read(paths)
