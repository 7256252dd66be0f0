"""Wide tables, with a column for each worker and a row for each iteration."""

import re
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from fred.base.errors import FredError
from fred.base.words import briefly, listed
from fred.tables.columns import File, Floats, Labels
from fred.tables.quantities import PER_SECOND, Unit
from fred.tables.text_layout import RECORD
from fred.traces.cells import Cells, in_order, together
from fred.traces.guessing import no_unit, to_be_said, ways
from fred.traces.plausible import doubt
from fred.traces.refusal import UnclearTraceError
from fred.traces.roles import AND, FILE, Role, Roles, Says, parts, plain, stands_beside_times, unit_of, workers_of

_FEWEST = 8  # rows; fewer may be anything
_PASS = re.compile(r"(?:^|_)(?:forward|fwd|backward|bwd|optim\w*)(?:_|$)")  # in the name of a phase of a step
_TIME = re.compile(r"(?:^|_)(?:time|seconds|duration|latency)(?:_|$)")


def cells_of(file: File, says: Says, roles: Roles) -> Cells:
    """Return the times in a table with a column for each worker.

    Args:
        file: the table.
        says: options from the user.
        roles: known roles of its columns.

    Raises FredError, or UnclearTraceError if options can make the table readable.
    """
    name = roles.get("iteration")
    workers, others = workers_of(file.header, name)
    if not workers:
        raise FredError(f"{file.path} has no column of times; it has {listed(file.header)}; {RECORD}")
    _check_no_phases(file, workers)
    counted = [each for each in parts(name, file.header) if each not in ("", FILE)]
    try:
        labels, numbers = file.columns(counted, workers)
    except FredError as error:
        raise _not_wide(file, roles, error) from None
    for worker in workers if not counted else ():
        _check_no_count(file, roles, worker, numbers[worker])
    rows, columns = len(next(iter(numbers.values()))), len(workers)
    for each in counted:
        _check_filled(file, roles, each, labels[each])
    order = Labels(np.arange(rows), list(map(str, range(rows))))
    file_name = Labels(np.zeros(rows, np.int64), [says.name])
    several = [file_name if each == FILE else labels[each] for each in parts(name, file.header) if each]
    iteration = together([*several, *([] if counted else [order])])
    _check_plausible(file, workers, numbers)
    unit, called = _unit_of_all(file, says, workers, numbers)
    if says.columns.get("worker", "").startswith(FILE):
        called = [f"{says.name}/{each}" for each in called]
    of_cells = in_order(Labels(np.tile(np.arange(columns), rows), called))
    notes = [f"each column is a worker: {briefly(called)}", *([f"columns left out: {briefly(others)}"] if others else [])]
    node = Labels(np.zeros(rows * columns, np.int64), [says.name]) if says.columns.get("node") == FILE else None
    return Cells(
        Labels(np.repeat(iteration.codes, columns), iteration.names),
        of_cells,
        node,
        np.stack([numbers[each] for each in workers], axis=1).ravel() / PER_SECOND[unit],
        np.repeat(np.arange(rows), columns),
        file.where,
        roles.columns,
        (*file.notes, *notes),
    )


def _unit_of_all(file: File, says: Says, workers: Sequence[str], numbers: Mapping[str, Floats]) -> tuple[Unit, list[str]]:
    """Return the unit of a wide table, and the names of its workers without it."""
    units = {cast(Unit | None, file.unit(worker) or None) or unit_of(worker) for worker in workers}
    if any(map(file.unit, workers)) and len(units) == 1:
        return cast(Unit, units.pop()), list(workers)
    unit = says.unit or (units.pop() if len(units) == 1 else None)
    if unit is None:
        raise no_unit(file, workers, np.concatenate([numbers[worker] for worker in workers]))
    if says.unit:
        return unit, list(workers)
    short = [re.sub(r"[\W_]*[^\W_]+\W*$", "", worker) for worker in workers]
    return unit, short if all(short) and len(set(short)) == len(short) else list(workers)


def _not_wide(file: File, roles: Roles, error: FredError) -> FredError:
    """Return the error about a table whose columns are neither recognised nor all times."""
    said = f"{error}; without columns of workers and times, each column is read as one worker's times"
    times = [name for name in roles.free(file.header) if _TIME.search(plain(name)) and not stands_beside_times(name)]
    of_files: list[dict[Role, str]] = [{"worker": FILE, "time": name} for name in times]
    proposed = ways(file, roles) or of_files
    return to_be_said(said, proposed) if proposed else FredError(f"{said}. If none has times, {RECORD}")


def _check_no_phases(file: File, workers: Sequence[str]) -> None:
    """Raise FredError for columns that are phases of a step, such as `forward_ms`; UnclearTraceError if they add up to one."""
    phases = [name for name in workers if _PASS.search(plain(name)) and not re.search(r"\d", name)]
    if not phases:
        return
    are = f"{listed(phases)} {'are phases' if phases[1:] else 'is a phase'} of a step, not a worker's times"
    if not all(re.search(passes, " ".join(map(plain, phases))) for passes in ("forward|fwd", "backward|bwd")):
        raise FredError(f"{file.path}: {are}; {RECORD}")
    way: dict[Role, str] = {"worker": FILE, "time": AND.join(phases)}
    raise to_be_said(f"{file.path}: {are}", [way])


def _check_plausible(file: File, workers: Sequence[str], numbers: Mapping[str, Floats]) -> None:
    """Raise FredError for columns of different names whose values are no times of the same steps."""
    if len({re.sub(r"\d+", "0", worker) for worker in workers}) == 1:
        return  # such as rank0, rank1
    table = np.stack([numbers[worker] for worker in workers], axis=1)
    whole = table[np.isfinite(table).all(axis=1)]
    if len(whole) >= _FEWEST and (reason := doubt(whole, tuple(workers))):
        raise FredError(
            f"{file.path}: no column names workers, so each column would be one worker's times; but {reason}. Name the columns "
            "(`columns: {worker: FILE, iteration: COLUMN, time: COLUMN}`), or leave out those that are no workers; if none has "
            f"times, {RECORD}"
        )


def _check_filled(file: File, roles: Roles, name: str, labels: Labels) -> None:
    """Raise FredError for a row without an iteration."""
    empty = labels.codes < 0
    if empty.any():
        error = FredError(f"{file.where(int(np.argmax(empty)))}: nothing in column `{name}`; every row needs it")
        raise _not_wide(file, roles, error)


def _check_no_count(file: File, roles: Roles, name: str, numbers: Floats) -> None:
    """Raise UnclearTraceError if a worker's column looks like a counter of rows or iterations."""
    steps = np.diff(numbers)
    if len(numbers) <= 2 or not np.isin(steps, (0, 1)).all() or not steps.any():
        return
    alone: Mapping[Role, str] = {"iteration": name}
    proposed = ways(file, roles) if (steps == 0).any() else [alone]
    raise UnclearTraceError(
        f"{file.path}: column `{name}` counts rows; if these are iterations, set `columns` (iteration={name}), else remove it",
        remedies=[{"columns": way} for way in proposed or [alone]],
    )
