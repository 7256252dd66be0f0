"""Step times from recorders inside the training program: FRED's and TraceML.

FRED's recorder (`fred/record.py`): a file for each rank, `seconds` without its waits for others.
A job that is killed leaves ranks with different numbers of steps, of which those count that all ranks completed.

TraceML: its data base of telemetry, in which `step_time_samples` has the phases of each step of each rank.
`events_json` has the milliseconds of each phase on each device by the clock of the CPU, and by that of the GPU, which counts if
all phases have it. The whole step is one of the phases, and is left out [traceopt-ai/traceml, `step_time` pipeline].
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fred.base.errors import FredError
from fred.tables.columns import Labels, table_from_columns
from fred.tables.content import Content
from fred.tables.opening import open_database, open_table
from fred.traces import long_tables
from fred.traces.cells import Cells, LogFormat
from fred.traces.roles import FileOptions

_RECORDED_STEPS_NAME = "FRED's recorder"
_HEADER = "iteration,worker,node,start,seconds,data,wait"


def sniff_recorded_steps(file: Content) -> bool:
    """Return True for a file with the recorder's header.

    Args:
        file: the content of the file.
    """
    return file.head.startswith(_HEADER)


def read_recorded_steps(file: Content, options: FileOptions) -> Cells:
    """Return the times of one rank. Raises FredError.

    Args:
        file: the content of the file.
        options: options from the user.
    """
    table = open_table(file)
    table.header = [name for name in table.header if name in ("iteration", "worker", "node", "seconds")]
    cells = long_tables.read_cells(table, options)
    return replace(
        cells, notes=(f"{_RECORDED_STEPS_NAME}: a rank in each file, its time without waits in `seconds`", *cells.notes)
    )


def drop_incomplete(cells: Cells) -> Cells:
    """Leave out the iterations after the last one that all ranks completed.

    Args:
        cells: the times of all ranks.
    """
    last = np.full(len(cells.worker.names), -1)
    np.maximum.at(last, cells.worker.codes, cells.iteration.codes)
    size = int(last.min()) + 1
    surplus = len(cells.iteration.names) - size
    if surplus == 0 or size == 0:
        return cells
    complete = cells.iteration.codes < size
    return replace(
        cells,
        iteration=Labels(cells.iteration.codes[complete], cells.iteration.names[:size]),
        worker=Labels(cells.worker.codes[complete], cells.worker.names),
        node=cells.node and Labels(cells.node.codes[complete], cells.node.names),
        seconds=cells.seconds[complete],
        row=cells.row[complete],
        notes=(*cells.notes, f"left out, because not all workers completed them: the last {surplus} iterations"),
    )


RECORDED_STEPS = LogFormat(_RECORDED_STEPS_NAME, sniff_recorded_steps, read_recorded_steps)


_TRACEML_NAME = "TraceML"
_TABLE, _RANKS, _STEP = "step_time_samples", ("global_rank", "rank"), "step_time"
_CLOCKS = ("gpu_ms", "duration_ms")  # the first that all phases have


def sniff_traceml(file: Content) -> bool:
    """Return True for a data base with the table of TraceML.

    Args:
        file: the content of the file.
    """
    return file.kind == "sqlite" and _TABLE.encode() in file.data


def read_traceml(file: Content, options: FileOptions) -> Cells:
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
    return replace(cells, notes=(f"{_TRACEML_NAME}: phases of each step, `{clock}`", *cells.notes))


def _phases(events: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each phase of a step, and its times by clock."""
    for name, devices in events.items():
        phase = name.rpartition(":")[2]
        if phase != _STEP:
            yield from ((phase, clocks) for clocks in devices.values())


TRACEML = LogFormat(_TRACEML_NAME, sniff_traceml, read_traceml)
