"""Long tables of times, in CSV or Parquet: one row for each gradient, for each operation, or for each iteration."""

from typing import cast

import numpy as np
from numpy.typing import NDArray

from fred.base.errors import FredError
from fred.base.words import briefly, listed
from fred.tables.columns import File, Floats, Labels
from fred.tables.quantities import PER_SECOND, Unit
from fred.tables.text_layout import RECORD
from fred.traces import wide
from fred.traces.cells import Cells, in_order, together
from fred.traces.guessing import makes_a_table, no_unit, repeated, to_be_said, ways
from fred.traces.log_columns import step_word
from fred.traces.operations import Operations, busy
from fred.traces.refusal import UnclearTraceError
from fred.traces.roles import (
    FILE,
    Role,
    Roles,
    Says,
    has_operations,
    has_times,
    is_communication,
    is_rate,
    is_wide,
    parts,
    roles_of,
    unit_of,
)

_MOST_ONCE = 0.8  # with a smaller share of rows without duplicates, rows of one gradient are operations
_FEWEST_POINTS = 10  # iterations over which a duration does not keep growing by chance
_MANY_POINTS = 20  # likewise, in a column that is called `seconds`


def cells_of(file: File, says: Says) -> Cells:
    """Return the times in a table.

    Args:
        file: the table.
        says: options from the user.

    Raises FredError, or UnclearTraceError if options can make the table readable.
    """
    file.restrict(says.only)
    roles = roles_of(str(file.path), file.header, says.columns)
    if (time := roles.get("time")) in file.header and "time" not in says.columns and file.has_moments(time):
        rest = [name for name in file.header if name != time]
        if is_wide(others := roles_of(str(file.path), rest, says.columns)):
            file.header, roles = rest, others  # a column of dates beside those of the workers
    if is_wide(roles):
        return wide.cells_of(file, says, roles)
    roles = _of_nodes(file, roles)
    _check_known(file, roles)
    if "worker" in roles.columns:
        return _Long(file, says, roles, []).cells()
    notes = ["no column names workers: each file is one worker's"]
    return _Long(file, says, Roles({**roles.columns, "worker": FILE}), notes).cells()


def _of_nodes(file: File, roles: Roles) -> Roles:
    """Use nodes as workers if nothing else identifies workers."""
    node = roles.get("node")
    if not node or "worker" in roles.columns:
        return roles
    columns: dict[Role, str] = {role: name for role, name in roles.columns.items() if role != "node"}
    same = Roles({**columns, "worker": node})
    one_each = "iteration" in same.columns and not has_operations(same) and makes_a_table(file, same)
    return same if one_each or not ways(file, roles) else roles


def _check_known(file: File, roles: Roles) -> None:
    """Raise UnclearTraceError if unknown columns may be the missing ones, FredError if there is no time."""
    missing = [role for role in ("iteration", "worker") if role not in roles.columns] + ([] if has_times(roles) else ["time"])
    if missing:
        problem = f"{file.path}: no column is known to be the {' or the '.join(missing)}; it has {listed(file.header)}"
        if proposed := ways(file, roles):
            raise to_be_said(problem, proposed)
        if "time" in missing:
            raise FredError(
                f"{problem}. Say what they are with `columns`, such as iteration: step, worker: rank, time: took; if none has "
                f"times, {RECORD}"
            )


