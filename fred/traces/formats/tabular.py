"""Step times in tables: with a row for each value of a metric, and any other.

Logs of metrics with a row for each value: a step, a name and a value, as MLflow, tbparse, torchtitan and Comet write them.
MLflow's own files have `timestamp value step` in each line and the metric as their name. ClearML's scalars are JSON:
`{"step time": {"rank 0": {"x": [0, 1], "y": [0.4, 0.5]}}}`. Prometheus answers a query of a range with `values` for each set of
labels. Lists of runs are refused: they have only the last value of each.

Tables of step times or operations in any file: the format of all logs that no other format knows.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fred.base.errors import FredError, listed
from fred.tables.columns import table_from_columns
from fred.tables.content import Content
from fred.tables.opening import open_table, table_from_records
from fred.tables.quantities import is_moment, is_number, to_snake_case
from fred.tables.text_layout import RECORDING_CURE
from fred.traces import long_tables
from fred.traces.cells import Cells, LogFormat
from fred.traces.roles import FILE, FileOptions, Role, UnclearTraceError, is_rate, is_time

_KEYS, _VALUES = ("key", "metric", "tag", "metric_name", "name"), ("value", "metric_value", "scalar")
_STEPS, _RUNS = ("step", "global_step", "iteration"), ("run_id", "run", "run_name", "rank", "worker", "dir_name", "run_uuid")
_SERIES = re.compile(r'\{\s*"[^"]+"\s*:\s*\{\s*"[^"]+"\s*:\s*\{[^{}]*"(?:x|y)"\s*:\s*\[')
_MATRIX = re.compile(r'"resultType"\s*:\s*"matrix"')
_RUN_LISTS = (  # words in this order in a list of runs; one pattern with `.*` between them takes minutes in a long line
    (re.compile(r"Run ID"), re.compile(r"Source")),
    (re.compile(r"run_id"), re.compile(r"artifact_uri|params\.|metrics\.")),
    (re.compile(r"\bState\b"), re.compile(r"\bNotes\b"), re.compile(r"\bTags\b")),
)
_RAW = re.compile(r"(?:\d{13} (?:[-+.\deE]+|-?(?:nan|inf)) \d{1,18}\r?\n?)+", re.IGNORECASE)


def sniff_metric_rows(file: Content) -> bool:
    """Return True for rows or series of metrics, for MLflow's own file of a metric, and for a list of runs.

    Args:
        file: the content of the file.
    """
    if _RAW.fullmatch(file.head) or _has_series(file) or _lists_runs(file):
        return True
    names = {to_snake_case(word) for word in re.findall(r"[\w. ]+", file.head.partition("\n")[0])}
    return all(names & set(words) for words in (_KEYS, _VALUES, _STEPS))


def read_metric_rows(file: Content, options: FileOptions) -> Cells:
    """Return the step times among the metrics. Raises FredError, or UnclearTraceError if options can make the file readable.

    Args:
        file: the content of the file.
        options: options from the user; `only` chooses the metric.
    """
    if _RAW.fullmatch(file.head):
        return _mlflow(file, options)
    if _lists_runs(file):
        raise FredError(
            f"{file.path} is a list of runs, with the last value of each metric only. Export the values of all steps: "
            "of MLflow with `pandas.DataFrame([dict(m, run_id=run) for run in runs for m in "
            "mlflow.MlflowClient().get_metric_history(run, METRIC)]).to_csv('steps.csv')`, of Weights & Biases with "
            "`wandb.Api().run(PATH).history().to_csv('rank0.csv')` of each run"
        )
    table = table_from_records(file.path, _series(file)) if _has_series(file) else open_table(file)
    headers = {to_snake_case(name): name for name in reversed(table.header)}  # of equal names, the first column counts
    key, value, step = (next((headers[word] for word in words if word in headers), "") for words in (_KEYS, _VALUES, _STEPS))
    if not (key and value and step):
        return long_tables.read_cells(table, options)
    keys = list(dict.fromkeys(table.texts(key)))
    times = [name for name in keys if is_time(name)] or [name for name in keys if is_rate(name)]
    metric = options.only.get(key) or (times[0] if len(times) == 1 else "")
    if not metric:
        raise UnclearTraceError(
            f"{file.path}: which `{key}` has the times of steps? It has {listed(keys[:12])}. If none has, but a sum of times "
            f"that grows, write its differences (Prometheus: `increase(SUM[1m]) / increase(COUNT[1m])`), or {RECORDING_CURE}",
            remedies=[{"only": {key: name}} for name in (times or keys)[:6]],
        )
    table.restrict({**options.only, key: metric})
    run = next((headers[word] for word in _RUNS if word in headers), "")
    columns = {step: table.texts(step), metric: table.columns([], [value])[1][value]}
    is_matrix = _is_matrix(file)
    labels = [name for name in table.header if name not in (key, value, step)]
    for name in labels:
        texts = table.texts(name)
        if is_matrix or name == run or not any(is_number(text) or is_moment(text) for text in texts):  # words may name runs
            columns[name] = texts
    worker: dict[Role, str] = {} if is_matrix and labels else {"worker": run or FILE}  # labels have the names of columns
    roles = {"iteration": step, "time": metric, **worker, **options.columns}
    cells = long_tables.read_cells(
        table_from_columns(file.path, columns, table.describe_row), replace(options, columns=roles, only={})
    )
    return replace(cells, notes=(f"rows of metrics: step times in `{key}` = `{metric}`", *cells.notes))


def _lists_runs(file: Content) -> bool:
    """Return True for a list of runs, by the names in its first line."""
    first = file.head.partition("\n")[0]
    for patterns in _RUN_LISTS:
        end = 0
        for pattern in patterns:
            if (match := pattern.search(first, end)) is None:
                break
            end = match.end()
        else:
            return True
    return False


def _has_series(file: Content) -> bool:
    """Return True for JSON of ClearML or Prometheus."""
    return bool(_SERIES.match(file.head)) or _is_matrix(file)


def _is_matrix(file: Content) -> bool:
    return file.head.lstrip()[:1] == "{" and _MATRIX.search(file.head) is not None


def _series(file: Content) -> Iterator[dict[str, Any]]:
    """Yield a row for each value in series of metrics; the times of Prometheus count as steps. Raises FredError."""
    try:
        metrics = json.loads(file.data)
        if _is_matrix(file):
            answers = metrics["data"]["result"]
            common = set(answers[0]["metric"].items()).intersection(*(answer["metric"].items() for answer in answers[1:]))
            for answer in answers:  # of several, only labels that differ identify a worker
                labels = dict(sorted(set(answer["metric"].items()) - (common if answers[1:] else set())))
                metric = answer["metric"].get("__name__", "value")
                labels.pop("__name__", "")
                for time, value in answer["values"]:
                    yield {**labels, "metric": metric, "step": time, "value": value}
            return
        for metric, runs in metrics.items():
            for run, series in runs.items():
                for step, value in zip(series["x"], series["y"], strict=True):
                    yield {"metric": metric, "run": run, "step": step, "value": value}
    except (ValueError, RecursionError, AttributeError, IndexError, KeyError, TypeError):
        expected = '`{"METRIC": {"RUN": {"x": [STEP], "y": [VALUE]}}}`, or what Prometheus answers a query of a range'
        raise FredError(f"{file.path}: expected {expected}") from None


def _mlflow(file: Content, options: FileOptions) -> Cells:
    """Return the step times in MLflow's own file of a metric."""
    metric = file.path.name
    if not (is_time(metric) or is_rate(metric)):
        raise FredError(
            f"{file.path} is MLflow's file of the metric `{metric}`, which is no time; expected that of the step times. "
            f"If there is none, {RECORDING_CURE}"
        )
    lines = [line.split() for line in file.text.splitlines()]
    wrong_row = next((row for row, line in enumerate(lines) if len(line) != 3 or not is_number(line[1])), None)
    if wrong_row is not None:
        raise FredError(f"{file.path}:{wrong_row + 1}: expected a timestamp, a number and a step, as MLflow writes them")
    columns = {"step": [line[2] for line in lines], metric: [float(line[1]) for line in lines]}
    table = table_from_columns(file.path, columns, lambda row: f"{file.path}:{row + 1}")
    run = file.path.parent.parent.name or options.name  # the file is RUN/metrics/METRIC
    roles = {"iteration": "step", "time": metric, "worker": FILE, **options.columns}
    cells = long_tables.read_cells(table, replace(options, columns=roles, name=run, only={}))
    return replace(cells, notes=(f"MLflow: a run in each folder, its times in `{metric}`", *cells.notes))


