"""Checks of a unit's files when they are read: someone may have changed them together with all digests."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import GetCoreSchemaHandler, GetPydanticSchema
from pydantic_core import CoreSchema, core_schema

from fred.base import disk
from fred.cluster.costs import COLUMNS
from fred.components.input_path import UnreadError
from fred.outcomes.outcome import Named
from fred.schedule.bounds import check_bounds
from fred.schedule.layout import Layout
from fred.schedule.schedule import Schedule
from fred.specification.shape import Run
from fred.specification.summary import Summary

_COUNTS = ("updates", "gradients")
_MEASURED = ("loss", "error")
_MOST = 1 << 62


def _as_it_was(source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
    """Return a schema that checks a mapping as a `Summary`, but leaves it a mapping."""
    back = core_schema.plain_serializer_function_ser_schema(lambda row: row)
    return core_schema.no_info_after_validator_function(
        lambda row: row.model_dump(exclude_unset=True), handler(Summary), serialization=back
    )


Row = Annotated[dict[str, Any], GetPydanticSchema(_as_it_was)]


def schedule(file: Path, run: Run) -> Schedule:
    """Return the schedule in a file. Raises ValueError or a similar error if no such run can have written it.

    Args:
        file: file of the rows; intervals have their own file.
        run: its cluster and protocol determine the valid content.
    """
    loaded = Schedule.load(file)
    try:
        layout = run.protocol.layout(run.cluster)
    except UnreadError:  # the protocol is the user's own, and was not imported
        layout = Layout(loaded.replicas, range(loaded.replicas), loaded.on_servers, loaded.blocks)
    check_bounds(loaded, run.cluster.size, run.cluster.servers, layout)
    return loaded


def metrics(file: Path, run: Run) -> pd.DataFrame:
    """Return the evaluations in a file. Raises ValueError or a similar error if no such run can have written them.

    Args:
        file: a table.
        run: its task and options determine the columns.
    """
    frame = pd.read_parquet(file)
    norm = ("gradient_norm",) if run.evaluate.measures_gradient_norm else ()
    prices = run.cluster.prices
    spent = () if prices is None else COLUMNS if prices.have_power else COLUMNS[:1]
    _check(frame, _COUNTS, ("virtual_seconds", *(_MEASURED if run.task else ()), *norm, *spent))
    if frame.empty:
        raise ValueError("it has no rows")
    seconds = frame["virtual_seconds"]
    if _has_clock(run, seconds) and not (np.isfinite(seconds).all() and (np.diff(seconds, prepend=0.0) >= 0).all()):
        raise ValueError("column `virtual_seconds` does not hold times in order")
    return frame


def _has_clock(run: Run, seconds: pd.Series) -> bool:
    try:
        return run.protocol.has_clock
    except UnreadError:
        return bool(seconds.notna().any())


def run_times(file: Path, run: Run) -> pd.DataFrame:
    """Return the gradients' compute times in a file. Raises ValueError or a similar error if no such run can have written them.

    Args:
        file: a table.
        run: its cluster determines the workers.
    """
    frame = pd.read_parquet(file)
    _check(frame, ("iteration", "worker", "node"), ("seconds",))
    if (frame["worker"] >= run.cluster.size).any() or not np.isfinite(frame["seconds"]).all():
        raise ValueError(f"it does not hold times of workers 0 to {run.cluster.size - 1}")
    return frame


def params(file: Path, run: Run) -> Named:
    """Return the parameters in a file. Raises FredError for anything except numbers."""
    return disk.arrays(file, disk.ANY_NUMBER)


def _check(frame: pd.DataFrame, counts: tuple[str, ...], numbers: tuple[str, ...]) -> None:
    """Raise ValueError unless a table has these columns, and only numeric ones."""
    for name in (*counts, *numbers, *frame):
        if name not in frame:
            raise ValueError(f"it has no column `{name}`")
        kind = frame[name].dtype
        if kind != np.int64 and (kind != np.float64 or name in counts):
            raise ValueError(f"column `{name}` holds {kind}; expected {'int64' if name in counts else 'numbers'}")
        if name in counts and not frame[name].between(0, _MOST).all():
            raise ValueError(f"column `{name}` does not hold counts")
