"""Step times from NVIDIA Nsight Systems, a file for each rank: its SQLite export, or CSV of `nsys stats` with NVTX ranges.

Steps are NVTX ranges with a number, such as `step 12`, `iteration_12` or `ProfilerStep#12`. In the SQLite export, the time of a
step is that in which kernels or copies ran which were launched in it, NCCL's excluded. Of ranges alone, those inside a step
count as its operations if they make up most of it; without them the whole step counts, which includes waiting for other ranks.
Summaries, and kernels without ranges, have no steps: they are refused with the command that
exports them [Nsight Systems User Guide, `nsys stats`, `nsys export`; SQLite Schema Reference].
"""

import re
import sqlite3
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fred.base.errors import FredError, briefly
from fred.tables.columns import Labels, TextFile
from fred.tables.content import Content
from fred.tables.opening import open_database
from fred.tables.quantities import is_count
from fred.tables.text_layout import find_layout
from fred.traces.cells import Cells, LogFormat
from fred.traces.operations import Operations, busy_times
from fred.traces.roles import FileOptions, is_communication

_NSYS_NAME = "Nsight Systems"
_STEP = re.compile(
    r"(?:.*[\s:/#_-])?(?:Profiler)?(?:train_?step|step|iter|iteration|batch|round)\s*[\s:=#_()\[-]*(\d{1,18})(?:\D.*)?",
    re.IGNORECASE,
)
_UNNUMBERED = re.compile(r"(?:.*[\s:/#_-])?(?:train_?step|training_step|step|iter|iteration|train_batch)", re.IGNORECASE)
_RANGES = ("Range", "Name", "NVTX Range")
_SUMMARY = re.compile(r'Time ?\(%\)|"Time"|Total Time', re.IGNORECASE)
_MARK = re.compile(
    r"^[^\w\n]*(?:Start|Projected Start|Orig Start|Name|Range|Kernel Start|Time|API Start)[^\n]*\((?:ns|us|ms|s|sec|%)\)[^\n]*",
    re.MULTILINE,
)
_COLUMNS = re.compile(r"Instances|Num Calls|CorrId|RangeStack|DurNonChild|Orig Duration|NumGPUOps|API Dur|\bLvl\b")
_EXPORT = "`nsys export --type sqlite --output rank0.sqlite rank0.nsys-rep`, and name the files of all ranks"
_UNITS = {"ns": 1e9, "nsec": 1e9, "us": 1e6, "usec": 1e6, "ms": 1e3, "msec": 1e3, "s": 1.0, "sec": 1.0}
_LEAST_INSIDE = 0.8  # share of the steps that ranges inside them make up
_ACTIVITIES = ("KERNEL", "MEMCPY", "MEMSET")
_MARKING = 'mark steps with `torch.cuda.nvtx.range_push(f"step {i}")` and `range_pop()`, record with `--trace cuda,nvtx`'


class _Range(NamedTuple):
    """A range or an activity, on the clock of the file."""

    text: str  # name
    start: float
    end: float
    process: int
    launch: float = 0.0  # when the CPU launched an activity


_Times = dict[int, dict[int, float]]  # by process and step, s


def sniff_nsys(file: Content) -> bool:
    """Return True for a SQLite export of Nsight Systems, or for a table of `nsys stats`.

    Args:
        file: the content of the file.
    """
    if file.kind == "sqlite":
        return b"NVTX_EVENTS" in file.data or b"CUPTI_ACTIVITY_KIND_" in file.data
    if file.head.lstrip()[:1] in ("{", "["):
        return False
    names = "".join(match[0] for match in _MARK.finditer(file.head))
    return _COLUMNS.search(names) is not None


def read_nsys(file: Content, options: FileOptions) -> Cells:
    """Return the step times of one rank. Raises FredError for a file without steps.

    Args:
        file: content of an export.
        options: options from the user; of them counts the name of the file.
    """
    processes, note, parts = (*_read_database(file), []) if file.kind == "sqlite" else _read_ranges(file)
    worker_names = [options.name] if len(processes) == 1 else [f"{options.name}/{process}" for process in processes]
    steps = [step for times in processes.values() for step in times]
    worker = np.repeat(np.arange(len(processes)), [len(times) for times in processes.values()])
    numbers = sorted(set(steps))
    rows = np.arange(len(steps))
    seconds = np.array([seconds for times in processes.values() for seconds in times.values()])
    operations = _operations(parts, processes)
    if operations is not None and operations.start is not None:
        seconds = busy_times(operations.cell, operations.start, operations.start + operations.seconds, len(steps))
    process_notes = (f"{len(processes)} processes, by their numbers",) if len(processes) > 1 else ()
    return Cells(
        iteration=Labels(np.searchsorted(numbers, steps), list(map(str, numbers))),
        worker=Labels(worker, worker_names),
        node=Labels(np.zeros(len(steps), np.int64), [options.name]) if len(processes) > 1 else None,
        seconds=seconds,
        row=rows,
        describe_row=lambda row: f"{file.path}, step {steps[row]}",
        columns={},
        notes=(f"{_NSYS_NAME}: {note}", *process_notes),
        operations=operations,
    )