class _Long:
    """A table with a row for each gradient, or several rows for its operations."""

    def __init__(self, file: File, says: Says, roles: Roles, notes: list[str]):
        self.file, self.says, self.roles, self.notes = file, says, roles, notes
        named: list[Role] = ["iteration", "worker", "node", "type"]
        labels = {name for role in named for name in parts(roles.get(role), file.header) if name not in ("", FILE)}
        times: list[Role] = ["time", "start", "end"]
        numbers = {name for role in times for name in parts(roles.get(role), file.header)} - {""}
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
        if self._are_operations(keys, len(first)):
            operations = self._operations(seconds, of)
            seconds = self._joined(seconds, of, len(first))
        else:
            self._check_fine(len(first) / len(keys))
            first, operations = np.arange(len(keys)), self._phases()
        return Cells(
            Labels(iteration.codes[first], iteration.names),
            Labels(worker.codes[first], worker.names),
            node and Labels(node.codes[first], node.names),
            seconds,
            self.row[first],
            self.file.where,
            self.roles.columns,
            (*self.file.notes, *self.notes),
            operations,
        )

    def _operations(self, seconds: Floats, of: NDArray[np.int64]) -> Operations | None:
        """Return the operations of all gradients, if a column has their kinds."""
        if not self.roles.get("type"):
            return None
        start = self._in_seconds(self.roles.get("start")) if "start" in self.roles.columns else None
        kind = self._column(self.roles.get("type"))
        known = kind.codes >= 0
        if not known.all():  # cells without a name are a kind of their own
            kind = Labels(np.where(known, kind.codes, len(kind.names)), [*kind.names, "no name"])
        return Operations(of, kind, seconds, start)

    def _phases(self) -> Operations | None:
        """Return the columns that add up to a time as operations, if there are several."""
        names = parts(self.roles.get("time"), self.file.header)
        if len(names) < 2:
            return None
        rows, several = len(self.row), len(names)
        kind = Labels(np.repeat(np.arange(several), rows), names)
        seconds = np.concatenate([self._in_seconds(name) for name in names])
        return Operations(np.tile(np.arange(rows), several), kind, seconds)

    def _are_operations(self, keys: NDArray[np.int64], gradients: int) -> bool:
        """Return True if rows of the same iteration and worker are operations, not duplicates."""
        if not has_operations(self.roles) or gradients == len(keys):
            return False
        if column := self.roles.get("type"):
            types = self.labels[column]
            if len(np.unique(keys * (len(types.names) + 1) + types.codes[self.row])) == len(keys):
                return True
        return gradients < _MOST_ONCE * len(keys)

    def _check_fine(self, once: float) -> None:
        """Raise UnclearTraceError for rows of the same iteration and worker that another column distinguishes."""
        if once < (_MOST_ONCE if self.says.mend else 1.0) and (error := repeated(self.file, self.roles, once)):
            raise error

    def _rows(self) -> NDArray[np.int64]:
        """Return the rows with all names. Raises UnclearTraceError if names are missing and no rows may be left out."""
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
            self.notes.append(f"{int(bare.sum()):,} rows without {listed(columns)} left out")
        return np.flatnonzero(~bare)

    def _leave_out_communication(self) -> None:
        """Keep only the rows of operations that compute."""
        if not (column := self.roles.get("type")):
            return
        types = self.labels[column]
        left = [number for number, name in enumerate(types.names) if is_communication(name)]
        counted = ~np.isin(types.codes[self.row], left)
        if not counted.any():
            raise FredError(f"{self.file.path}: by column `{column}`, all rows are communication: {briefly(types.names)}")
        if left:
            self.notes.append(f"left out as communication or waiting: {briefly([types.names[number] for number in left])}")
        self.row = self.row[counted]

    def _label(self, role: Role) -> Labels:
        """Return the labels of a role, from one column or several."""
        columns = [self._column(name) for name in parts(self.roles.get(role), self.file.header)]
        return together(columns) if len(columns) > 1 else in_order(columns[0])

    def _column(self, name: str) -> Labels:
        if name == FILE and name not in self.labels:
            return Labels(np.zeros(len(self.row), np.int64), [self.says.name])
        return Labels(self.labels[name].codes[self.row], self.labels[name].names)

    def _iteration(self, worker: Labels) -> Labels:
        """Return the column of iterations; without one, number the times of each worker."""
        column = self.roles.get("iteration")
        if column and column != FILE:
            return self._label("iteration")
        counts = np.bincount(worker.codes, minlength=len(worker.names))
        if (counts != counts[0]).any() or "type" in self.roles.columns:
            problem = (
                f"{self.file.path}: no column is called `iteration`, `step` or the like; it has {listed(self.file.header)}; "
                "expected one, or the same number of times for each worker"
            )
            steps = [name for name in self.roles.free(self.file.header) if step_word(name)]
            raise to_be_said(problem, [{"iteration": name} for name in steps]) if steps else FredError(problem)
        start = self.numbers.get(self.roles.get("start"), np.zeros(self.size))[self.row]
        order = np.lexsort((start, worker.codes))  # in the order of rows if there are no starts
        place = np.empty(len(order), np.int64)
        place[order] = np.tile(np.arange(counts[0]), len(counts))
        self.notes.append("no column of iterations: the k-th time of each worker is its iteration k")
        counted = Labels(place, list(map(str, range(counts[0]))))
        return together([self._column(FILE), counted]) if column else counted

    def _durations(self) -> Floats:
        """Return the duration of each row, s."""
        if "time" in self.roles.columns:
            for name in parts(self.roles.get("time"), self.file.header):
                if self.file.has_moments(name):
                    raise FredError(
                        f"{self.file.path}: `{name}` has dates, and `time` needs durations. If another column has the ends, "
                        f"set `columns` (start={name},end=COLUMN); if every other column is a worker, rename it to `date`"
                    )
            return np.sum([self._in_seconds(name) for name in parts(self.roles.get("time"), self.file.header)], axis=0)
        with np.errstate(invalid="ignore"):  # infinite dates count as missing
            return self._in_seconds(self.roles.get("end")) - self._in_seconds(self.roles.get("start"))

    def _in_seconds(self, name: str) -> Floats:
        """Return a column of durations or moments, s; of rates, the inverse."""
        if is_rate(name) and not self.file.unit(name):
            note = f"no step times, so 1 / `{name}` counts: factors between workers are right, seconds are not"
            self.notes += [note] if note not in self.notes else []
            with np.errstate(divide="ignore"):
                return 1 / self.numbers[name][self.row]
        return self.numbers[name][self.row] / PER_SECOND[self._unit(name)]

    def _unit(self, name: str) -> Unit:
        """Return the unit of a column: from its cells, the user, its name, or the names of the other columns."""
        if self.file.has_moments(name):
            return "s"
        if written := self.file.unit(name):
            self.notes += [note] if (note := f"times in {written}, as the cells of `{name}` say") not in self.notes else []
            return cast(Unit, written)
        others = (unit for each in sorted(self.numbers) if (unit := unit_of(each)))
        unit = self.says.unit or unit_of(name) or next(others, None)
        if unit is None:
            values = self.numbers[name]
            if "time" not in self.roles.columns:
                values = self.numbers[self.roles.get("end")] - self.numbers[self.roles.get("start")]
            raise no_unit(self.file, [name], values)
        if not self.says.unit and name != "seconds" and not any(note.startswith("times in ") for note in self.notes):
            self.notes.append(f"times in {unit}, as `{name if unit_of(name) else 'other columns'}` says")
        return unit

    def _check_no_moments(self, iteration: Labels, worker: Labels) -> None:
        """Raise FredError for times that only grow, for every worker: these are moments, not durations."""
        name = self.roles.get("time")
        if name not in self.numbers or "time" in self.says.columns:
            return
        order = np.lexsort((iteration.codes, worker.codes))
        values, same = self.numbers[name][self.row][order], np.diff(worker.codes[order]) == 0
        fewest = _MANY_POINTS if name == "seconds" else _FEWEST_POINTS
        if same.sum() >= (fewest - 1) * len(worker.names) and (np.diff(values)[same] > 0).all():
            raise FredError(
                f"{self.file.path}: the times in `{name}` grow from each iteration to the next, for every worker: they look "
                f"like timestamps; expected durations of iterations. If they are durations, set `columns` (time={name})"
                f"{self._differences(name)}"
            )

    def _differences(self, name: str) -> str:
        """Return a command that writes the table with the differences of a column, for each worker."""
        workers = [part for part in parts(self.roles.get("worker"), self.file.header) if part != FILE]
        values = f"t{f'.groupby({workers})' if workers else ''}['{name}']"
        command = self.file.command(f".assign(**{{'{name}': lambda t: {values}.diff()}}).dropna(subset=['{name}'])")
        return f"; if they are times since the start, take differences: {command}" if command else ""

    def _joined(self, seconds: Floats, of: NDArray[np.int64], number: int) -> Floats:
        """Return the time of each gradient: the union of its operations, or their sum if their starts are unknown."""
        shortest = np.full(number, np.inf)
        with np.errstate(invalid="ignore"):
            np.minimum.at(shortest, of, seconds)  # NaN if one is missing
        if "start" in self.roles.columns:
            start = self._in_seconds(self.roles.get("start"))
            known = np.isfinite(seconds) & np.isfinite(start)
            begin = start[known] - start[known].min(initial=np.inf)
            whole = busy(of[known], begin, begin + np.maximum(seconds[known], 0), number)
            self.notes.append("operations: the time in which at least one ran")
            shortest[of[~known]] = np.nan
        else:
            whole = np.bincount(of, seconds, minlength=number).astype(np.float64)
            self.notes.append(f"operations: the sum of each gradient's `{self.roles.get('type')}`")
        return np.where(shortest >= 0, whole, shortest)
