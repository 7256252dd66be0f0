"""Durations that were measured, each as likely as it came up; from a list or from a file."""

import csv
import math
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, ValidationInfo, model_validator

from fred.timing.latency import Latency, NonNegative, Seconds, Uniforms


class Empirical(Latency):
    """Durations drawn, with replacement, from a list or from one column of a CSV file with a header."""

    values: tuple[NonNegative, ...] = Field((), description="the durations, s; or give `csv`", examples=[[0.1, 0.2, 0.2, 0.5]])
    csv: Path | None = Field(None, description="file with a header line; relative to the scenario file")
    column: str = Field("seconds", description="the column of `csv` that holds the durations, s")

    @model_validator(mode="before")
    @classmethod
    def _read(cls, options: Any, info: ValidationInfo) -> Any:
        if not isinstance(options, dict) or not options.get("csv"):
            return options
        if options.get("values"):
            raise ValueError("give `values` or `csv`, not both")
        path = Path((info.context or {}).get("folder", ".")) / str(options["csv"])
        others = {key: value for key, value in options.items() if key not in ("csv", "column")}
        return {**others, "values": _read_column(path, str(options.get("column", "seconds")))}  # a manifest needs no other file

    @model_validator(mode="after")
    def _not_empty(self) -> "Empirical":
        if not self.values:
            raise ValueError("needs durations: give `values`, or `csv` with a `column`")
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
    """The numbers in one column of a CSV file; ValueError names the file and line of whatever is not a duration."""
    try:
        if path.exists() and not path.is_file():
            raise ValueError(f"cannot read {path}: it is not a file")
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file)
            if (rows.fieldnames or []).count(column) != 1:
                number = "several columns" if column in (rows.fieldnames or ()) else "no column"
                raise ValueError(f"{path} has {number} `{column}`; it has {', '.join(rows.fieldnames or ()) or 'none'}")
            return [_duration(row, column, f"{path}:{rows.line_num}") for row in rows]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def _duration(row: dict[str | Any, Any], column: str, where: str) -> float:
    """The number in a row's column. ValueError for anything else, and for a row of more fields than the header names."""
    if any(row.get(None, ())):
        raise ValueError(f"{where}: found more fields than the header names; decimals are written with a point")
    try:
        seconds = float(row[column] or "")
    except ValueError:
        seconds = float("nan")
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"{where}: expected a duration in seconds, found {row[column]!r}")
    return seconds
