"""An empirical distribution of measured durations, from a list or from a file.

Example:
    >>> latency = Empirical(values=(0.1, 0.2, 0.2, 0.5))
    >>> latency.sample(np.array([0.1, 0.3, 0.6, 0.9])).tolist(), latency.mean
    ([0.1, 0.2, 0.2, 0.5], 0.25)
"""

import math
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, ValidationInfo, model_validator

from fred.base.errors import FredError
from fred.base.words import listed
from fred.cluster.latency import Latency, NonNegative, Seconds, Uniforms
from fred.components.input_path import InputPath
from fred.tables import quantities
from fred.tables.content import content
from fred.tables.named_units import split_unit
from fred.tables.opening import opened
from fred.tables.small_tables import read_seconds

_MOST = 100_000  # durations; all of them are stored in every manifest


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
    def _read(cls, options: Any, info: ValidationInfo) -> Any:
        if not isinstance(options, dict) or not options.get("csv"):
            return options
        if options.get("values"):
            raise ValueError("give `values` or `csv`, not both")
        path = InputPath.of(options["csv"], info).located()
        others = {key: value for key, value in options.items() if key not in ("csv", "column")}
        return {**others, "values": _read_column(path, str(options.get("column", "seconds")))}  # self-contained manifest

    @model_validator(mode="after")
    def _some(self) -> "Empirical":
        if not self.values:
            raise ValueError("needs durations: give `values`, or `csv` with a `column`")
        if len(self.values) > _MOST:
            raise ValueError(
                f"{len(self.values):,} durations; expected at most {_MOST:,}: sort them and take one of every "
                f"{-(-len(self.values) // _MOST)}, or use a `trace`, of which a manifest stores only the digest"
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
        file = opened(content(path), column)
        if column not in file.header:
            raise ValueError(f"{path} has no column `{column}`; it has {listed(file.header)}: give one of them as `column`")
        if any(map(quantities.is_date, file.texts(column))):
            raise ValueError(f"{path}: column `{column}` holds dates; expected durations")
        factors = [*(factor for _, factor in split_unit(column, quantities.seconds_in)), quantities.seconds_in(column) or 1.0]
        seconds = read_seconds(file, column, next((factor for factor in factors if factor != 1), 1.0))
        wrong = np.flatnonzero(~((seconds >= 0) & (seconds < np.inf)))
        if len(wrong):
            found = "none" if np.isnan(seconds[wrong[0]]) else f"{seconds[wrong[0]]:g}"
            raise ValueError(f"{file.where(int(wrong[0]))}: expected a duration in column `{column}`, s; found {found}")
    except FredError as error:
        raise ValueError(str(error)) from error
    return seconds.tolist()
