"""Recorded times: distributions of measured durations, traces of compute times, and the date at which a record begins.

- `Empirical` draws independently from a list or a file.
- `RecordedTrace` takes whole rows of a trace. Unlike independent draws, they keep what makes a cluster's stragglers
  predictable. Blocks of rows are drawn circularly [Politis, Romano 1992, "A circular block-resampling procedure for
  stationary data"], so that every row is equally likely.
- `Dated` has the option `from`: the date at which a run begins in a record with dates.

Example:
    >>> latency = Empirical(values=(0.1, 0.2, 0.2, 0.5))
    >>> latency.sample(np.array([0.1, 0.3, 0.6, 0.9])).tolist(), latency.mean
    ([0.1, 0.2, 0.2, 0.5], 0.25)
"""

import math
from collections.abc import Mapping
from datetime import datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, TypeAdapter, ValidationInfo, WithJsonSchema, create_model, model_validator

from fred.base import numerics
from fred.base.errors import FredError, listed
from fred.cluster.latency import Latency, NonNegative, Seconds, Uniforms
from fred.components.component import Component, Count
from fred.components.input_path import InputPath, UnreadError, file_instead
from fred.tables import quantities
from fred.tables.content import read_content
from fred.tables.opening import open_table
from fred.tables.quantities import split_unit
from fred.tables.small_tables import read_seconds
from fred.traces.reading import EXAMPLE, Reading
from fred.traces.trace import Trace

_MOST_DURATIONS = 100_000  # all of them are stored in every manifest
_DATE = TypeAdapter(datetime)
_BEGIN = Field(
    default=None,
    exclude=True,  # a manifest has the times in s
    description="date at which the run begins in a file with dates, such as 2026-02-01 or 2026-02-01T10:00:00Z; absent: the "
    "first in the file",
)
_Begin = Annotated[datetime, WithJsonSchema({"type": "string"})]


class Empirical(Latency):
    """An empirical distribution: draws with replacement from a list or from one column of a CSV file with a header."""

    values: tuple[NonNegative, ...] = Field(
        default=(), description="durations, s; or give `csv`", examples=[[0.1, 0.2, 0.2, 0.5]]
    )
    csv: InputPath | None = Field(default=None, description="table with a header line, relative to the scenario file")
    column: str = Field(
        default="seconds",
        description="column of `csv` with the durations: s, or the unit in its name or cells, as in `delay_ms`",
    )

    @model_validator(mode="before")
    @classmethod
    def _read_csv(cls, options: Any, info: ValidationInfo) -> Any:
        path = file_instead(options, info, "csv", "values")
        if path is None:
            return options
        other_options = {key: value for key, value in options.items() if key not in ("csv", "column")}
        # With the values instead of the file, a manifest is complete without it.
        return {**other_options, "values": _read_column(path, str(options.get("column", "seconds")))}

    @model_validator(mode="after")
    def _check_values(self) -> "Empirical":
        if not self.values:
            raise ValueError("needs durations: give `values`, or `csv` with a `column`")
        if len(self.values) > _MOST_DURATIONS:
            raise ValueError(
                f"{len(self.values):,} durations; expected at most {_MOST_DURATIONS:,}: sort them and take one of every "
                f"{-(-len(self.values) // _MOST_DURATIONS)}, or use a `trace`, of which a manifest stores only the digest"
            )
        return self

    def sample(self, u: Uniforms) -> Seconds:
        return self._durations[(u * len(self.values)).astype(np.intp)]

    @cached_property
    def _durations(self) -> Seconds:
        return np.asarray(self.values)

    @property
    def mean(self) -> float:
        return math.fsum(self.values) / len(self.values)


