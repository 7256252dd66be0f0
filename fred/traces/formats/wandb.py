"""Weights & Biases: the CSV of a chart, with a column for each run; and a run's history, from its API or its JSON lines.

A chart's export also has columns of the smallest and the largest values, which are no workers. A history has rows without
the step time, logged by other calls; its `_runtime` and `_timestamp` are moments.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fred.base.errors import FredError, listed
from fred.tables.columns import ArrowFile, File, table_from_columns
from fred.tables.content import Content
from fred.tables.opening import open_table
from fred.tables.text_layout import RECORDING_CURE
from fred.traces import long_tables
from fred.traces.cells import Cells
from fred.traces.refusal import UnclearTraceError
from fred.traces.roles import FileOptions, Role, is_metric, is_rate, is_time

NAME = "Weights & Biases"
_COLUMN = re.compile(r"(?:group: )?(?P<run>.+) - (?P<metric>.+?)(?P<spread>__(?:MIN|MAX))?")
_MOMENTS = ("_runtime", "_timestamp", "_wandb")  # moments, and notes of the library
_STEP, _MOMENT = re.compile(r"(?<!\w)_step\b"), re.compile(r"(?<!\w)_(?:runtime|timestamp)\b")


def sniff(file: Content) -> bool:
    """Return True for a chart's export, and for a run's history.

    Args:
        file: the content of the file.
    """
    first = file.head.partition("\n")[0]
    is_chart = "__MIN" in first and "__MAX" in first and " - " in first
    return is_chart or (_STEP.search(first) is not None and _MOMENT.search(first) is not None)


def read(file: Content, options: FileOptions) -> Cells:
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
    order = next((name for name in table.header if name not in columns and "__" not in name and " - " not in name), "")
    numbers = table.columns([], selected)[1]
    rows = len(numbers[selected[0]])
    steps = table.texts(order) if order else list(map(str, range(rows)))
    cells = [(steps[row], names[name][0], numbers[name][row], row) for row in range(rows) for name in selected]
    cells = [cell for cell in cells if not np.isnan(cell[2])]
    values = dict(zip(("Step", "run", metric), zip(*(cell[:3] for cell in cells), strict=True), strict=True))
    long = table_from_columns(table.path, values, lambda row: table.describe_row(cells[row][3]))
    return _read_times(long, options, "chart", {"iteration": "Step", "worker": "run", "time": metric}, "a run in each column")


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
    long = table_from_columns(table.path, columns, lambda row: table.describe_row(int(rows[row])))
    return _read_times(long, options, "history", roles, f"a run in each {'value of `' + run + '`' if run else 'file'}")


def _unclear_metric_error(problem: str, metrics: Sequence[str]) -> FredError:
    """Return an error that proposes metrics as the times of steps, if there are any."""
    return (
        UnclearTraceError(problem, remedies=[{"columns": {"time": name}} for name in metrics])
        if metrics
        else FredError(problem)
    )


def _read_times(table: ArrowFile, options: FileOptions, kind: str, roles: dict[Role, str], workers: str) -> Cells:
    nodes: dict[Role, str] = {"node": options.columns["node"]} if "node" in options.columns else {}
    cells = long_tables.read_cells(table, replace(options, columns={**roles, **nodes}, only={}))
    return replace(cells, notes=(f"{NAME}, {kind}: {workers}, its times in `{roles['time']}`", *cells.notes))


def _run_and_metric(column: str) -> tuple[str, str]:
    match = _COLUMN.fullmatch(column)
    return (match["run"], match["metric"]) if match else (column, column)
