"""Logs of steps: their columns by names and units, and a row for each step of each process with all values that it writes."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fred.tables import quantities
from fred.tables.log_lines import HOST, LOCAL_RANK, RANK, WORKER, Line
from fred.tables.quantities import to_snake_case
from fred.traces.roles import STEP_RATE, WORK_RATE, is_communication, is_mean, unit_of

_STEP = re.compile(r"(?:.*?_)??(global_step|iteration|iter|step|it|num_updates|update|batch|round|i)")
STEPS = ("global_step", "iteration", "iter", "step", "it", "num_updates", "update", "batch", "round", "i")  # first preferred
_NOT_A_STEP = re.compile(
    r"(?:^|_)(?:micro|accum\w*|eval\w*|val\w*|test|sav\w*|ckpt|checkpoint|total|max|start|last|from|warmup)_"
)
_STEP_TIME = re.compile(r"(?:^|_)(?:step|steps|iter|iters|iteration|iterations|batch|it|end_to_end)(?:_|$)")
_TIME = re.compile(
    r"(?:(?:train|training|wall|total)_)?(?:seconds|time|times|dt|duration|dur|took|elapsed|elapsed_time|latency|timing|in"
    r"|t|s|ms|sec|secs)"
)
_COMPUTE = re.compile(r"(?:^|_)(?:compute|computation|computing|own|self|busy)(?:_|$)")
_NOT_A_TIME = re.compile(
    r"(?:^|_)(?:eta|remain\w*|left|since|clock|date|data\w*|load\w*|eval\w*|val\w*|test|sav\w*|ckpt|checkpoint\w*"
    r"|compil\w*|init\w*|startup|epoch|lr|loss|microstep)(?:_|$)"
)
_CLOCK = re.compile(r"(?:^|_)(?:elapsed|wall|clock|uptime|runtime|since|total|timestamp|ts)(?:_|$)")
_PHASE = re.compile(
    r"data(?:_?loa\w*|_time)?|load\w*|h2d|fwd|forward(?:_compute)?|bwd(?:_inner)?|backward(?:_compute|_inner)?|forward_backward"
    r"|optim\w*|step|update"
)
UNITS = rf"(?:{'|'.join(quantities.WORDS.values())})"
_WITH_UNIT = re.compile(rf"[-+\d.,eE]+ {UNITS}(/\w+)?")
_FEWEST_STEPS = 10  # steps over which times do not keep growing by chance
_CLOCK_GROWTH = 4  # a clock grows by more than this multiple of its first value
_LEAST_DATE = 1e7  # or its first value is a date, s since 1970
PARALLEL = ("dp", "dp_rank", "data_parallel_rank")
SOURCES = {
    *(*PARALLEL, RANK, LOCAL_RANK, HOST, WORKER),
    *("global_rank", "rank_id", "process", "process_index", "proc", "node", "node_rank", "hostname"),
    *("replica", "trainer", "executor", "machine", "pod", "worker_id", "host_id", "node_id", "client", "gpu"),
}


def step_word(name: str) -> str:
    """Return the word for a step at the end of a name; empty if there is none.

    Args:
        name: name of a column.

    >>> step_word("completed step"), step_word("global_step"), step_word("micro_step"), step_word("skipped iterations")
    ('step', 'global_step', '', '')
    """
    words = to_snake_case(name)
    match = _STEP.fullmatch(words)
    return match[1] if match and not _NOT_A_STEP.search(words) else ""


@lru_cache(4096)
def is_evaluation_step(name: str) -> bool:
    """Return True for the number of a step of an evaluation.

    Args:
        name: name of a column.
    """
    words = to_snake_case(name)
    return re.match(r"(?:eval\w*|val\w*|test)_", words) is not None and _STEP.fullmatch(words) is not None


def is_duration(name: str, sample: str) -> bool:
    """Return True for a column of durations.

    Args:
        name: name of the column.
        sample: one of its values.

    >>> is_duration("dt", "402.1 ms"), is_duration("elapsed time per iteration (ms)", "402.1"), is_duration("tokens/s", "402.1")
    (True, True, False)
    """
    if re.fullmatch(r"[-+.\d,eE]+ \S+", sample):  # a number with a unit, which decides
        return has_unit(sample)
    words = to_snake_case(name)
    if STEP_RATE.fullmatch(words) or WORK_RATE.fullmatch(words):
        return False
    return unit_in_name(name) is not None or _TIME.fullmatch(words) is not None or words.endswith("_time")


def unit_in_name(name: str) -> quantities.Unit | None:
    """Return the unit in a name, also before a slash; None if there is none.

    Args:
        name: name of a column.

    >>> unit_in_name("step_time_ms"), unit_in_name("timing_s/step"), unit_in_name("Tokens/s/device")
    ('ms', 's', None)
    """
    return unit_of(name) or next((unit for part in name.split("/")[:-1] if (unit := unit_of(part))), None)


def is_clock(name: str) -> bool:
    """Return True for the name of a time since a begin.

    Args:
        name: name of a column.
    """
    return _CLOCK.search(to_snake_case(name)) is not None


def has_unit(sample: str) -> bool:
    """Return True for a number with a unit of time.

    Args:
        sample: such as `402.1 ms` or `0.4 s/step`.
    """
    return _WITH_UNIT.fullmatch(sample) is not None


def step_times(durations: Sequence[str]) -> list[str]:
    """Return the columns that are most probably the time of a step: compute times before step times before others.

    Args:
        durations: columns of durations.

    >>> step_times(["eta", "data_time", "time"]), step_times(["step_time", "compute_time", "allreduce_time"])
    (['time'], ['compute_time'])
    """
    scores = dict[str, int]()
    for name in durations:
        words = _strip_unit(name)
        is_compute = _COMPUTE.search(words) is not None
        if is_communication(name) or (_NOT_A_TIME.search(words) and not is_compute and "end_to_end" not in words):
            continue
        score = 8 if is_compute else 6 if _STEP_TIME.search(words) else 4 if _TIME.fullmatch(words) else 2
        scores[name] = score - is_mean(name)  # of two equally probable ones, not the mean over steps
    return [name for name, score in scores.items() if score == max(scores.values())]


def step_phases(durations: Sequence[str]) -> list[str]:
    """Return the columns that together are the time of a step, if forward and backward passes are among them.

    Args:
        durations: columns of durations.

    >>> step_phases(["fwd (ms)", "bwd (ms)", "bwd_inner (ms)", "bwd_allreduce (ms)", "step (ms)"])
    ['fwd (ms)', 'bwd_inner (ms)', 'step (ms)']
    """
    names = {name: _strip_unit(name).removesuffix("_time") for name in durations}
    phases = {name: words for name, words in names.items() if _PHASE.fullmatch(words)}
    if not any(words.startswith(("fwd", "forward")) for words in phases.values()):
        return []
    if not any(re.search("bwd|backward", words) for words in phases.values()):
        return []
    has_inner = any(words.endswith("_inner") for words in phases.values())
    return [name for name, words in phases.items() if not (has_inner and words in ("bwd", "backward"))]


def _strip_unit(name: str) -> str:
    return re.sub(rf"_(?:in_)?{UNITS}$", "", to_snake_case(name)) if unit_of(name) else to_snake_case(name)


def collect_rows(lines: Sequence[Line], step: str) -> list[Line]:
    """Return a line for each step of each process. Values in further lines of a process belong to its last step.

    Args:
        lines: lines of a log.
        step: name of the steps' numbers.
    """
    rows, last_rows, previous_process = list[Line](), dict[tuple[str, ...], Line](), tuple[str, ...]()
    processes = {process for line in lines if (process := tuple(line.source.values()))}
    for line in lines:
        if any(map(is_evaluation_step, line.values)):
            continue
        process = next(iter(processes)) if len(processes) == 1 else tuple(line.source.values())
        if not process and step not in line.values:
            process = previous_process  # a further line of an entry
        previous_process = process
        row = last_rows.get(process)
        number = line.values.get(step, "")
        if not quantities.is_count(number):  # a line without a step belongs to the last row
            if row is not None:
                # A progress bar is written again with newer values. Of other lines, the first value of each name counts.
                row.values = {**row.values, **line.values} if line.is_bar else {**line.values, **row.values}
                row.is_bar |= line.is_bar
        # A line with the row's own step, and no other value of the row, continues it: loggers write a step's metrics in several
        # lines. A line that repeats a value is a row of its own.
        elif row is not None and row.values[step] == number and not (row.values.keys() & line.values.keys()) - {step, "epoch"}:
            row.values |= line.values
        else:
            last_rows[process] = replace(line, values=dict(line.values))
            rows.append(last_rows[process])
    for row in rows:
        row.values = {**row.source, **row.values}
    return rows


def common_columns(rows: Sequence[Line]) -> list[str]:
    """Return the names that most rows have.

    Args:
        rows: rows of a log.
    """
    counts = Counter(name for row in rows for name in row.values)
    return [name for name, count in counts.items() if count * 2 >= len(rows)]


def process_columns(rows: Sequence[Line]) -> list[str]:
    """Return the names whose values identify a process, such as `rank`.

    Args:
        rows: rows of a log.
    """
    return [name for name in common_columns(rows) if to_snake_case(name) in SOURCES]


def group_by_process(rows: Sequence[Line]) -> list[list[Line]]:
    """Return the rows of each process.

    Args:
        rows: rows of a log.
    """
    names, processes = process_columns(rows), dict[tuple[str | None, ...], list[Line]]()
    for row in rows:
        processes.setdefault((*row.source.values(), *(row.values.get(name) for name in names)), []).append(row)
    return [*processes.values()]


def is_increasing(rows: Sequence[Line], name: str) -> bool:
    """Return True for a column whose numbers only grow, such as a clock.

    Args:
        rows: rows of a log.
        name: name of the column.
    """
    series = [parse_cells([row.values.get(name, "") for row in lines]) for lines in group_by_process(rows)]
    differences = len(rows) - len(series)  # one less than rows, for each process
    return differences >= _FEWEST_STEPS and all((np.diff(values) > 0).all() for values in series)


def resembles_clock(rows: Sequence[Line], name: str) -> bool:
    """Return True for times that grow by a multiple of the first one, or have the name of a clock.

    Args:
        rows: rows of a log.
        name: a column that only grows.
    """
    for lines in group_by_process(rows):
        first, *_, last = parse_cells([row.values.get(name, "") for row in lines])
        if last - first < _CLOCK_GROWTH * first and first < _LEAST_DATE and not is_clock(name):
            return False
    return True


def have_equal_times(rows: Sequence[Line], names: Sequence[str]) -> bool:
    """Return True for columns whose median times agree within 1 %.

    Args:
        rows: rows of a log.
        names: columns of times.
    """
    medians = []
    for name in names:
        values = parse_cells([strip_per_step(row.values.get(name)) or "" for row in rows])
        unit = "s" if has_unit(next(row.values[name] for row in rows if name in row.values)) else unit_in_name(name)
        medians.append(float(np.nanmedian(values)) / quantities.PER_SECOND[unit] if unit else np.nan)
    return bool(np.nanmax(medians) < 1.01 * np.nanmin(medians)) and not np.isnan(medians).any()


def parse_cells(cells: Sequence[str]) -> NDArray[np.float64]:
    """Return numbers, in s if they have units; NaN if they cannot be read.

    Args:
        cells: texts.
    """
    try:
        return quantities.parse_numbers(cells).values
    except quantities.CellError:
        return np.full(len(cells), np.nan)


def add_differences(rows: Sequence[Line], step: str, clock: str) -> None:
    """Add the time between the steps of each process as `difference`.

    Args:
        rows: rows of a log.
        step: name of the steps' numbers.
        clock: a column that grows; empty: the lines' dates.
    """
    for lines in group_by_process(rows):
        texts = [row.values.get(clock, "") if clock else row.moment for row in lines]
        times = parse_cells(texts) if clock else quantities.parse_moments(texts)
        for (previous, row), seconds in zip(pairwise(lines), np.diff(times).tolist(), strict=True):
            if (steps := int(row.values[step]) - int(previous.values[step])) > 0 and seconds > 0:  # not after a restart
                row.values["difference"] = repr(seconds / steps)


def strip_per_step(text: str | None) -> str | None:
    """Return a value whose unit is that of a column: `410 ms/step` is 410 ms.

    Args:
        text: the value.
    """
    return text if text is None or "/" not in text else re.sub(rf"( {UNITS})/\w+$", r"\1", text)
