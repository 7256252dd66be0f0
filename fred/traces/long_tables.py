"""Long tables of times, in CSV or Parquet: one row for each gradient, for each operation, or for each iteration."""

from functools import partial
from typing import cast

import numpy as np
from numpy.typing import NDArray

from fred.base.errors import FredError, briefly, listed
from fred.base.types import Floats
from fred.tables.columns import File, Labels
from fred.tables.quantities import PER_SECOND, Unit
from fred.tables.text_layout import RECORDING_CURE
from fred.traces import wide_tables
from fred.traces.cells import Cells, combine_labels, sort_labels
from fred.traces.doubts import check_no_event_pairs
from fred.traces.guessing import forms_table, propose_columns, repeated_rows_error, unclear_columns_error, unknown_unit_error
from fred.traces.log_rows import step_word
from fred.traces.operations import Operations, busy_times
from fred.traces.roles import (
    FILE,
    FileOptions,
    Role,
    Roles,
    UnclearTraceError,
    find_roles,
    has_operations,
    has_times,
    is_communication,
    is_rate,
    is_waiting_time,
    is_wide,
    split_columns,
    unit_of,
)

_LEAST_UNIQUE = 0.8  # with a smaller share of rows without duplicates, rows of one gradient are operations
_LEAST_DATE = 1e9  # s since 1970
_FEWEST_POINTS = 10  # iterations over which a duration does not keep growing by chance
_MANY_POINTS = 20  # likewise, in a column called `seconds`: FRED's own name for durations, so growth has to last longer


def read_cells(file: File, options: FileOptions) -> Cells:
    """Return the times in a table.

    Args:
        file: the table.
        options: options from the user.

    Raises FredError, or UnclearTraceError if options can make the table readable.
    """
    file.restrict(options.only)
    roles = find_roles(str(file.path), file.header, options.columns, partial(_holds_dates, file))
    if (time := roles.get("time")) in file.header and "time" not in options.columns and file.has_moments(time):
        # `time` has dates, so it may stand next to a column of each worker. Then it is left out.
        other_columns = [name for name in file.header if name != time]
        if is_wide(wide_roles := find_roles(str(file.path), other_columns, options.columns)):
            file.header, roles = other_columns, wide_roles
    if is_wide(roles):
        return wide_tables.read_cells(file, options, roles)
    roles = _use_nodes_as_workers(file, roles)
    check_no_event_pairs(file, roles)
    _check_complete(file, roles)
    if "worker" in roles.columns:
        return _LongTable(file, options, roles, []).cells()
    notes = ["no column names workers: each file is one worker's"]
    return _LongTable(file, options, Roles({**roles.columns, "worker": FILE}), notes).cells()


def _holds_dates(file: File, name: str) -> bool:
    """Return True for a column of dates, also in s since 1970, without a unit."""
    if file.has_moments(name):
        return True
    try:
        numbers = file.columns([], [name])[1][name]
    except FredError:
        return False
    return unit_of(name) is None and bool(np.nanmin(numbers, initial=np.inf) > _LEAST_DATE)


def _use_nodes_as_workers(file: File, roles: Roles) -> Roles:
    """Return the roles with the column of nodes as that of workers, if nothing else identifies workers."""
    node = roles.get("node")
    if not node or "worker" in roles.columns:
        return roles
    columns: dict[Role, str] = {role: name for role, name in roles.columns.items() if role != "node"}
    node_roles = Roles({**columns, "worker": node})
    has_one_worker_per_node = (
        "iteration" in node_roles.columns and not has_operations(node_roles) and forms_table(file, node_roles)
    )
    # With proposals, `_check_complete` asks which column has the workers.
    return node_roles if has_one_worker_per_node or not propose_columns(file, roles) else roles


def _check_complete(file: File, roles: Roles) -> None:
    """Raise UnclearTraceError if unknown columns may be the missing ones, FredError if there is no time.

    If no column may be the missing iteration or worker, `_LongTable` numbers the rows, and the file is one worker's.
    """
    missing = [role for role in ("iteration", "worker") if role not in roles.columns] + ([] if has_times(roles) else ["time"])
    if missing:
        problem = f"{file.path}: no column is known to be the {' or the '.join(missing)}; it has {listed(file.header)}"
        if proposals := propose_columns(file, roles):
            raise unclear_columns_error(problem, proposals)
        if "time" in missing:
            raise FredError(
                f"{problem}. Say what they are with `columns`, such as iteration: step, worker: rank, time: took; if none has "
                f"times, {RECORDING_CURE}"
            )


