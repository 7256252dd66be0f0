"""Step times in console logs of any program: lines with a step and a time, such as `completed step: 3, seconds: 0.402`.

One reader for MaxText, torchtitan, nanoGPT, NeMo, DeepSpeed, Keras, timm, detectron2, logfmt and JSON in log lines. It takes
the number of the step and the time by their names and units. The worker comes from what launchers write before a line or from a
value such as `rank=3`, otherwise from the file. Without times it uses rates, whose inverse is a mean time, or the
differences of the lines' dates. If the lines of several processes do not name them, it refuses the log.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from fred.base.errors import FredError, listed
from fred.tables import quantities
from fred.tables.columns import table_from_columns
from fred.tables.content import Content
from fred.tables.log_lines import Line, parse_lines, sample_lines
from fred.tables.quantities import to_snake_case
from fred.tables.text_layout import RECORDING_CURE, find_layout, is_value
from fred.traces import long_tables
from fred.traces.cells import Cells, LogFormat
from fred.traces.log_rows import (
    PARALLEL,
    SOURCES,
    STEPS,
    add_differences,
    collect_rows,
    common_columns,
    has_unit,
    have_equal_times,
    is_duration,
    is_increasing,
    process_columns,
    resembles_clock,
    step_phases,
    step_times,
    step_word,
    strip_per_step,
    unit_in_name,
)
from fred.traces.roles import PLUS, FileOptions, Role, UnclearTraceError, find_rate, is_mean

_CONSOLES_NAME = "console log"
_USUAL = 0.8  # share of the rows that have a column
_NAMES_IN_SECONDS = (("time", "data_time"), ("Time", "Data"))  # detectron2 and MMEngine; PyTorch's ImageNet example
_MESSAGE = re.compile(r'"(?:message|msg|log)"\s*:\s*"[^"]*\b(?:step|iter|iteration)\b[ :=#]*\d', re.IGNORECASE)  # in JSON
_RECORD = re.compile(r'"(?:global_)?(?:step|iteration|iter)"\s*:', re.IGNORECASE)
_DESCRIPTIONS = {  # text of a tool's lines -> what they are
    r"elapsed[ _]time[ _]per[ _]iteration": "a log of Megatron-LM, whose last rank writes the same time for all; with "
    "`--timing-log-level 2 --timing-log-option all` it has those of each rank",
    r"\{'(?:loss|eval_loss|train_runtime)'": "lines of the Hugging Face Trainer, which give losses and no step times",
    r"\[titan\]|torchtitan": "a log of torchtitan",
    r"completed step: \d": "a log of MaxText",
    r"tokens_per_second_per_gpu:": "a log of torchtune",
    r"\[(?:logging|timer)\.py:\d+:": "a log of DeepSpeed",
    r"\bbusbw\b|# OSU MPI|nccom": "a measurement of a network, which `fred fit-network` reads",
    r"\bNCCL (?:INFO|WARN)\b": "a log of NCCL, which has no step times; `fred fit-network` reads those of nccl-tests",
    r"\[NeMo |train_step_timing": "a log of NeMo",
    r"(?:\d|\?)(?:it/s|s/it)\b": "a progress bar of tqdm or Lightning",
    r"\d[mu]?s/step\b": "a progress bar of Keras",
    r"#Entity\s+\w+|\bDCGM_FI_\w+": "a log of DCGM, which has the use of GPUs and no step times",
    r":::MLLOG": "a log of MLPerf, which has dates and no step times",
    r"slurmstepd|srun: ": "an output of Slurm",
}


def sniff_consoles(file: Content) -> bool:
    """Return True for text in which several lines name a step or have dates, and that is no table.

    Args:
        file: the content of the file.
    """
    # JSON with steps as keys is a table. JSON of a logger is a console log if its messages have steps.
    if file.kind != "text" or (_is_json(file) and (_RECORD.search(file.head) or not _MESSAGE.search(file.head))):
        return False
    sample = sample_lines(file)
    lines = list(parse_lines(sample))
    steps = sum(line.is_bar or any(map(_numbers_steps, line.values)) for line in lines)
    dates = sum(1 for line in lines if line.moment)
    is_of_a_tool = any(re.search(pattern, sample) for pattern in _DESCRIPTIONS)
    return (steps > 1 or is_of_a_tool or (dates > 1 and dates * 2 > len(lines))) and not _is_table(file)


def _numbers_steps(name: str) -> bool:
    """Return True for the name of the number of a step or an epoch."""
    return bool(step_word(name)) or to_snake_case(name).endswith("epoch")


def _is_json(file: Content) -> bool:
    """Return True for JSON, or for lines that are all JSON; `{'loss': ...}` is a Python dictionary."""
    lines = [line.strip() for line in file.head.splitlines()[:50] if line.strip()]
    are_records = bool(lines) and lines[0][:2] not in ("{'", "{}") and all(line[:1] == "{" for line in lines)
    return are_records or re.match(r"\s*(?:\[\s*(?:[\[{\"]|\n)|\{\s*\n)", file.head) is not None


def _is_table(file: Content) -> bool:
    try:
        layout = find_layout(file)
    except FredError:
        return False
    # A name with a number, such as `rank 0`, is also what a line of a log has: then all cells must be numbers.
    # So the names of the columns are read as a line of a log.
    log_values = [line.values for separator in ("|", " ") for line in parse_lines(separator.join(layout.names))]
    are_names = not any(log_values) or all(is_value(cell) for cells in layout.samples.values() for cell in cells)
    return len(layout.names) > 1 and are_names and not any(name[:1].isdigit() for name in layout.names)


def read_consoles(file: Content, options: FileOptions) -> Cells:
    """Return the step times in a log. Raises FredError, or UnclearTraceError if options can make the log readable.

    Args:
        file: the content of the file.
        options: options from the user.
    """
    lines = _number_timers([line for line in parse_lines(file.text) if line.values])
    step, epoch = _find_steps(lines, options)
    rows = collect_rows(lines, step) if step else []
    if not rows:
        raise _no_times_error(file, "no line has the number of a step")
    columns = common_columns(rows)
    iteration = f"{epoch}{PLUS}{step}" if epoch else step
    roles: dict[Role, str] = {"iteration": iteration}
    if rank := _parallel_rank(rows):
        roles["worker"] = rank
    notes, unit = [], options.unit
    if "time" in options.columns:
        time = options.columns["time"]
    else:
        time, note, unit = _find_time(file, rows, columns, step, unit)
        roles["time"] = time
        notes.append(note)
    rows = [row for row in rows if all(part in row.values for part in _parts(time, columns))]
    if not rows:
        raise _no_times_error(file, "no line has both a step and a time")
    _refuse_unlabelled(file, rows, [*([epoch] if epoch else []), step])
    if any(row.is_bar for row in rows):
        notes.append("a progress bar shows means over several steps: single slow steps do not show")
    if "[repeated " in file.text:
        notes.append("Ray left out repeated lines: set RAY_DEDUP_LOGS=0 to have all")
    names = [name for name in common_columns(rows) if not _is_text(rows, name) or to_snake_case(name) in SOURCES]
    table = table_from_columns(
        file.path,
        {name: [strip_per_step(row.values.get(name)) for row in rows] for name in names},
        lambda row: f"{file.path}:{rows[row].number}",
    )
    cells = long_tables.read_cells(table, replace(options, columns={**roles, **options.columns}, unit=unit))
    return replace(cells, notes=(f"{_CONSOLES_NAME}: {'; '.join(notes)}" if notes else _CONSOLES_NAME, *cells.notes))


def _parallel_rank(rows: Sequence[Line]) -> str:
    """Return the rank among data-parallel processes, if nothing else names the process."""
    names = process_columns(rows)
    parallel = [name for name in names if to_snake_case(name) in PARALLEL]
    if len(parallel) < len(names) or any(row.source for row in rows):
        return ""
    return next((name for name in parallel if len({row.values.get(name) for row in rows}) > 1), "")


def explain_single_log(file: Content) -> str:
    """Return why the log of one process cannot show the slow rank, and the cure.

    Args:
        file: the only file of a trace.
    """
    description = _describe_tool(file) or "a console log"
    return (
        f"{file.path} is {description}. It has the steps of one process: a step of synchronous training lasts until the "
        "slowest rank is ready, so one log cannot show who is slow. Name the logs of all ranks if there are others, or "
        f"{RECORDING_CURE}"
    )


def _number_timers(lines: list[Line]) -> list[Line]:
    """Return DeepSpeed's timers of whole steps, numbered for each process; all lines if there are none.

    Only rank 0 writes the number of a step, and only of each tenth. The timers of microsteps have other names.
    """
    timers = [line for line in lines if {"fwd (ms)", "bwd_inner (ms)"} <= line.values.keys()]
    numbers = Counter[tuple[str, ...]]()
    for line in timers:
        process = tuple(line.source.values())
        numbers[process] += 1
        line.values = {"step": str(numbers[process]), **line.values}
    return timers or lines


def _find_steps(lines: Sequence[Line], options: FileOptions) -> tuple[str, str]:
    """Return the column of the steps' numbers, and that of epochs if the numbers start again in each; "" for none.

    Without steps, the numbers of a progress bar count; without a bar, epochs.
    """
    if column := options.columns.get("iteration"):
        return (column, "") if PLUS not in column else (column.rpartition(PLUS)[2], column.rpartition(PLUS)[0])
    # Lines that have a whole number of each name:
    counts = Counter(name for line in lines for name, text in line.values.items() if quantities.is_count(text))
    epochs = [name for name in counts if re.fullmatch(r"(?:.*_)?epoch(?:_train)?", to_snake_case(name)) and counts[name] > 1]
    epoch = max(epochs, key=lambda name: counts[name], default="")
    steps = {name: count for name, count in counts.items() if step_word(name) and count > 1}
    progress_bars = {"bar step": counts["bar step"]} if counts["bar step"] > 1 else {}
    # Keras ends its bars with `402ms/step`, the mean since the epoch began: such a line stands for its epoch.
    if progress_bars and any("/step" in name for line in lines for name in line.values):
        return epoch or "bar step", ""
    step = _most_usual_step(steps or progress_bars or ({epoch: counts[epoch]} if epoch else {}))
    if not epoch or step == epoch or step_word(step) == "global_step":
        return step, ""
    has_epochs = len({line.values[epoch] for line in lines if epoch in line.values}) > 1
    return step, epoch if has_epochs and counts[epoch] >= _USUAL * counts[step] else ""


def _most_usual_step(counts: Mapping[str, int]) -> str:
    """Return the name, of those that most lines have, that says most clearly that it counts steps; "" for none."""
    frequent = [name for name, count in counts.items() if count >= _USUAL * max(counts.values())]
    return min(frequent, key=lambda name: STEPS.index(step_word(name)) if step_word(name) else len(STEPS), default="")


def _find_time(
    file: Content, rows: list[Line], columns: Sequence[str], step: str, unit: quantities.Unit | None
) -> tuple[str, str, quantities.Unit | None]:
    """Return the column of times, which may be a new one, a note about it, and its unit."""
    samples = {name: next(row.values[name] for row in rows if name in row.values) for name in columns}
    durations = [name for name in columns if name != step and is_duration(name, samples[name])]
    clocks = [name for name in durations if is_increasing(rows, name) and not is_mean(name)]
    other_durations = [name for name in durations if name not in clocks]
    candidates, phases = step_times(other_durations), step_phases(other_durations)
    if phases and all(to_snake_case(name) in map(to_snake_case, phases) for name in candidates):
        return PLUS.join(phases), f"times of a step: {listed(phases)}", unit
    if clocks and all(map(is_mean, candidates)):  # differences of a clock show single steps, running means do not
        candidates = []
    if len(candidates) > 1 and have_equal_times(rows, candidates):
        candidates = candidates[:1]
    if len(candidates) > 1:
        raise UnclearTraceError(
            f"{file.path}: which of {listed(candidates)} is the time of a step? Name it (`columns: {{time: {candidates[0]}}}`)",
            remedies=[
                {"columns": {"time": name}, **({"unit": name_unit} if (name_unit := unit_in_name(name)) else {})}
                for name in candidates
            ],
        )
    if candidates:
        time = candidates[0]
        is_in_seconds = any(time == name and neighbour in columns for name, neighbour in _NAMES_IN_SECONDS)
        note = ", in s, as this tool writes them" if is_in_seconds and not unit else ""
        subject = "running means of step times" if is_mean(time) else "step times"
        return time, f"{subject} in `{time}`{note}", unit or ("s" if is_in_seconds else unit_in_name(time))
    rate, is_of_steps = find_rate(columns)
    if rate:
        for row in rows:
            number = re.match(r"[\d.,eE+-]+", row.values.get(rate, ""))
            if number and (value := float(number[0].replace(",", "") or 0)) > 0:
                row.values["seconds"] = f"{1 / value!r} s"
        note = "no step times, so 1 / `{}` counts: factors between workers are right, seconds are not"
        return "seconds", ("mean step times from `{}`" if is_of_steps else note).format(rate), unit
    clock = next(iter(clocks), "")
    if clock and not resembles_clock(rows, clock):
        raise UnclearTraceError(
            f"{file.path}: the times in `{clock}` grow from each step to the next, for every worker: they look like "
            f"timestamps. If they are durations, set `columns` (time={clock})",
            remedies=[{"columns": {"time": clock}}],
        )
    if not clock:
        _check_dates(file, rows)
    add_differences(rows, step, clock)
    subject = f"`{clock}`, which grows" if clock else "the lines' dates"
    unit = unit or ("s" if not clock or has_unit(samples[clock]) else unit_in_name(clock))
    return "difference", f"step times are differences of {subject}: whole steps, waiting for others included", unit


def _check_dates(file: Content, rows: Sequence[Line]) -> None:
    """Raise FredError if the lines have no dates, or dates without parts of a second."""
    if not all(row.moment for row in rows):
        raise _no_times_error(file, "no line has both a step and a time")
    if not any(re.search(r":\d\d[.]\d", row.moment) for row in rows):
        raise _no_times_error(file, "its lines have dates in whole seconds, which are too coarse for step times")


def _refuse_unlabelled(file: Content, rows: Sequence[Line], steps: Sequence[str]) -> None:
    """Raise FredError if processes that write the same steps have no names: most steps repeat, with nothing that differs."""
    names = (*steps, *process_columns(rows))
    counts = Counter((*row.source.values(), *map(row.values.get, names)) for row in rows)
    repeated = sum(1 for count in counts.values() if count > 1)
    if repeated * 2 > len(counts):
        raise FredError(
            f"{file.path}: most steps stand there {max(counts.values())} times, and no line says from which rank. Write a file "
            "for each rank (`torchrun --redirects 3 --log-dir logs`, `srun --output step-%t.log`), or the rank before each "
            "line (`torchrun --tee 3`, `mpirun --tag-output`, `srun --label`)"
        )


def _parts(column: str, columns: Sequence[str]) -> list[str]:
    """Return the columns in the name of one, or of several joined by `+`."""
    return [column] if column in columns else column.split(PLUS)


def _is_text(rows: Sequence[Line], name: str) -> bool:
    return any(not re.match(r"[-+.\d]|nan|inf", row.values[name]) for row in rows if name in row.values)


def _describe_tool(file: Content) -> str:
    sample = sample_lines(file)
    return next((description for pattern, description in _DESCRIPTIONS.items() if re.search(pattern, sample)), "")


def _no_times_error(file: Content, problem: str) -> FredError:
    tool = _describe_tool(file)
    return FredError(
        f"{file.path}: {f'it is {tool}; ' if tool else ''}{problem}. FRED reads lines such as `step: 3, time: 402 ms`, with a "
        f"file for each rank or `rank=1` in each line, and tables such as iteration,worker,seconds; or {RECORDING_CURE}"
    )


CONSOLES = LogFormat(_CONSOLES_NAME, sniff_consoles, read_consoles)