def _read_column(path: Path, column: str) -> list[float]:
    """Return the numbers in one column of a CSV file. Raises ValueError with file and line of an invalid duration."""
    try:
        file = open_table(read_content(path), column)
        if column not in file.header:
            raise ValueError(f"{path} has no column `{column}`; it has {listed(file.header)}: give one of them as `column`")
        if any(map(quantities.is_date, file.texts(column))):
            raise ValueError(f"{path}: column `{column}` holds dates; expected durations")
        # The unit ends the name, as in `delay_ms`, or is the whole name, as in `ms`; 1 stands for s, and for no unit.
        factors = [*(factor for _, factor in split_unit(column, quantities.seconds_in)), quantities.seconds_in(column) or 1.0]
        factor = next((factor for factor in factors if factor != 1), 1.0)
        seconds = read_seconds(file, column, factor)
        invalid = np.flatnonzero(~((seconds >= 0) & (seconds < np.inf)))
        if len(invalid):
            value = "none" if np.isnan(seconds[invalid[0]]) else f"{seconds[invalid[0]]:g}"
            raise ValueError(
                f"{file.describe_row(int(invalid[0]))}: expected a duration in column `{column}`, s; found {value}"
            )
    except FredError as error:
        raise ValueError(str(error)) from error
    return seconds.tolist()


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
        trace = _read_trace(Reading.model_validate(options), paths, tuple(map(_state, paths)))
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
        """Return, by rank, the worker's times in the rows at these positions, s; the rows are the same for all workers."""
        columns = np.asarray(ranks) % len(self.trace.workers)
        return self.trace.seconds[self._rows(seed, f"{purpose} rows", position, size), columns[..., None]]

    def doubts(self) -> tuple[str, ...]:
        try:
            return tuple(f"{self.file}: {warning}" for warning in self.trace.warnings)
        except UnreadError:  # a result is read, which needs none of its inputs
            return ()

    def of_member(self, rank: int) -> Latency:
        """Return the distribution of the times of the trace's worker with this rank, so that fast and slow ones differ."""
        return self._worker_distributions[rank % len(self.trace.workers)]

    @cached_property
    def _worker_distributions(self) -> list[Empirical]:
        return [Empirical.model_construct(values=tuple(column)) for column in self.trace.seconds.T.tolist()]

    def _rows(self, seed: int, purpose: str, position: int, size: int) -> NDArray[np.int64]:
        """Return the row of the trace that is used at each of `size` positions: [size]."""
        iterations, positions = self.trace.iterations, position + np.arange(size)
        if self.rows == "cycled":
            return positions % iterations
        length = self.block or 1  # "resampled" rows are blocks of one
        blocks = positions // length
        first_block = int(blocks[0])
        draws = numerics.uniforms(seed, purpose, 0, first_block, int(blocks[-1] - blocks[0]) + 1)
        starts = (draws * iterations).astype(np.int64)  # first row of each block
        return (starts[blocks - first_block] + positions % length) % iterations

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
        status = path.stat()
        return status.st_mtime_ns, status.st_size
    except OSError:  # reading the file reports the reason
        return 0, 0


@lru_cache(maxsize=8)
def _read_trace(reading: Reading, paths: tuple[Path, ...], states: tuple[tuple[int, int], ...]) -> Trace:
    """Read the files, once for all runs of a scenario, and again if their `states` have changed."""
    return reading.read(paths)


if TYPE_CHECKING:

    class Dated(Component):
        """Options of which a file may have dates."""
else:  # a class statement cannot have a field `from`
    Dated = create_model("Dated", __base__=Component, __module__=__name__, **{"from": (_Begin | None, _BEGIN)})
    Dated.__doc__ = "Options of which a file may have dates."


def begin_of(options: Mapping[str, Any]) -> datetime | None:
    """Return the option `from`. Raises ValueError for a value that is not a date.

    Args:
        options: options of a part of a scenario.

    >>> begin_of({"from": "2026-02-01"}), begin_of({})
    (datetime.datetime(2026, 2, 1, 0, 0), None)
    """
    value = options.get("from")
    try:
        return None if value is None else _DATE.validate_python(value)
    except ValueError:
        raise ValueError(f"`from` is {value!r}; expected a date, such as 2026-02-01 or 2026-02-01T10:00:00Z") from None


def check_has_file(options: Mapping[str, Any], key: str) -> None:
    """Raise ValueError for a `from` without a file whose dates it refers to.

    Args:
        options: options of a part of a scenario.
        key: option that names the file.

    >>> check_has_file({"from": "2026-02-01", "file": "failures.csv"}, "file")
    """
    if options.get("from") is not None and not isinstance(options.get(key), str | Path):
        raise ValueError(f"`from` is the date at which the run begins in a file; give the file as `{key}`, or leave `from` out")
