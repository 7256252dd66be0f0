"""Tables of times, as they are in CSV and Parquet: one row for each gradient, for each operation, or for each iteration."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fred.errors import FredError
from fred.traces.columns import File, Labels, Numbers, listed
from fred.traces.guessing import finer, makes_a_table, ways
from fred.traces.operations import briefly, busy, is_communication
from fred.traces.parts import Cells, in_order, together
from fred.traces.refusal import UnclearTraceError
from fred.traces.roles import (
    FILE,
    PER_SECOND,
    Role,
    Roles,
    Unit,
    has_operations,
    has_times,
    is_wide,
    parts,
    roles_of,
    unit_of,
    workers_of,
)

_MOST_ONCE = 0.8  # share of rows that are no second ones, below which a column that tells them apart is looked for
_FEWEST_POINTS = 10  # iterations through which a duration does not grow by chance
_USUAL: dict[Unit, float] = {"s": 1e2, "ms": 1e5, "us": 1e8}  # medians below these are probably in this unit


@dataclass(frozen=True)
class Says:
    """What the user says of a file.

    Args:
        columns: what it calls its columns.
        unit: of its times, if it is said.
        mend: whether rows that name no iteration or worker may be left out.
        name: a short name of the file.
        several: whether it is one of several.
    """

    columns: Mapping[Role, str]
    unit: Unit | None
    mend: bool
    name: str
    several: bool


def cells_of(file: File, says: Says) -> Cells:
    """Return the times in a table.

    Args:
        file: the table.
        says: what the user says of it.

    Raises FredError, UnclearTraceError where something has to be said of it.
    """
    roles = roles_of(str(file.path), file.header, says.columns)
    if is_wide(roles):
        return _wide(file, says, roles)
    roles = _of_nodes(file, roles)
    _check_known(file, roles)
    if "worker" in roles.columns:
        return _Long(file, says, roles, []).cells()
    notes = ["no column names workers: each file is one worker's"]
    return _Long(file, says, Roles({**roles.columns, "worker": FILE}), notes).cells()


def _of_nodes(file: File, roles: Roles) -> Roles:
    """Return the same with nodes as workers, where nothing else can name them."""
    node = roles.get("node")
    if not node or "worker" in roles.columns:
        return roles
    columns: dict[Role, str] = {role: name for role, name in roles.columns.items() if role != "node"}
    same = Roles({**columns, "worker": node})
    one_each = "iteration" in same.columns and not has_operations(same) and makes_a_table(file, same)
    return same if one_each or not ways(file, roles) else roles


def _check_known(file: File, roles: Roles) -> None:
    """Refuse a table in which unknown columns may be what is missing. Raises UnclearTraceError, FredError without a time."""
    missing = [role for role in ("iteration", "worker") if role not in roles.columns] + ([] if has_times(roles) else ["time"])
    if missing:
        problem = f"{file.path}: no column is known to be the {' or the '.join(missing)}; it has {listed(file.header)}"
        if proposed := ways(file, roles):
            raise _to_be_said(problem, proposed)
        if "time" in missing:
            raise FredError(f"{problem}. Say what they are with `columns`, such as iteration: step, worker: rank, time: took")


def _to_be_said(problem: str, proposed: Sequence[Mapping[Role, str]]) -> UnclearTraceError:
    """Return a refusal that proposes what columns may be."""
    likely = ", ".join(f"{role}: {name}" for role, name in proposed[0].items())
    return UnclearTraceError(
        f"{problem}. Say what they are (`columns: {{{likely}}}`)", remedies=[{"columns": way} for way in proposed]
    )


class _Long:
    """A table with a row for each gradient, or several for its operations."""

    def __init__(self, file: File, says: Says, roles: Roles, notes: list[str]):
        self.file, self.says, self.roles, self.notes = file, says, roles, notes
        named: list[Role] = ["iteration", "worker", "node", "type"]
        labels = {name for role in named for name in parts(roles.get(role), file.header) if name not in ("", FILE)}
        numbers = {roles.get(role) for role in ("time", "start", "end")} - {""}
        self.labels, self.numbers = file.columns(sorted(labels), sorted(numbers))
        self.size = len(next(iter(self.numbers.values())))
        self.row = self._rows()

    def cells(self) -> Cells:
        """Return the times, one for each gradient."""
        self._leave_out_communication()
        worker = self._label("worker")
        node = self._label("node") if self.roles.get("node") else None
        iteration = self._iteration(worker)
        seconds = self._durations()
        self._check_no_moments(iteration, worker)
        keys = iteration.codes * len(worker.names) + worker.codes
        if node is not None:
            keys = keys * len(node.names) + node.codes
        _, first, of = np.unique(keys, return_index=True, return_inverse=True)
        if len(first) == len(keys) or not has_operations(self.roles):
            self._check_fine(len(first) / len(keys))
            first = np.arange(len(keys))
        else:
            seconds = self._joined(seconds, of, len(first))
        return Cells(
            Labels(iteration.codes[first], iteration.names),
            Labels(worker.codes[first], worker.names),
            node and Labels(node.codes[first], node.names),
            seconds,
            self.row[first],
            self.file.where,
            self.roles.columns,
            tuple(self.notes),
        )

    def _check_fine(self, once: float) -> None:
        """Refuse many rows of the same iteration and worker that a column tells apart. Raises UnclearTraceError."""
        if once < _MOST_ONCE and (proposed := finer(self.file, self.roles)):
            again = f"{1 - once:.0%} of the rows are of an iteration and worker that were there before"
            raise _to_be_said(f"{self.file.path}: {again}", proposed)

    def _rows(self) -> NDArray[np.int64]:
        """Return the rows that name what they must. Raises UnclearTraceError where some do not and none may be left out."""
        needed: list[Role] = ["iteration", "worker", "node"]
        columns = [name for role in needed for name in parts(self.roles.get(role), self.file.header) if name in self.labels]
        bare = np.zeros(self.size, bool)
        for name in columns:
            empty = self.labels[name].codes < 0
            if empty.any() and not self.says.mend:
                raise UnclearTraceError(
                    f"{self.file.where(int(np.argmax(empty)))}: nothing in column `{name}`; every row needs it. "
                    "`mend: drop`, or `fill`, leaves such rows out",
                    remedies=[{"mend": "drop"}, {"mend": "fill"}],
                )
            bare |= empty
        if bare.any():
            self.notes.append(f"{int(bare.sum()):,} rows left out that name no {listed(columns)}")
        return np.flatnonzero(~bare)

    def _leave_out_communication(self) -> None:
        """Keep the rows of operations that compute."""
        if not (column := self.roles.get("type")):
            return
        types = self.labels[column]
        left = [number for number, name in enumerate(types.names) if is_communication(name)]
        counted = ~np.isin(types.codes[self.row], left)
        if not counted.any():
            raise FredError(f"{self.file.path}: by column `{column}` all rows are communication: {briefly(types.names)}")
        if left:
            self.notes.append(f"left out as communication or waiting: {briefly([types.names[number] for number in left])}")
        self.row = self.row[counted]

    def _label(self, role: Role) -> Labels:
        """Return the column, or columns, by which something is named."""
        columns = [self._column(name) for name in parts(self.roles.get(role), self.file.header)]
        return together(columns) if len(columns) > 1 else in_order(columns[0])

    def _column(self, name: str) -> Labels:
        if name == FILE and name not in self.labels:
            return Labels(np.zeros(len(self.row), np.int64), [self.says.name])
        return Labels(self.labels[name].codes[self.row], self.labels[name].names)

    def _iteration(self, worker: Labels) -> Labels:
        """Return the column of iterations; without one, what a worker's time is the how-manieth."""
        column = self.roles.get("iteration")
        if column and column != FILE:
            return self._label("iteration")
        counts = np.bincount(worker.codes, minlength=len(worker.names))
        if (counts != counts[0]).any() or "type" in self.roles.columns:
            raise FredError(
                f"{self.file.path}: no column is called `iteration`, `step` or the like; it has {listed(self.file.header)}; "
                "expected one, or as many times of each worker"
            )
        order = np.argsort(worker.codes, kind="stable")
        place = np.empty(len(order), np.int64)
        place[order] = np.tile(np.arange(counts[0]), len(counts))
        self.notes.append("no column of iterations: the k-th time of each worker is of iteration k")
        counted = Labels(place, list(map(str, range(counts[0]))))
        return together([self._column(FILE), counted]) if column else counted

    def _durations(self) -> Numbers:
        """Return how long each row lasted, s."""
        if "time" in self.roles.columns:
            return self._in_seconds(self.roles.get("time"))
        return self._in_seconds(self.roles.get("end")) - self._in_seconds(self.roles.get("start"))

    def _in_seconds(self, name: str) -> Numbers:
        """Return a column of times or moments, s."""
        return self.numbers[name][self.row] / PER_SECOND[self._unit(name)]

    def _unit(self, name: str) -> Unit:
        """Return the unit of a column: as the user says, or its name, or else the name of the other columns."""
        if self.file.has_moments(name):
            return "s"
        others = (unit for each in sorted(self.numbers) if (unit := unit_of(each)))
        unit = self.says.unit or unit_of(name) or next(others, None)
        if unit is None:
            rows = [self.numbers[self.roles.get(role)] for role in ("time", "end", "start") if role in self.roles.columns]
            raise _no_unit(self.file, [name], rows[0] if "time" in self.roles.columns else rows[0] - rows[1])
        if not self.says.unit and name != "seconds" and not any(note.startswith("times in ") for note in self.notes):
            self.notes.append(f"times in {unit}, as `{name if unit_of(name) else 'other columns'}` says")
        return unit

    def _check_no_moments(self, iteration: Labels, worker: Labels) -> None:
        """Refuse times that only grow, for every worker: they say when, not how long. Raises FredError."""
        name = self.roles.get("time")
        if name in ("", "seconds") or "time" in self.says.columns:
            return
        order = np.lexsort((iteration.codes, worker.codes))
        values, same = self.numbers[name][self.row][order], np.diff(worker.codes[order]) == 0
        if same.sum() >= (_FEWEST_POINTS - 1) * len(worker.names) and (np.diff(values)[same] > 0).all():
            raise FredError(
                f"{self.file.path}: the times in `{name}` grow from each iteration to the next, for every worker: they seem to "
                f"be moments; expected how long each iteration took. If they are that, say so with `columns` (time={name})"
            )

    def _joined(self, seconds: Numbers, of: NDArray[np.int64], number: int) -> Numbers:
        """Return the time of each gradient: of its operations' union, or their sum where nothing says when they ran."""
        shortest = np.full(number, np.inf)
        np.minimum.at(shortest, of, seconds)  # NaN where one is missing
        if "start" in self.roles.columns:
            start = self._in_seconds(self.roles.get("start"))
            start = start - np.nanmin(start)
            known = ~np.isnan(seconds) & ~np.isnan(start)
            whole = busy(of[known], start[known], start[known] + np.maximum(seconds[known], 0), number)
            self.notes.append("operations: the time in which at least one ran")
            shortest[of[~known]] = np.nan
        else:
            whole = np.bincount(of, seconds, minlength=number).astype(np.float64)
            self.notes.append(f"operations: the sum of each gradient's `{self.roles.get('type')}`")
        return np.where(shortest >= 0, whole, shortest)


