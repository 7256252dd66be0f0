"""Step times from trackers of experiments: TensorBoard, Weights & Biases, and Ray.

TensorBoard: scalars exported as CSV (`Wall time,Step,Value`), or the event files themselves.
Each file is of one run, which is a worker. The tag of the metric is in the name of an exported file. Event files hold
messages that github.com/tensorflow/tensorboard defines in tensorboard/compat/proto (event, summary, tensor).

Weights & Biases: the CSV of a chart, with a column for each run; and a run's history, from its API or its JSON lines.
A chart's export also has columns of the smallest and the largest values, which are no workers. A history has rows without
the step time, logged by other calls; its `_runtime` and `_timestamp` are moments.

Ray Train and Tune: a worker's or trial's `progress.csv` or `result.json`, with a row for each report.
`time_this_iter_s` is the time between two reports; `time_total_s` and `timestamp` grow and are no durations.
"""

import re
import struct
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fred.base.errors import FredError, listed
from fred.tables.columns import ArrowFile, File, table_from_columns
from fred.tables.content import Content
from fred.tables.opening import open_table
from fred.tables.text_layout import RECORDING_CURE
from fred.traces import long_tables
from fred.traces.cells import Cells, LogFormat
from fred.traces.roles import FILE, FileOptions, Role, UnclearTraceError, is_metric, is_rate, is_time

_HEADER = ["Wall time", "Step", "Value"]
_FILE = re.compile(r"(?:run-)?(?P<run>.*?)[-_]tag-(?P<tag>.*)", re.DOTALL)
_EVENTS = ".tfevents."
_TENSORBOARD_STEP, _SUMMARY = 2, 5  # fields of an event
_TAG, _SIMPLE, _TENSOR = 1, 2, 8  # fields of a summary's value
_KIND, _CONTENT = 1, 4  # fields of a tensor
_ELEMENTS: dict[int | bytes, tuple[str, int]] = {1: ("<f", 5), 2: ("<d", 6)}  # by kind: form, and field of packed numbers

Value = int | bytes
Fields = dict[int, Value]


def sniff_tensorboard(file: Content) -> bool:
    """Return True for an exported scalar, and for an event file.

    Args:
        file: the content of the file.
    """
    first = file.head.partition("\n")[0].strip().replace('"', "")
    return first == ",".join(_HEADER) or _EVENTS in file.path.name


def read_tensorboard(file: Content, options: FileOptions) -> Cells:
    """Return the step times of one run. Raises FredError, or UnclearTraceError if options can make the file readable.

    Args:
        file: the content of the file.
        options: options from the user.
    """
    if _EVENTS in file.path.name:
        return _events(file, options)
    match = _FILE.fullmatch(options.name)
    tag = match["tag"] if match else "Value"
    if match and not (is_time(tag) or is_rate(tag) or "time" in tag.lower()):
        raise FredError(
            f"{file.path} is TensorBoard's export of the tag `{tag}`; expected that of a tag with the times of steps. "
            f"If there is none, {RECORDING_CURE}"
        )
    table = open_table(file)
    value_column = options.columns.get("time", "Value")
    labels, numbers = table.columns(["Step"], [value_column])
    steps = [labels["Step"].names[code] for code in labels["Step"].codes]
    columns = table_from_columns(file.path, {"Step": steps, tag: numbers[value_column]}, table.describe_row)
    worker = match["run"] if match and match["run"] else options.name
    roles = {**options.columns, "iteration": "Step", "time": tag, "worker": options.columns.get("worker", "FILE")}
    cells = long_tables.read_cells(columns, replace(options, columns=roles, name=worker, only={}))
    return replace(cells, notes=(f"TensorBoard export: a run in each file, its times in `{tag}`", *cells.notes))


def _events(file: Content, options: FileOptions) -> Cells:
    """Return the step times in an event file."""
    scalars = _scalars(file)
    if not scalars:
        raise FredError(f"{file.path} is an event file without scalars; expected one with the time of each step")
    times = [tag for tag in scalars if is_time(tag)] or [tag for tag in scalars if is_rate(tag)]
    tag = options.only.get("tag") or options.columns.get("time") or (times[0] if len(times) == 1 else "")
    if tag not in scalars:
        raise UnclearTraceError(
            f"{file.path}: which tag has the times of steps? It has {listed([*scalars])}",
            remedies=[{"only": {"tag": event}} for event in times or scalars],
        )
    steps, values = zip(*scalars[tag], strict=True)
    table = table_from_columns(file.path, {"Step": [str(step) for step in steps], tag: values})
    run = file.path.parent.name or options.name
    cells = long_tables.read_cells(
        table, replace(options, columns={"iteration": "Step", "time": tag, "worker": "FILE"}, name=run, only={})
    )
    return replace(cells, notes=(f"TensorBoard events: a run in each folder, its times in `{tag}`", *cells.notes))


