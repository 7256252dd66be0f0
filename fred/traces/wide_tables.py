"""Wide tables, with a column for each worker and a row for each iteration."""

import re
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from fred.base.errors import FredError, briefly, listed
from fred.base.types import Floats
from fred.tables.columns import File, Labels
from fred.tables.quantities import PER_SECOND, Unit, to_snake_case
from fred.tables.text_layout import RECORDING_CURE
from fred.traces.cells import Cells, combine_labels, sort_labels
from fred.traces.doubts import find_implausibility
from fred.traces.guessing import propose_columns, unclear_columns_error, unknown_unit_error
from fred.traces.roles import (
    FILE,
    PLUS,
    FileOptions,
    Role,
    Roles,
    UnclearTraceError,
    holds_no_times,
    is_waiting_time,
    split_columns,
    split_workers,
    unit_of,
)

_FEWEST_ROWS = 8  # rows; fewer may be anything
_PHASE = re.compile(r"(?:^|_)(?:forward|fwd|backward|bwd|optim\w*)(?:_|$)")  # in the name of a phase of a step
_MACHINE = re.compile("mpi|node|host", re.IGNORECASE)  # in the name of a machine that is called after its purpose
_TIME = re.compile(r"(?:^|_)(?:time|seconds|duration|latency)(?:_|$)")


def read_cells(file: File, options: FileOptions, roles: Roles) -> Cells:
    """Return the times in a table with a column for each worker.

    Args:
        file: the table.
        options: options from the user.
        roles: known roles of its columns.

    Raises FredError, or UnclearTraceError if options can make the table readable.
    """
    iteration_role = roles.get("iteration")  # one column, several, `FILE`, or none
    workers, excluded = split_workers(file.header, iteration_role)
    if not workers:
        raise FredError(f"{file.path} has no column of times; it has {listed(file.header)}; {RECORDING_CURE}")
    _refuse_phases(file, workers)
    parts = [part for part in split_columns(iteration_role, file.header) if part]
    iteration_columns = [part for part in parts if part != FILE]
    try:
        labels, numbers = file.columns(iteration_columns, workers)
    except FredError as error:
        raise _wide_table_error(file, roles, error) from None
    if not iteration_columns:
        for worker in workers:
            _refuse_counter(file, roles, worker, numbers[worker])
    rows, columns = len(next(iter(numbers.values()))), len(workers)
    for column in iteration_columns:
        _check_filled(file, roles, column, labels[column])
    row_numbers = Labels(np.arange(rows), list(map(str, range(rows))))
    file_name = Labels(np.zeros(rows, np.int64), [options.name])
    iteration_labels = [file_name if part == FILE else labels[part] for part in parts]
    iteration = combine_labels([*iteration_labels, *([] if iteration_columns else [row_numbers])])
    _check_plausible(file, workers, numbers)
    units, names = _units(file, options, workers, numbers)
    if options.columns.get("worker", "").startswith(FILE):
        names = [f"{options.name}/{column}" for column in names]
    worker_of_cell = sort_labels(Labels(np.tile(np.arange(columns), rows), names))
    notes = [f"each column is a worker: {briefly(names)}", *([f"columns left out: {briefly(excluded)}"] if excluded else [])]
    node = Labels(np.zeros(rows * columns, np.int64), [options.name]) if options.columns.get("node") == FILE else None
    return Cells(
        iteration=Labels(np.repeat(iteration.codes, columns), iteration.names),
        worker=worker_of_cell,
        node=node,
        seconds=(np.stack([numbers[column] for column in workers], axis=1) / [PER_SECOND[unit] for unit in units]).ravel(),
        row=np.repeat(np.arange(rows), columns),
        describe_row=file.describe_row,
        columns=roles.columns,
        notes=(*file.notes, *notes),
        collective=briefly(workers) if all(is_waiting_time(name) and not _MACHINE.search(name) for name in workers) else "",
    )