METRIC_ROWS = LogFormat("metrics", sniff_metric_rows, read_metric_rows)


_SUMMARY = re.compile(  # in a line of names, of profilers of one process or of whole traces
    r"^(?!.*\b(?:step|iter|iteration|round)s?\b)[^\d\n]*?\b(n?calls|instances|percentage|\w+_pctg)\b[^\d\n]*$",
    re.IGNORECASE | re.MULTILINE,
)
_REFUSED = {  # mark in the begin of a file -> what it is
    r"\A@ mpiP\b": "is a report of mpiP, which has sums over the run for each task and no steps",
    r"\A(?=[^\n]*\btensor_fusion_threshold\b)[^\n]*\bscore\b": "is Horovod's log of autotuning, which has settings and their "
    "scores, and no times of ranks",
}


def sniff_any_table(file: Content) -> bool:
    """Return True, because every file may hold a table.

    Args:
        file: the content of the file.
    """
    return bool(file.path)


def read_any_table(file: Content, options: FileOptions) -> Cells:
    """Return the times in a table. Raises FredError, or UnclearTraceError if options can make the file readable.

    Args:
        file: the content of the file.
        options: options from the user.
    """
    if description := next((text for mark, text in _REFUSED.items() if re.search(mark, file.head)), ""):
        raise FredError(f"{file.path} {description}; {RECORDING_CURE}")
    if summary := _SUMMARY.search(file.head):
        raise FredError(
            f"{file.path} has sums over many steps (`{summary[1]}`), which hide the times of steps; {RECORDING_CURE}"
        )
    return long_tables.read_cells(open_table(file), options)


ANY_TABLE = LogFormat("table", sniff_any_table, read_any_table)