def _scalars(file: Content) -> dict[str, list[tuple[int, float]]]:
    """Return steps and values by tag; a record that is cut off ends the file, as while a run writes it."""
    scalars: dict[str, list[tuple[int, float]]] = defaultdict(list)
    try:
        for record in _records(file.data):
            event = dict(_fields(record))
            summary = event.get(_SUMMARY, b"")
            for _, message in _fields(summary if isinstance(summary, bytes) else b""):
                value = dict(_fields(message)) if isinstance(message, bytes) else {}
                tag, number, step = value.get(_TAG), _number(value), event.get(_TENSORBOARD_STEP, 0)
                if isinstance(tag, bytes) and isinstance(step, int) and number is not None:
                    scalars[tag.decode()].append((step, number))
    except (IndexError, UnicodeDecodeError, ValueError, struct.error):
        raise FredError(f"cannot read {file.path}: it is no event file of TensorBoard, or a damaged one") from None
    return scalars


def _records(data: bytes) -> Iterator[bytes]:
    """Yield the records of a TFRecord file: length (8 bytes), its checksum (4), the record, its checksum (4)."""
    begin = 0
    while begin + 12 <= len(data):
        end = begin + 12 + int.from_bytes(data[begin : begin + 8], "little")
        if end + 4 > len(data):
            return
        yield data[begin + 12 : end]
        begin = end + 4


def _number(value: Fields) -> float | None:
    """Return the number of a scalar, single or as a tensor with one element; None for other summaries."""
    tensor = value.get(_TENSOR)
    parts = dict(_fields(tensor)) if isinstance(tensor, bytes) else {}
    form, packed = _ELEMENTS.get(parts.get(_KIND, 1), ("<f", 0))
    for number in (value.get(_SIMPLE), parts.get(_CONTENT), parts.get(packed)):
        if isinstance(number, bytes) and len(number) == struct.calcsize(form):
            return float(struct.unpack(form, number)[0])
    return None


def _fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """Yield the numbers and values of the fields of a message of protocol buffers."""
    offset = 0
    while offset < len(message):
        key, offset = _integer(message, offset)
        number, wire_type = key >> 3, key & 7
        if wire_type == 0:  # an integer
            value, offset = _integer(message, offset)
            yield number, value
            continue
        if wire_type == 2:  # bytes after their length
            size, offset = _integer(message, offset)
        else:  # 8 or 4 bytes; with an unknown type, the message is damaged
            size = {1: 8, 5: 4}.get(wire_type, len(message))
        if offset + size > len(message):
            raise ValueError("a field ends after its message")
        yield number, message[offset : offset + size]
        offset += size


def _integer(message: bytes, offset: int) -> tuple[int, int]:
    """Return an integer of seven bits a byte, and the place after it."""
    value = shift = 0
    while True:
        byte, offset = message[offset], offset + 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, offset
        shift += 7


TENSORBOARD = LogFormat("TensorBoard", sniff_tensorboard, read_tensorboard)


_WANDB_NAME = "Weights & Biases"
_COLUMN = re.compile(r"(?:group: )?(?P<run>.+) - (?P<metric>.+?)(?P<spread>__(?:MIN|MAX))?")
_MOMENTS = ("_runtime", "_timestamp", "_wandb")  # moments, and notes of the library
_WANDB_STEP, _MOMENT = re.compile(r"(?<!\w)_step\b"), re.compile(r"(?<!\w)_(?:runtime|timestamp)\b")


def sniff_wandb(file: Content) -> bool:
    """Return True for a chart's export, and for a run's history.

    Args:
        file: the content of the file.
    """
    first = file.head.partition("\n")[0]
    is_chart = "__MIN" in first and "__MAX" in first and " - " in first
    return is_chart or (_WANDB_STEP.search(first) is not None and _MOMENT.search(first) is not None)


def read_wandb(file: Content, options: FileOptions) -> Cells:
    """Return the step times of a run, or of all runs of a chart.

    Raises FredError, or UnclearTraceError if options can make the file readable.

    Args:
        file: the content of the file.
        options: options from the user.
    """
    table = open_table(file)
    chart = [name for name in table.header if (match := _COLUMN.fullmatch(name)) and not match["spread"]]
    if chart and "_step" not in table.header:
        return _chart(table, chart, options)
    return _history(table, options)


