"""Guesses of what unknown columns mean, from their content. They are only proposed to the user, never applied silently.

Two columns are iterations and workers if they form a table: most pairs of values occur, and each pair once.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fred.base.errors import FredError
from fred.base.words import briefly
from fred.tables.columns import File, Floats
from fred.tables.quantities import PER_SECOND, Unit
from fred.traces.refusal import Options, UnclearTraceError
from fred.traces.roles import (
    AND,
    FILE,
    Role,
    Roles,
    has_operations,
    has_times,
    is_of_a_node,
    is_of_nodes,
    parts,
    plain,
    stands_beside_times,
)

_MOST_COLUMNS, _MOST_WAYS = 8, 6
_ONCE, _FULL = 0.9, 0.7  # least shares of rows that are no duplicates, and of pairs that occur
_USUAL: dict[Unit, float] = {"s": 1e2, "ms": 1e5, "us": 1e8}  # a smaller median suggests this unit
_FEWEST = 2  # least mean number of rows of an iteration
_MOST_ONCE = 0.8  # with a larger share of rows that repeat nothing, the others are duplicates
_PART = re.compile(r"(?:^|_)(?:micro\w*|accum\w*|mb|chunk|bucket|layer|block|segment|section|part|stage)(?:_|$)")
_KIND = re.compile(r"(?:^|_)(?:mode|split|subset|data\w*|config\w*|variant|experiment|quantile|statistic|setting)(?:_|$)")
_MEANINGS: dict[Role, str] = {"type": "parts of a step, which add up", "iteration": "more iterations", "worker": "more workers"}


class _Column(NamedTuple):
    codes: NDArray[np.int64]
    size: int  # number of different values
    text: bool


def ways(file: File, roles: Roles) -> list[dict[Role, str]]:
    """Return choices of columns that would give the table iterations, workers and times, most probable first.

    Args:
        file: the table.
        roles: known roles of its columns.
    """
    known, free = roles.columns, roles.free(file.header)
    labels = _labels(file, free)
    result: list[tuple[tuple[float, ...], dict[Role, str]]] = []
    for iteration, worker in _pairs(known, labels):
        one, other = (labels.get(name) or _together(file, name) for name in (iteration, worker))
        fit = _fit(one, other, has_operations(roles))
        for time in _times(file, free, {iteration, worker}) if fit and not has_times(roles) else [known.get("time", "")]:
            found: dict[Role, str] = {"iteration": iteration, "worker": worker, "time": time}
            new = {role: name for role, name in found.items() if name and known.get(role) != name}
            result += [(fit, new)] if fit and new else []
    ranked = sorted(result, key=lambda way: way[0], reverse=True)  # stable: ties stay in the columns' order
    return [way for _, way in ranked[:_MOST_WAYS]]


def makes_a_table(file: File, roles: Roles) -> bool:
    """Return True if most pairs of an iteration and a worker occur, and most of them once.

    Args:
        file: the table.
        roles: roles, with both columns.
    """
    return _fit(_together(file, roles.get("iteration")), _together(file, roles.get("worker")), several=False) is not None


def repeated(file: File, roles: Roles, once: float) -> UnclearTraceError | None:
    """Return an error about rows of the same iteration and worker, if another column tells them apart.

    It lists what the column may mean, and proposes the meaning that its name and its values suggest.

    Args:
        file: the table.
        roles: known roles of its columns.
        once: share of the rows that repeat no iteration and worker.
    """
    iteration, worker = roles.get("iteration"), roles.get("worker")
    pairs = _pairs_of(_together(file, iteration), _together(file, worker))
    needs_names = worker == FILE or is_of_nodes(worker)
    for name in roles.free(file.header)[:_MOST_COLUMNS]:
        column, is_part = _together(file, name), _PART.search(plain(name)) is not None
        if stands_beside_times(name) or column.size * _FEWEST > len(column.codes):
            continue
        value, meanings = _selected(file, name, column, pairs), dict[str, Options]()
        if value:
            meanings[f"runs or kinds, of which one counts, such as `only: {{{name}: {value}}}`"] = {"only": {name: value}}
        if once < _MOST_ONCE and len(np.unique(_pairs_of(pairs, column).codes)) >= _ONCE * len(column.codes):
            finer: dict[Role, str] = {"type": name, "iteration": f"{name}{AND}{iteration}", "worker": f"{worker}{AND}{name}"}
            for role, meaning in _MEANINGS.items():
                if role == "type" or makes_a_table(file, Roles({**roles.columns, role: finer[role]})):
                    meanings[f"{meaning}: `columns: {{{role}: {finer[role]}}}`"] = {"columns": {role: finer[role]}}
        if meanings:
            is_worker = is_of_a_node(name) or (needs_names and not _KIND.search(plain(name)))
            first = "worker" if is_worker else "type" if is_part else "iteration"
            ranked = sorted(meanings.values(), key=lambda way: first not in way.get("columns", {}))
            return UnclearTraceError(
                f"{file.path}: {1 - once:.0%} of the rows repeat the iteration and worker of an earlier row, with another "
                f"`{name}`. Say what it distinguishes: {'; '.join(meanings)}",
                remedies=ranked if is_worker or is_part or not value else [*meanings.values()],
            )
    return None


def _selected(file: File, name: str, column: _Column, pairs: _Column) -> str:
    """Return a value of a column whose rows repeat nothing and have most iterations and workers, or an empty text."""
    labels = file.columns([name], [])[0][name]
    if column.size < 2:
        return ""
    for code in np.argsort(-np.bincount(labels.codes[labels.codes >= 0]), kind="stable")[:_MOST_WAYS]:
        chosen = pairs.codes[labels.codes == code]
        if len(np.unique(chosen)) == len(chosen) >= _FULL * len(np.unique(pairs.codes)):
            return labels.names[code]
    return ""


def to_be_said(problem: str, proposed: Sequence[Mapping[Role, str]]) -> UnclearTraceError:
    """Return an error about a table, with proposed roles for its columns.

    Args:
        problem: description of the problem, a sentence without its full stop.
        proposed: columns by role, most probable first.
    """
    likely = ", ".join(f"{role}: {name}" for role, name in proposed[0].items())
    return UnclearTraceError(
        f"{problem}. Say what they are (`columns: {{{likely}}}`)", remedies=[{"columns": way} for way in proposed]
    )


def no_unit(file: File, columns: Sequence[str], values: Floats) -> UnclearTraceError:
    """Return an error about times of unknown unit; it proposes the most probable unit, from their median.

    Args:
        file: the table.
        columns: columns of times.
        values: the times.
    """
    median = float(np.nanmedian(np.abs(values))) if np.isfinite(values).any() else 1.0
    likely: Unit = next((unit for unit, most in _USUAL.items() if median < most), "ns")
    units = [likely, *(unit for unit in PER_SECOND if unit != likely)]
    where = f"`{columns[0]}`" if len(columns) == 1 else f"columns {briefly(columns)}"
    return UnclearTraceError(
        f"{file.path}: in which unit are the times in {where}? Their median is {median:.4g}. Set `unit: {likely}`, or "
        f"{', '.join(units[1:])}",
        remedies=[{"unit": unit} for unit in units],
    )


def _pairs(known: Mapping[Role, str], labels: Mapping[str, _Column]) -> list[tuple[str, str]]:
    several = [name for name, one in labels.items() if not one.text and one.size > 1]
    iterations = [known["iteration"]] if "iteration" in known else several
    workers = [known["worker"]] if "worker" in known else [name for name, one in labels.items() if one.size > 1]
    return [(one, other) for one, other in itertools.product(iterations, workers) if one != other]


def _fit(iteration: _Column, worker: _Column, several: bool) -> tuple[float, ...] | None:
    """Return how well two columns form a table, larger is better; None if they do not.

    Args:
        iteration: first column.
        worker: second column.
        several: True if a pair may have several rows.
    """
    rows = max(len(iteration.codes), len(worker.codes))
    pairs = len(np.unique(_pairs_of(iteration, worker).codes))
    once, full = pairs / rows, pairs / (iteration.size * worker.size)
    if full < _FULL or (once < _ONCE and not several) or rows < _FEWEST * iteration.size:
        return None
    return (float(worker.text), float(iteration.size >= worker.size), round(once, 1), full)


def _pairs_of(one: _Column, other: _Column) -> _Column:
    return _Column(one.codes * other.size + other.codes, one.size * other.size, text=True)


def _labels(file: File, names: Sequence[str]) -> dict[str, _Column]:
    """Return the columns that hold text or whole numbers, without gaps."""
    found = {}
    for name in names[:_MOST_COLUMNS]:
        numbers = _numbers(file, name)
        if numbers is not None and not (np.isfinite(numbers).all() and (numbers == np.floor(numbers)).all()):
            continue
        column = _together(file, name)
        found[name] = column._replace(text=numbers is None)
    return found


def _together(file: File, name: str) -> _Column:
    """Return a column, or the combination of several."""
    columns = [each for each in parts(name, file.header) if each != FILE]
    labels = file.columns(columns, [])[0]
    codes = np.zeros(1, np.int64)
    for each in columns:
        _, codes = np.unique(codes * (len(labels[each].names) + 1) + labels[each].codes + 1, return_inverse=True)
    return _Column(codes, int(codes.max(initial=0)) + 1, text=True)


def _times(file: File, free: Sequence[str], used: set[str]) -> list[str]:
    """Return the columns that may be times, those with decimals first."""
    found = {name: numbers for name in free if name not in used and (numbers := _numbers(file, name)) is not None}
    able = [each for each in found if not (stands_beside_times(each) or file.has_moments(each)) and (found[each] > 0).any()]
    return sorted(able, key=lambda name: bool((found[name] == np.floor(found[name])).all()))


def _numbers(file: File, name: str) -> NDArray[np.float64] | None:
    try:
        return file.columns([], [name])[1][name]
    except FredError:
        return None