def _operations(parts: Sequence[tuple[int, _Range]], processes: _Times) -> Operations | None:
    """Return the ranges inside steps as operations, communication left out; None if there are none.

    Args:
        parts: number of the step, and the range, s.
        processes: durations of the steps, s, by process and number.
    """
    keys = [(process, step) for process, times in processes.items() for step in times]
    cells = {key: cell for cell, key in enumerate(keys)}  # in the order of the times in `read_nsys`
    computing = [(cells[part.process, step], part) for step, part in parts if not is_communication(part.text)]
    if not computing:
        return None
    names, kinds = np.unique([part.text for _, part in computing], return_inverse=True)
    start = np.array([part.start for _, part in computing])
    lengths = np.array([part.end for _, part in computing]) - start
    return Operations(np.array([cell for cell, _ in computing]), Labels(kinds, names.tolist()), lengths, start - start.min())


def _steps(ranges: Sequence[_Range]) -> dict[int, dict[int, _Range]]:
    """Return the ranges that are steps, by process and number; steps without numbers are counted."""
    steps = defaultdict[int, dict[int, _Range]](dict)
    for pattern in (_STEP, _UNNUMBERED):
        for span in ranges:
            if match := pattern.fullmatch(span.text):
                process_steps = steps[span.process]
                process_steps.setdefault(int(match[1]) if pattern is _STEP else len(process_steps), span)
        if any(len(process_steps) > 1 for process_steps in steps.values()):
            break
        steps.clear()  # no process has two numbered steps, so names without numbers are tried
    return {process: steps[process] for process in sorted(steps) if len(steps[process]) > 1}


def _read_ranges(file: Content) -> tuple[_Times, str, list[tuple[int, _Range]]]:
    """Return the durations of the ranges that are steps, s, by process and number; a note; and the ranges inside steps."""
    not_csv = f"{file.path} is a table of `nsys stats` for the screen; export it with `--format csv`, or {_EXPORT}"
    try:
        layout = find_layout(file)
    except FredError:
        raise FredError(not_csv) from None
    if layout.delimiter != ",":
        raise FredError(not_csv)
    name = next((name for name in _RANGES if name in layout.names), "")
    matches = (re.fullmatch(r"((?:Projected |Orig )?Duration) ?\((\w+)\)", header) for header in layout.names)
    duration_columns = [match for match in matches if match]
    if any(_SUMMARY.search(header) for header in layout.names) or not name or not duration_columns:
        raise FredError(
            f"{file.path} is a summary of `nsys stats`, which has no steps. Export them: {_EXPORT}; or "
            "`nsys stats --report nvtx_gpu_proj_trace --format csv --output rank0 rank0.nsys-rep`"
        )
    table = TextFile(file)
    column, kind, unit = duration_columns[0].group(0, 1, 2)
    if unit not in _UNITS:
        raise FredError(f"{file.path}: unknown unit `{unit}` of `{column}`; expected ns, us, ms or s")
    texts, durations = table.texts(name), table.columns([], [column])[1][column] / _UNITS[unit]
    start_column = column.replace("Duration", "Start")
    has_starts = start_column in layout.names
    starts = table.columns([], [start_column])[1][start_column] / _UNITS[unit] if has_starts else np.zeros(len(texts))
    processes = table.texts("PID") if "PID" in layout.names else [""] * len(texts)
    numbers = [int(process) if is_count(process) else 0 for process in processes]
    ranges = [_Range(*fields) for fields in zip(texts, starts.tolist(), (starts + durations).tolist(), numbers, strict=True)]
    steps = _steps(ranges)
    if not steps:
        raise FredError(_no_steps_message(file.path, texts))
    seconds = {
        process: {step: span.end - span.start for step, span in sorted(process_steps.items())}
        for process, process_steps in steps.items()
    }
    where = "on the GPU" if kind.startswith("Projected") else "on the CPU"
    parts = _inner_ranges(ranges, steps) if has_starts else []
    total = sum(sum(process_steps.values()) for process_steps in seconds.values())
    if sum(part.end - part.start for _, part in parts) < _LEAST_INSIDE * total:
        return seconds, f"NVTX ranges of steps {where}, waiting for others included", []
    return seconds, f"NVTX ranges {where} inside those of steps", parts


def _inner_ranges(ranges: Sequence[_Range], steps: Mapping[int, Mapping[int, _Range]]) -> list[tuple[int, _Range]]:
    """Return the ranges inside a step of their process, and the number of that step."""
    parts = list[tuple[int, _Range]]()
    for process, process_steps in steps.items():
        numbers = sorted(process_steps, key=lambda step: process_steps[step].start)
        begins = [process_steps[step].start for step in numbers]
        for part in ranges:
            index = bisect_right(begins, part.start) - 1  # of the last step that begins before the part
            if part.process == process and index >= 0 and process_steps[numbers[index]] is not part:
                parts += [(numbers[index], part)] if part.end <= process_steps[numbers[index]].end else []
    return parts