def _wide(file: File, says: Says, roles: Roles) -> Cells:
    """Return the times of a table with a column for each worker."""
    name = roles.get("iteration")
    workers, others = workers_of(file.header, name)
    if not workers:
        raise FredError(f"{file.path} has no column of times; it has {listed(file.header)}")
    counted = [each for each in parts(name, file.header) if each not in ("", FILE)]
    try:
        labels, numbers = file.columns(counted, workers)
    except FredError as error:
        raise _not_wide(file, roles, error) from None
    for worker in workers if not counted else ():
        _check_no_count(file, roles, worker, numbers[worker])
    rows, columns = len(next(iter(numbers.values()))), len(workers)
    for each in counted:
        if (labels[each].codes < 0).any():
            raise FredError(
                f"{file.where(int(np.argmax(labels[each].codes < 0)))}: nothing in column `{each}`; every row needs it"
            )
    order = Labels(np.arange(rows), list(map(str, range(rows))))
    file_name = Labels(np.zeros(rows, np.int64), [says.name])
    several = [file_name if each == FILE else labels[each] for each in parts(name, file.header) if each]
    iteration = together([*several, *([] if counted else [order])])
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
        tuple(notes),
    )


def _unit_of_all(file: File, says: Says, workers: Sequence[str], numbers: Mapping[str, Numbers]) -> tuple[Unit, list[str]]:
    """Return the unit of a wide table, and the names of its workers without it."""
    units = {unit_of(worker) for worker in workers}
    unit = says.unit or (units.pop() if len(units) == 1 else None)
    if unit is None:
        raise _no_unit(file, workers, np.concatenate([numbers[worker] for worker in workers]))
    if says.unit:
        return unit, list(workers)
    short = [re.sub(r"[\W_]*[^\W_]+\W*$", "", worker) for worker in workers]
    return unit, short if all(short) and len(set(short)) == len(short) else list(workers)


