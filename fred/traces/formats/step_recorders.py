"""Step times from recorders inside the training program: FRED's, TraceML, and the timers of Megatron-LM.

FRED's recorder (`fred/record.py`): a file for each rank, `seconds` without its waits for others.
A job that is killed leaves ranks with different numbers of steps, of which those count that all ranks completed.

TraceML: its data base of telemetry, in which `step_time_samples` has the phases of each step of each rank.
`events_json` has the milliseconds of each phase on each device by the clock of the CPU, and by that of the GPU, which counts if
all phases have it. The whole step is one of the phases, and is left out [traceopt-ai/traceml, `step_time` pipeline].

Megatron-LM's timers: the blocks `times across ranks (ms):` that `--timing-log-option all` adds to the log.
With `--timing-log-level 2` the own time of a rank is that of `forward-compute` and `backward-compute`; without these, its whole
`forward-backward` counts, which includes waiting for other ranks. Two further blocks have no table of ranks: `(min, max) time
across ranks`, and the straggler report with its fastest and slowest rank. They are refused with what they do tell
[Megatron-LM, `megatron/core/timers.py` and `README_STRAGGLER.md`].
"""

import json
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fred.base.errors import FredError, listed
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
    last = np.full(len(cells.worker.names), -1)  # iteration of each rank
    np.maximum.at(last, cells.worker.codes, cells.iteration.codes)
    size = int(last.min()) + 1
    surplus = len(cells.iteration.names) - size
    if surplus == 0 or size == 0:
        return cells
    complete = cells.iteration.codes < size
    last_ones = "the last iteration" if surplus == 1 else f"the last {surplus} iterations"
    return replace(
        cells,
        iteration=Labels(cells.iteration.codes[complete], cells.iteration.names[:size]),
        worker=Labels(cells.worker.codes[complete], cells.worker.names),
        node=cells.node and Labels(cells.node.codes[complete], cells.node.names),
        seconds=cells.seconds[complete],
        row=cells.row[complete],
        notes=(*cells.notes, f"left out: {last_ones}, which not all workers completed"),
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
        # Of each phase: step, rank, name, and times by clock.
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


_MEGATRON_NAME = "Megatron-LM timers"
_CURE = "log the times of each rank: `--timing-log-level 2 --timing-log-option all`"
_BLOCK = re.compile(r"(?P<kind>\(min, max\) |max )?times? across ranks \((?P<unit>\w+)\):")
_ITERATION = re.compile(r"\biteration\s*[=:]?\s*(\d{1,18})\s*/")
_TIMER = re.compile(r"(?P<name>[A-Za-z][\w/-]*)\s*\.*:\s*(?:\((?P<least>\d+(?:\.\d*)?), (?P<most>\d+(?:\.\d*)?)\))?\s*$")
_RANK = re.compile(r"\brank\s+(\d{1,9}):\s+(\d+(?:\.\d*)?)\s*$")
_REPORT = re.compile(r"MnRtt/Rnk: (\d+(?:\.\d*)?)ms/(\d+) \| MxRtt/Rnk: (\d+(?:\.\d*)?)ms/(\d+)")
_MARK = re.compile(rb"\btimes across ranks \(|M[nx]Rtt/Rnk: |time across ranks \(ms\):\s*\n[^\n]*\b(?:forward|backward)")
_COMPUTE_TIMERS, _STEP_TIMERS = ("forward-compute", "backward-compute"), ("forward-backward", "optimizer")


def sniff_megatron(file: Content) -> bool:
    """Return True for a log with timers across ranks, or with straggler reports.

    Args:
        file: the content of the file.
    """
    is_likely = any(mark in file.data for mark in (b"across ranks (", b"Rtt/Rnk: "))  # a pattern is slow in large files
    return file.kind == "text" and is_likely and _MARK.search(file.data) is not None


def read_megatron(file: Content, options: FileOptions) -> Cells:
    """Return the times of all ranks. Raises FredError, also for a log that does not have them.

    Args:
        file: the content of the log.
        options: options from the user.
    """
    times, unit = _times(file)
    if not times:
        raise FredError(_describe_without_ranks(file))
    timers = {timer for _, _, timer in times}
    groups = (_COMPUTE_TIMERS, _STEP_TIMERS, _STEP_TIMERS[:1])  # the first that is complete counts, or else all timers
    timers_used = next((group for group in groups if timers.issuperset(group)), tuple(sorted(timers)))
    sums, lines = defaultdict[tuple[int, int], list[float]](list), dict[tuple[int, int], int]()
    for (iteration, rank, timer), (value, line) in times.items():
        if timer in timers_used:
            sums[iteration, rank].append(value)
            lines[iteration, rank] = line
    keys = [key for key, values in sums.items() if len(values) == len(timers_used)]  # with all timers
    columns = {
        "iteration": [iteration for iteration, _ in keys],
        "rank": [rank for _, rank in keys],
        "time": [f"{sum(sums[key])!r} {unit}" for key in keys],
    }
    table = table_from_columns(file.path, columns, lambda row: f"{file.path}:{lines[keys[row]]}")
    cells = long_tables.read_cells(table, replace(options, columns={}, unit=None))
    waiting = "" if timers_used == _COMPUTE_TIMERS else ", waiting for others included; `--timing-log-level 2` separates it"
    return replace(cells, notes=(f"{_MEGATRON_NAME}: sum of {listed(timers_used)}{waiting}",))


def _times(file: Content) -> tuple[dict[tuple[int, int, str], tuple[float, int]], str]:
    """Return time and line by iteration, rank and timer, and the unit of the times.

    A block has the name of a timer in one line, and below it a line for each rank. An earlier line names the iteration.
    """
    times, unit = dict[tuple[int, int, str], tuple[float, int]](), "ms"
    iteration, timer, is_inside = -1, "", False  # is_inside: in a block with ranks, not one of `(min, max)`
    for line, text in enumerate(file.text.splitlines(), 1):
        if match := _ITERATION.search(text):
            iteration, is_inside = int(match[1]), False
        elif match := _BLOCK.search(text):
            is_inside, timer, unit = not match["kind"], "", match["unit"]
        elif is_inside and (match := _RANK.search(text)):
            if iteration >= 0 and timer:
                times[iteration, int(match[1]), timer] = float(match[2]), line
        elif is_inside and (match := _TIMER.search(text)):
            timer = match["name"]
    return times, unit


def _describe_without_ranks(file: Content) -> str:
    """Describe what a log without the times of all ranks tells, and how to record them."""
    if reports := _REPORT.findall(file.text):
        (slowest, count), *_ = Counter(rank for *_, rank in reports).most_common(1)
        factor = sum(float(most) for _, _, most, _ in reports) / max(sum(float(least) for least, *_ in reports), 1e-9)
        often = f"rank {slowest} is the slowest in {count} of {len(reports)}"
        return (
            f"{file.path} has Megatron-LM's straggler reports, with the fastest and the slowest rank only: {often}, and it "
            f"takes {factor:.3g} times as long as the fastest. For what a remedy gains, {_CURE}"
        )
    ratios = dict[str, list[float]]()  # longest / least time of each block, by timer
    is_inside = False
    for text in file.text.splitlines():
        if match := _BLOCK.search(text):
            is_inside = bool(match["kind"])
        elif is_inside and (match := _TIMER.search(text)) and match["most"] and float(match["least"]) > 0:
            ratios.setdefault(match["name"], []).append(float(match["most"]) / float(match["least"]))
    timer = next((name for name in ("forward-compute", "backward-compute", "forward-backward") if name in ratios), "")
    slowness = f": in `{timer}` the slowest takes {sum(ratios[timer]) / len(ratios[timer]):.3g} times as long" if timer else ""
    return f"{file.path} has the least and the longest time of Megatron-LM's timers, not that of each rank{slowness}; {_CURE}"


MEGATRON = LogFormat(_MEGATRON_NAME, sniff_megatron, read_megatron)