def _units(
    file: File, options: FileOptions, workers: Sequence[str], numbers: Mapping[str, Floats]
) -> tuple[list[Unit], list[str]]:
    """Return the unit of each worker's times, and the names of the workers without it."""
    units_of_cells = [cast(Unit | None, file.unit(worker) or None) for worker in workers]  # or that of a row of units
    other_units = {
        options.unit or unit_of(worker) for worker, unit in zip(workers, units_of_cells, strict=True) if unit is None
    }
    other_unit = other_units.pop() if len(other_units) == 1 else None
    units = [unit or other_unit for unit in units_of_cells]
    if None in units:
        raise unknown_unit_error(file, workers, np.concatenate([numbers[worker] for worker in workers]))
    if options.unit or any(units_of_cells):
        return cast(list[Unit], units), list(workers)
    # The last word of each name is its unit. It stays if the names would be empty or equal without it.
    stems = [re.sub(r"[\W_]*[^\W_]+\W*$", "", worker) for worker in workers]
    return cast(list[Unit], units), stems if all(stems) and len(set(stems)) == len(stems) else list(workers)


def _wide_table_error(file: File, roles: Roles, error: FredError) -> FredError:
    """Return the error about a table whose columns are neither recognised nor all times."""
    problem = f"{error}; without columns of workers and times, each column is read as one worker's times"
    times = [name for name in roles.unassigned(file.header) if _TIME.search(to_snake_case(name)) and not holds_no_times(name)]
    one_worker_per_file: list[dict[Role, str]] = [{"worker": FILE, "time": name} for name in times]
    proposals = propose_columns(file, roles) or one_worker_per_file
    if proposals:
        return unclear_columns_error(problem, proposals)
    return FredError(f"{problem}. If none has times, {RECORDING_CURE}")


def _refuse_phases(file: File, workers: Sequence[str]) -> None:
    """Raise FredError for columns that are phases of a step, such as `forward_ms`; UnclearTraceError if they add up to one."""
    phases = [name for name in workers if _PHASE.search(to_snake_case(name)) and not re.search(r"\d", name)]
    if not phases:
        return
    problem = f"{listed(phases)} {'are phases' if phases[1:] else 'is a phase'} of a step, not a worker's times"
    if not all(re.search(passes, " ".join(map(to_snake_case, phases))) for passes in ("forward|fwd", "backward|bwd")):
        raise FredError(f"{file.path}: {problem}; {RECORDING_CURE}")
    proposal: dict[Role, str] = {"worker": FILE, "time": PLUS.join(phases)}
    raise unclear_columns_error(f"{file.path}: {problem}", [proposal])


def _check_plausible(file: File, workers: Sequence[str], numbers: Mapping[str, Floats]) -> None:
    """Raise FredError for columns of different names whose values are no times of the same steps."""
    if len({re.sub(r"\d+", "0", worker) for worker in workers}) == 1:
        return  # such as rank0, rank1
    table = np.stack([numbers[worker] for worker in workers], axis=1)
    complete = table[np.isfinite(table).all(axis=1)]
    if len(complete) >= _FEWEST_ROWS and (reason := find_implausibility(complete, tuple(workers))):
        raise FredError(
            f"{file.path}: no column names workers, so each column would be one worker's times; but {reason}. Name the columns "
            "(`columns: {worker: FILE, iteration: COLUMN, time: COLUMN}`), or leave out those that are no workers; if none has "
            f"times, {RECORDING_CURE}"
        )


def _check_filled(file: File, roles: Roles, name: str, labels: Labels) -> None:
    """Raise FredError for a row without an iteration."""
    empty = labels.codes < 0
    if empty.any():
        error = FredError(f"{file.describe_row(int(np.argmax(empty)))}: nothing in column `{name}`; every row needs it")
        raise _wide_table_error(file, roles, error)


def _refuse_counter(file: File, roles: Roles, name: str, numbers: Floats) -> None:
    """Raise UnclearTraceError if a worker's column looks like a counter of rows or iterations.

    A counter that repeats numbers counts the iterations of a long table, of which other columns may be worker and time.
    """
    steps = np.diff(numbers)
    if len(numbers) <= 2 or not np.isin(steps, (0, 1)).all() or not steps.any():
        return
    as_iteration: Mapping[Role, str] = {"iteration": name}
    proposals = propose_columns(file, roles) if (steps == 0).any() else [as_iteration]
    raise UnclearTraceError(
        f"{file.path}: column `{name}` counts rows; if these are iterations, set `columns` (iteration={name}), else remove it",
        remedies=[{"columns": proposal} for proposal in proposals or [as_iteration]],
    )
