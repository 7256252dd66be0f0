"""Checks of a unit's files when they are read: someone may have changed them together with all digests."""

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetPydanticSchema
from pydantic_core import CoreSchema, core_schema

from fred.base import inputs
from fred.components.input_path import UnreadError
from fred.outcomes.costs import COLUMNS
from fred.outcomes.job_time import STATES
from fred.outcomes.outcome import Named
from fred.outcomes.spans import KINDS
from fred.schedule.bounds import check_bounds
from fred.schedule.layout import Layout
from fred.schedule.schedule import Schedule
from fred.specification.shape import Run

Whole = Annotated[int, Field(ge=0, lt=2**63)]
Real = Annotated[float, Field(ge=0)]
_COUNTS = ("updates", "gradients")
_MEASURED = ("loss", "error")
_MOST = 1 << 62


class _Strict(BaseModel):
    """JSON read strictly: no text for numbers, no numbers that JSON lacks, no additional keys."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Digests(_Strict):
    """The identity of a run's timing and of its arithmetic (None: no task)."""

    schedule: str
    params: str | None


class _Gradients(_Strict):
    computed: Whole
    applied: Whole
    dropped: Whole
    in_flight: Whole


class _MeanAndMax(_Strict):
    mean: float | None
    max: int | None


class _OfBlock(_Strict):
    block: Whole
    min: int
    mean: float
    median: float
    max: int
    std: float
    count: Whole


class _Ways(_Strict):
    to_workers: Whole
    to_servers: Whole
    between_workers: Whole


class _Copies(_Strict):
    potential: Whole | None
    pushes: Whole | None
    fetches: Whole | None


class _Cost(_Strict):
    total: Real | None
    workers: Real | None
    servers: Real | None
    traffic: Real | None
    electricity: Real | None


class _Failures(_Strict):
    number: Whole
    goodput: Real | None
    seconds_between: Real | None
    time: dict[Literal["training", *STATES], Real | None]  # type: ignore[valid-type]


class _Target(_Strict):
    loss: float | None = None
    error: float | None = None
    gradient_norm: float | None = None
    updates: Whole | None
    seconds: Real | None
    cost: Real | None = None
    energy_kwh: Real | None = None


class Summary(_Strict):
    """A row of summary.json: the result of `summarise`, in its order."""

    name: str
    algorithm: str
    protocol: str
    seed: Whole
    workers: Whole
    updates: Whole
    gradients: _Gradients
    ended_by: Literal["target_loss", "updates", "gradients", "standstill", "seconds"]
    standstill: str | None
    virtual_seconds: Real | None
    throughput: Real | None
    staleness_by_block: list[_OfBlock] | None
    staleness: _MeanAndMax
    staleness_in_gradients: Whole | None
    model_age: _MeanAndMax
    bytes: _Ways
    messages: _Ways
    copies: _Copies
    workers_time: dict[Literal[KINDS], Real | None]  # type: ignore[valid-type]
    cost: _Cost | None = None
    energy_kwh: Real | None = None
    failures: _Failures | None = None  # only if the cluster has any
    loss: float | None
    error: float | None
    perplexity: float | None
    gradient_norm: float | None
    replicas_loss: float | None
    replicas_error: float | None
    diverged: Whole | None
    target: _Target | None
    digests: Digests


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
    found = Schedule.load(file)
    try:
        layout = run.protocol.layout(run.cluster)
    except UnreadError:  # the protocol is the user's own, and was not imported
        layout = Layout(found.replicas, range(found.replicas), found.on_servers, found.blocks)
    check_bounds(found, run.cluster.size, run.cluster.servers, layout)
    return found


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
    return inputs.arrays(file, inputs.ANY_NUMBER)


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