def _read_database(file: Content) -> tuple[_Times, str]:
    """Return the times of steps, from the kernels that were launched in them, by process and number; and a note."""
    try:
        with open_database(file.data) as base:
            tables = {table for (table,) in base.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")}
            strings = dict(base.execute("SELECT id, value FROM StringIds")) if "StringIds" in tables else {}
            ranges = _ranges(base, tables, strings)
            activities = _activities(base, tables, strings)
    except sqlite3.Error as error:
        raise FredError(f"cannot read {file.path} as an export of Nsight Systems: {error}") from None
    steps = _steps(ranges)
    if not steps:
        raise FredError(_no_steps_message(file.path, [span.text for span in ranges]))
    excluded = sorted({activity.text for activity in activities if is_communication(activity.text)})
    seconds, without_kernels = _Times(), list[int]()
    for process, process_steps in steps.items():
        numbers = sorted(process_steps, key=lambda step: process_steps[step].start)
        begin, end = np.array([(process_steps[step].start, process_steps[step].end) for step in numbers]).T
        # The numbers of processes may be missing in one of the tables; with one process, all activities are its own.
        process_activities = [activity for activity in activities if len(steps) == 1 or activity.process == process]
        computing = [activity for activity in process_activities if activity.text not in excluded]
        times = [(activity.start, activity.end, activity.launch) for activity in computing]
        start, stop, launch = np.array(times, np.float64).reshape(-1, 3).T  # stays three arrays without activities
        step_of = np.searchsorted(begin, launch, side="right") - 1
        inside = (step_of >= 0) & (launch <= end[step_of])
        durations = busy_times(step_of[inside], start[inside], stop[inside], len(numbers)) if inside.any() else end - begin
        seconds[process] = dict(zip(numbers, (durations / 1e9).tolist(), strict=True))
        without_kernels += [] if inside.any() else [process]
    if len(without_kernels) == len(steps):
        return seconds, "NVTX ranges of steps, waiting for others included, because no kernels were recorded"
    note = f"; left out as communication: {briefly(excluded)}" if excluded else ""
    note += f"; left out, because no kernels were recorded: {briefly([*map(str, without_kernels)])}" if without_kernels else ""
    with_kernels = {process: times for process, times in seconds.items() if process not in without_kernels}
    return with_kernels, f"time in which kernels and copies of a step ran{note}"


def _ranges(base: sqlite3.Connection, tables: set[str], strings: dict[int, str]) -> list[_Range]:
    """Return the NVTX ranges in the order of their starts."""
    if "NVTX_EVENTS" not in tables:
        return []
    columns = _columns(base, "NVTX_EVENTS")
    text_id, thread = ("textId" if "textId" in columns else "NULL"), ("globalTid" if "globalTid" in columns else "0")
    rows = base.execute(
        f'SELECT text, {text_id}, start, "end", {thread} FROM NVTX_EVENTS WHERE "end" IS NOT NULL ORDER BY start'
    )
    return [_Range(str(text or strings.get(key, "")), start, end, _process(owner)) for text, key, start, end, owner in rows]


def _activities(base: sqlite3.Connection, tables: set[str], strings: dict[int, str]) -> list[_Range]:
    """Return kernels and copies, and when the CPU launched them."""
    activities = list[_Range]()
    # Time and process of each launch, by number and process; and by number and None, for activities of unknown process.
    launched = dict[Any, tuple[float, int]]()
    if "CUPTI_ACTIVITY_KIND_RUNTIME" in tables:
        for number, start, thread in base.execute("SELECT correlationId, start, globalTid FROM CUPTI_ACTIVITY_KIND_RUNTIME"):
            launched[number, _process(thread)] = launched[number, None] = start, _process(thread)
    for kind in _ACTIVITIES:
        table = f"CUPTI_ACTIVITY_KIND_{kind}"
        if table not in tables:
            continue
        columns = _columns(base, table)
        name_column = next((column for column in ("demangledName", "shortName", "name") if column in columns), "NULL")
        link = "correlationId" if "correlationId" in columns else "NULL"
        process = "globalPid" if "globalPid" in columns else "NULL"
        rows = base.execute(f'SELECT {name_column}, start, "end", {link}, {process} FROM {table}')
        for text, start, end, number, owner in rows:
            key = (number, _process(owner) if owner else None)
            launch, launcher = launched.get(key, launched.get((number, None), (start, 0)))
            name = str(strings.get(text, text) or kind)  # the cell is the number of a string, or the text itself
            activities.append(_Range(name, start, end, _process(owner) if owner else launcher, launch))
    return activities


def _process(identity: int | None) -> int:
    """Return the number of the process in an identity of a process or thread: bits 24 to 47."""
    return (identity or 0) >> 24 & 0xFFFFFF


def _columns(base: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in base.execute(f"PRAGMA table_info({table})")]


def _no_steps_message(path: Path, names: Sequence[str]) -> str:
    present = f"it has {briefly(list(dict.fromkeys(names)))}" if names else "it has none"
    return f"{path}: no NVTX ranges are numbered steps, such as `step 12`; {present}: {_MARKING}, then {_EXPORT}"


NSYS = LogFormat(_NSYS_NAME, sniff_nsys, read_nsys)
