"""TraceML: its data base of telemetry, in which `step_time_samples` has the phases of each step of each rank.

`events_json` has the milliseconds of each phase on each device by the clock of the CPU, and by that of the GPU, which counts if
all phases have it. The whole step is one of the phases, and is left out [traceopt-ai/traceml, `step_time` pipeline].
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from fred.base.errors import FredError
from fred.tables.columns import table_from_columns
from fred.tables.content import Content
from fred.tables.opening import open_database
from fred.traces import long_tables
from fred.traces.cells import Cells
from fred.traces.roles import FileOptions

NAME = "TraceML"
_TABLE, _RANKS, _STEP = "step_time_samples", ("global_rank", "rank"), "step_time"
_CLOCKS = ("gpu_ms", "duration_ms")  # the first that all phases have


def sniff(file: Content) -> bool:
    """Return True for a data base with the table of TraceML.

    Args:
        file: the content of the file.
    """
    return file.kind == "sqlite" and _TABLE.encode() in file.data


def read(file: Content, options: FileOptions) -> Cells:
    """Return the phases of the steps of all ranks. Raises FredError.

    Args:
        file: the content of the data base.
        options: options from the user, of which the columns do not count.
    """
    try:
        with open_database(file.data) as base:
            columns = [row[1] for row in base.execute(f"PRAGMA table_info({_TABLE})")]
            rank = next(name for name in _RANKS if name in columns)
            rows = list(base.execute(f"SELECT step, {rank}, events_json FROM {_TABLE} ORDER BY step, {rank}"))
        phases = [(step, worker, *phase) for step, worker, text in rows for phase in _phases(json.loads(text))]
    except (sqlite3.Error, StopIteration, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise FredError(f"cannot read {file.path} as a data base of TraceML: {error or 'it names no ranks'}") from None
    clock = next((name for name in _CLOCKS if all(clocks.get(name) is not None for *_, clocks in phases)), "")
    if not phases or not clock:
        raise FredError(f"{file.path}: TraceML's `{_TABLE}` has no phases with times; expected such as `forward_time`")
    table = table_from_columns(
        file.path,
        {
            "iteration": [str(step) for step, *_ in phases],
            "worker": [str(worker) for _, worker, *_ in phases],
            "type": [phase for _, _, phase, _ in phases],
            "duration_ms": [float(clocks[clock]) for *_, clocks in phases],
        },
        lambda row: f"{file.path}, step {phases[row][0]} of rank {phases[row][1]}",
    )
    cells = long_tables.read_cells(table, replace(options, columns={}, unit=None, only={}))
    return replace(cells, notes=(f"{NAME}: phases of each step, `{clock}`", *cells.notes))


def _phases(events: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each phase of a step, and its times by clock."""
    for name, devices in events.items():
        phase = name.rpartition(":")[2]
        if phase != _STEP:
            yield from ((phase, clocks) for clocks in devices.values())