def _chart(table: File, columns: Sequence[str], options: FileOptions) -> Cells:
    """Return the step times in the columns of a chart's export."""
    names = {name: _run_and_metric(name) for name in columns}
    metrics = list(dict.fromkeys(metric for _, metric in names.values()))
    step_metrics = [name for recognizes in (is_time, is_rate) for name in metrics if recognizes(name)]
    metric = options.columns.get("time") or next(iter(step_metrics), metrics[0])
    if metric not in metrics:
        raise FredError(f"{table.path} has no metric `{metric}`; it has {listed(metrics)}")
    if step_metrics or "time" in options.columns:
        selected = [name for name in columns if names[name][1] == metric]
    else:
        problem = (
            f"{table.path}: none of its metrics is known to be a step time: {listed(metrics)}; set `columns` (time=METRIC)."
            f" If none is, {RECORDING_CURE}"
        )
        raise _unclear_metric_error(problem, [name for name in metrics if not is_metric(name)])
    # The horizontal axis is the column without a run, such as `Step`.
    axis = next((name for name in table.header if name not in columns and "__" not in name and " - " not in name), "")
    numbers = table.columns([], selected)[1]
    rows = len(numbers[selected[0]])
    steps = table.texts(axis) if axis else list(map(str, range(rows)))
    cells = [(steps[row], names[name][0], numbers[name][row], row) for row in range(rows) for name in selected]
    cells = [cell for cell in cells if not np.isnan(cell[2])]
    values = dict(zip(("Step", "run", metric), zip(*(cell[:3] for cell in cells), strict=True), strict=True))
    long_table = table_from_columns(table.path, values, lambda row: table.describe_row(cells[row][3]))
    return _read_times(
        long_table, options, "chart", {"iteration": "Step", "worker": "run", "time": metric}, "a run in each column"
    )


def _history(table: File, options: FileOptions) -> Cells:
    """Return the step times in a run's history."""
    logged = [name for name in table.header if name not in _MOMENTS and not name.startswith("system")]
    times = [name for name in logged if is_time(name)] or [name for name in logged if is_rate(name)]
    metric = options.columns.get("time") or (times[0] if len(times) == 1 else "")
    if not metric:
        problem = (
            f"{table.path}: which metric has the times of steps? It has {listed(times or logged)}; set `columns` (time=METRIC)."
            " `_runtime` is the time since the begin of the run"
        )
        raise _unclear_metric_error(problem, times)
    values = table.columns([], [metric])[1][metric]
    steps = table.texts(options.columns.get("iteration", "_step"))
    rows = np.flatnonzero(~np.isnan(values))
    columns: dict[str, Any] = {"_step": [steps[row] for row in rows], metric: values[rows]}
    roles: dict[Role, str] = {"iteration": "_step", "time": metric, "worker": "FILE"}
    run = next((name for name in ("run", "run_id", "run_name", "name") if name in logged), "")
    if run:
        runs = table.texts(run)
        columns[run], roles["worker"] = [runs[row] for row in rows], run
    long_table = table_from_columns(table.path, columns, lambda row: table.describe_row(int(rows[row])))
    return _read_times(long_table, options, "history", roles, f"a run in each {'value of `' + run + '`' if run else 'file'}")


def _unclear_metric_error(problem: str, metrics: Sequence[str]) -> FredError:
    """Return an error that proposes metrics as the times of steps, if there are any."""
    return (
        UnclearTraceError(problem, remedies=[{"columns": {"time": name}} for name in metrics])
        if metrics
        else FredError(problem)
    )


def _read_times(table: ArrowFile, options: FileOptions, kind: str, roles: dict[Role, str], workers: str) -> Cells:
    """Return the times of a long table; `kind` and `workers` go into the note on how the file was read."""
    nodes: dict[Role, str] = {"node": options.columns["node"]} if "node" in options.columns else {}
    cells = long_tables.read_cells(table, replace(options, columns={**roles, **nodes}, only={}))
    return replace(cells, notes=(f"{_WANDB_NAME}, {kind}: {workers}, its times in `{roles['time']}`", *cells.notes))


def _run_and_metric(column: str) -> tuple[str, str]:
    match = _COLUMN.fullmatch(column)
    return (match["run"], match["metric"]) if match else (column, column)


WANDB = LogFormat(_WANDB_NAME, sniff_wandb, read_wandb)


_TIME, _ITERATION = re.compile(r"\b_?time_this_iter_s\b"), re.compile(r"\b_?training_iteration\b")


def sniff_ray(file: Content) -> bool:
    """Return True for a file with Ray's columns.

    Args:
        file: the content of the file.
    """
    first = file.head.partition("\n")[0]
    return bool(_TIME.search(first) and _ITERATION.search(first))


def read_ray(file: Content, options: FileOptions) -> Cells:
    """Return the time between two reports of each worker or trial.

    Raises FredError, or UnclearTraceError if options can make the file readable.

    Args:
        file: the content of the file.
        options: options from the user.
    """
    table = open_table(file)
    iteration, time = (next(name for name in table.header if words.fullmatch(name)) for words in (_ITERATION, _TIME))
    workers = [name for name in ("world_rank", "rank", "trial_id") if name in table.header]
    varying = [name for name in workers if len(set(table.texts(name))) > 1]
    # Other columns, such as `time_total_s` and `timestamp`, would be taken for times as well.
    table.names = [name for name in table.names if name in (iteration, time, *varying)]
    table.header = list(table.names)
    roles = {"iteration": iteration, "time": time, "worker": varying[0] if varying else FILE, **options.columns}
    cells = long_tables.read_cells(table, replace(options, columns=roles))
    source = f"`{varying[0]}`" if varying else "each file"
    note = f"Ray: a worker for {source}, the time between its reports in `{time}`, which holds what it waited for others"
    return replace(cells, notes=(note, *cells.notes))


RAY = LogFormat("Ray", sniff_ray, read_ray)