def _no_unit(file: File, columns: Sequence[str], values: Numbers) -> UnclearTraceError:
    """Return the refusal of times whose unit nobody says, with the most probable one first."""
    median = float(np.nanmedian(np.abs(values))) if np.isfinite(values).any() else 1.0
    likely: Unit = next((unit for unit, most in _USUAL.items() if median < most), "ns")
    units = [likely, *(unit for unit in PER_SECOND if unit != likely)]
    where = f"`{columns[0]}`" if len(columns) == 1 else f"columns {briefly(columns)}"
    return UnclearTraceError(
        f"{file.path}: in which unit are the times in {where}? Their median is {median:.4g}. Say it: `unit: {likely}`, or "
        f"{', '.join(units[1:])}",
        remedies=[{"unit": unit} for unit in units],
    )


def _not_wide(file: File, roles: Roles, error: FredError) -> FredError:
    """Return the refusal of a table whose columns are neither called as FRED knows them nor all times."""
    said = f"{error}; without columns of workers and times each column is a worker's times"
    proposed = ways(file, roles)
    return _to_be_said(said, proposed) if proposed else FredError(said)


def _check_no_count(file: File, roles: Roles, name: str, numbers: Numbers) -> None:
    """Refuse to take a count of rows, or of iterations that have several, for a worker's times. Raises UnclearTraceError."""
    steps = np.diff(numbers)
    if len(numbers) <= 2 or not np.isin(steps, (0, 1)).all() or not steps.any():
        return
    alone: Mapping[Role, str] = {"iteration": name}
    proposed = ways(file, roles) if (steps == 0).any() else [alone]
    raise UnclearTraceError(
        f"{file.path}: column `{name}` counts; if iterations, say so with `columns` (iteration={name}), or else remove it",
        remedies=[{"columns": way} for way in proposed or [alone]],
    )