class _LongTable:
    """A table with a row for each gradient, or several rows for its operations.

    `labels` and `numbers` hold all `size` rows of the file. `row` has the numbers of the rows that count: columns of gradients
    and operations are those of these rows.
    """

    def __init__(self, file: File, options: FileOptions, roles: Roles, notes: list[str]):
        self.file, self.options, self.roles, self.notes = file, options, roles, notes
        naming: list[Role] = ["iteration", "worker", "node", "type"]
        labels = {name for role in naming for name in self._names(role) if name not in ("", FILE)}
        times: list[Role] = ["time", "start", "end"]
        numbers = {name for role in times for name in self._names(role)} - {""}
        self.labels, self.numbers = file.columns(sorted(labels), sorted(numbers))
        self.size = len(next(iter(self.numbers.values())))
        self.row = self._rows()

    def _names(self, role: Role) -> list[str]:
        """Return the columns of a role; an empty name if it has none."""
        return split_columns(self.roles.get(role), self.file.header)

    def cells(self) -> Cells:
        """Return the times, one for each gradient."""
        self._exclude_communication()
        worker = self._role_labels("worker")
        node = self._role_labels("node") if self.roles.get("node") else None
        iteration = self._iteration(worker)
        seconds = self._durations()
        self._check_no_moments(iteration, worker)
        keys = iteration.codes * len(worker.names) + worker.codes
        if node is not None:
            keys = keys * len(node.names) + node.codes
        _, first_row, gradient_of = np.unique(keys, return_index=True, return_inverse=True)
        if self._are_operations(keys, len(first_row)):
            operations = self._operations(seconds, gradient_of)
            seconds = self._join_operations(seconds, gradient_of, len(first_row))
        else:  # each row is a gradient; duplicates stay, for `mend_table` to report or repair
            self._check_repeated_rows(unique_share=len(first_row) / max(1, len(keys)))
            first_row, operations = np.arange(len(keys)), self._phases()
        return Cells(
            iteration=Labels(iteration.codes[first_row], iteration.names),
            worker=Labels(worker.codes[first_row], worker.names),
            node=node and Labels(node.codes[first_row], node.names),
            seconds=seconds,
            row=self.row[first_row],
            describe_row=self.file.describe_row,
            columns=self.roles.columns,
            notes=(*self.file.notes, *self.notes),
            operations=operations,
            collective=listed(times) if (times := self._names("time")) != [""] and all(map(is_waiting_time, times)) else "",
        )

    def _operations(self, seconds: Floats, gradient_of: NDArray[np.int64]) -> Operations | None:
        """Return the operations of all gradients, if a column has their kinds."""
        if not self.roles.get("type"):
            return None
        start = self._read_seconds(self.roles.get("start")) if "start" in self.roles.columns else None
        kind = self._column_labels(self.roles.get("type"))
        is_named = kind.codes >= 0
        if not is_named.all():  # cells without a name are a kind of their own
            kind = Labels(np.where(is_named, kind.codes, len(kind.names)), [*kind.names, "no name"])
        return Operations(gradient_of, kind, seconds, start)

    def _phases(self) -> Operations | None:
        """Return the columns that add up to a time as operations, if there are several."""
        names = self._names("time")
        if len(names) < 2:
            return None
        rows, phases = len(self.row), len(names)
        kind = Labels(np.repeat(np.arange(phases), rows), names)
        seconds = np.concatenate([self._read_seconds(name) for name in names])
        return Operations(np.tile(np.arange(rows), phases), kind, seconds)

    def _are_operations(self, keys: NDArray[np.int64], gradients: int) -> bool:
        """Return True if rows of the same iteration and worker are operations, not duplicates."""
        if not has_operations(self.roles) or gradients == len(keys):
            return False
        if column := self.roles.get("type"):
            types = self.labels[column]
            typed_keys = keys * (len(types.names) + 1) + types.codes[self.row]  # + 1: cells without a type have the code -1
            if len(np.unique(typed_keys)) == len(keys):
                return True
        return gradients < _LEAST_UNIQUE * len(keys)

    def _check_repeated_rows(self, unique_share: float) -> None:
        """Raise UnclearTraceError for rows of the same iteration and worker that another column distinguishes."""
        least = _LEAST_UNIQUE if self.options.mend else 1.0  # mending leaves out a few duplicates
        if unique_share < least and (error := repeated_rows_error(self.file, self.roles, unique_share)):
            raise error

    def _rows(self) -> NDArray[np.int64]:
        """Return the rows with all names. Raises UnclearTraceError if names are missing and no rows may be left out."""
        required: list[Role] = ["iteration", "worker", "node"]
        name_columns = [name for role in required for name in self._names(role) if name in self.labels]
        is_incomplete = np.zeros(self.size, bool)
        time_columns = {*self._names("time"), *self._names("end")} & self.numbers.keys()  # one may have both roles
        times = [self.numbers[name] for name in time_columns]
        has_time = ~np.all(np.isnan(times), axis=0) if times else np.ones(self.size, bool)
        for name in name_columns:
            empty = self.labels[name].codes < 0
            if (empty & has_time).any() and not self.options.mend:  # rows without a time are of another kind
                raise UnclearTraceError(
                    f"{self.file.describe_row(int(np.argmax(empty & has_time)))}: nothing in column `{name}`; every row needs "
                    "it. `mend: drop`, or `fill`, leaves such rows out",
                    remedies=[{"mend": "drop"}, {"mend": "fill"}],
                )
            is_incomplete |= empty
        if is_incomplete.any():
            self.notes.append(f"{int(is_incomplete.sum()):,} rows of a file without {listed(name_columns)} left out")
        return np.flatnonzero(~is_incomplete)

    def _exclude_communication(self) -> None:
        """Keep only the rows of operations that compute."""
        if not (column := self.roles.get("type")):
            return
        types = self.labels[column]
        excluded = [code for code, name in enumerate(types.names) if is_communication(name)]
        computes = ~np.isin(types.codes[self.row], excluded)
        if not computes.any():
            raise FredError(f"{self.file.path}: by column `{column}`, all rows are communication: {briefly(types.names)}")
        if excluded:
            self.notes.append(f"left out as communication or waiting: {briefly([types.names[code] for code in excluded])}")
        self.row = self.row[computes]

    def _role_labels(self, role: Role) -> Labels:
        """Return the labels of a role, from one column or several."""
        columns = [self._column_labels(name) for name in self._names(role)]
        return combine_labels(columns) if len(columns) > 1 else sort_labels(columns[0])

    def _column_labels(self, name: str) -> Labels:
        if name == FILE and name not in self.labels:
            return Labels(np.zeros(len(self.row), np.int64), [self.options.name])
        return Labels(self.labels[name].codes[self.row], self.labels[name].names)

    def _iteration(self, worker: Labels) -> Labels:
        """Return the column of iterations; without one, number the times of each worker."""
        column = self.roles.get("iteration")
        if column and column != FILE:
            return self._role_labels("iteration")
        counts = np.bincount(worker.codes, minlength=len(worker.names))
        if (counts != counts[0]).any() or "type" in self.roles.columns:  # operations do not tell where a step ends
            problem = (
                f"{self.file.path}: no column is called `iteration`, `step` or the like; it has {listed(self.file.header)}; "
                "expected one, or the same number of times for each worker"
            )
            steps = [name for name in self.roles.unassigned(self.file.header) if step_word(name)]
            raise unclear_columns_error(problem, [{"iteration": name} for name in steps]) if steps else FredError(problem)
        start = self.numbers.get(self.roles.get("start"), np.zeros(self.size))[self.row]
        order = np.lexsort((start, worker.codes))  # in the order of rows if there are no starts
        k = np.empty(len(order), np.int64)
        k[order] = np.tile(np.arange(counts[0]), len(counts))  # in this order, the same number of rows of each worker follow
        self.notes.append("no column of iterations: the k-th time of each worker is its iteration k")
        numbered = Labels(k, list(map(str, range(counts[0]))))
        return combine_labels([self._column_labels(FILE), numbered]) if column else numbered

    def _durations(self) -> Floats:
        """Return the duration of each row, s."""
        if "time" in self.roles.columns:
            for name in self._names("time"):
                if self.file.has_moments(name):
                    raise FredError(
                        f"{self.file.path}: `{name}` has dates, and `time` needs durations. If another column has the ends, "
                        f"set `columns` (start={name},end=COLUMN); if every other column is a worker, rename it to `date`"
                    )
            return np.sum([self._read_seconds(name) for name in self._names("time")], axis=0)
        # inf - inf is NaN. Other infinite differences are above the longest time, so mending takes them as missing, too.
        with np.errstate(invalid="ignore"):
            return self._read_seconds(self.roles.get("end")) - self._read_seconds(self.roles.get("start"))

    def _read_seconds(self, name: str) -> Floats:
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
        if cell_unit := self.file.unit(name):
            self.notes += [note] if (note := f"times in {cell_unit}, as the cells of `{name}` say") not in self.notes else []
            return cast(Unit, cell_unit)
        units = (unit for column in sorted(self.numbers) if (unit := unit_of(column)))
        unit = self.options.unit or unit_of(name) or next(units, None)
        if unit is None:
            values = self.numbers[name]
            if "time" not in self.roles.columns:  # moments say nothing of their unit, durations do
                values = self.numbers[self.roles.get("end")] - self.numbers[self.roles.get("start")]
            raise unknown_unit_error(self.file, [name], values)
        if not self.options.unit and name != "seconds" and not any(note.startswith("times in ") for note in self.notes):
            self.notes.append(f"times in {unit}, as `{name if unit_of(name) else 'other columns'}` says")
        return unit

    def _check_no_moments(self, iteration: Labels, worker: Labels) -> None:
        """Raise FredError for times that only grow, for every worker: these are moments, not durations."""
        name = self.roles.get("time")
        if name not in self.numbers or "time" in self.options.columns:
            return
        order = np.lexsort((iteration.codes, worker.codes))
        values, same_worker = self.numbers[name][self.row][order], np.diff(worker.codes[order]) == 0
        least_points = _MANY_POINTS if name == "seconds" else _FEWEST_POINTS
        has_enough = same_worker.any() and same_worker.sum() >= (least_points - 1) * len(worker.names)
        if has_enough and (np.diff(values)[same_worker] > 0).all():
            raise FredError(
                f"{self.file.path}: the times in `{name}` grow from each iteration to the next, for every worker: they look "
                f"like timestamps; expected durations of iterations. If they are durations, set `columns` (time={name})"
                f"{self._differences_cure(name)}"
            )

    def _differences_cure(self, name: str) -> str:
        """Return a command that writes the table with the differences of a column, for each worker."""
        workers = [part for part in self._names("worker") if part != FILE]
        values = f"t{f'.groupby({workers})' if workers else ''}['{name}']"
        command = self.file.command(f".assign(**{{'{name}': lambda t: {values}.diff()}}).dropna(subset=['{name}'])")
        return f"; if they are times since the start, take differences: {command}" if command else ""

    def _join_operations(self, seconds: Floats, gradient_of: NDArray[np.int64], gradients: int) -> Floats:
        """Return the time of each gradient: the union of its operations, or their sum if their starts are unknown."""
        # A gradient with an operation that is missing, or shorter than 0, gets the shortest of its durations instead of the sum
        # (0 s may be a time rounded down). So it stays NaN or impossible, and mending reports and repairs it.
        shortest = np.full(gradients, np.inf)
        with np.errstate(invalid="ignore"):
            np.minimum.at(shortest, gradient_of, seconds)  # NaN if one is missing
        if "start" in self.roles.columns:
            start = self._read_seconds(self.roles.get("start"))
            is_measured = np.isfinite(seconds) & np.isfinite(start)
            # Dates are about 1.7e9 s, with steps of .2 us between two floats: durations are added to the time since the first.
            elapsed = start[is_measured] - start[is_measured].min(initial=np.inf)
            totals = busy_times(gradient_of[is_measured], elapsed, elapsed + np.maximum(seconds[is_measured], 0), gradients)
            self.notes.append("operations: the time in which at least one ran")
            shortest[gradient_of[~is_measured]] = np.nan
        else:
            totals = np.bincount(gradient_of, seconds, minlength=gradients).astype(np.float64)
            self.notes.append(f"operations: the sum of each gradient's `{self.roles.get('type')}`")
        return np.where(shortest >= 0, totals, shortest)
