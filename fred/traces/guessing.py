"""Guesses of the meaning of unknown columns, from their content. They are only proposed to the user, never applied silently.

Two columns are iterations and workers if they form a table: most pairs of values occur, and each pair once. Guesses about
several unclear points of a file are tried together (`resolve_problems`).
"""

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fred.base.errors import FredError, briefly
from fred.base.types import Floats
from fred.tables.columns import File
from fred.tables.quantities import PER_SECOND, Unit, to_snake_case
from fred.traces.roles import (
    FILE,
    PLUS,
    Options,
    Role,
    Roles,
    UnclearTraceError,
    has_operations,
    has_times,
    holds_no_times,
    is_local_rank,
    is_node_column,
    split_columns,
)

T = TypeVar("T")
_MOST_PROBLEMS = 6  # most errors of one file that are resolved in advance
_MOST_COLUMNS, _MOST_PROPOSALS = 8, 6
_LEAST_UNIQUE, _LEAST_FULL = 0.9, 0.7  # least shares of rows that are no duplicates, and of pairs that occur
_UNIT_LIMITS: dict[Unit, float] = {"s": 1e2, "ms": 1e5, "us": 1e8}  # a smaller median suggests this unit
_FEWEST_ROWS = 2  # least mean number of rows of an iteration
_MOST_UNIQUE = 0.8  # with a larger share of rows that repeat nothing, the others are duplicates
_PART = re.compile(r"(?:^|_)(?:micro\w*|accum\w*|mb|chunk|bucket|layer|block|segment|section|part|stage)(?:_|$)")
_KIND = re.compile(r"(?:^|_)(?:mode|split|subset|data\w*|config\w*|variant|experiment|quantile|statistic|setting)(?:_|$)")
_PAIR: tuple[Role, Role] = ("iteration", "worker")
_MEANINGS: dict[Role, str] = {"type": "parts of a step, which add up", "iteration": "more iterations", "worker": "more workers"}


class _Column(NamedTuple):
    """A column, or a combination of columns: the number of each row's value."""

    codes: NDArray[np.int64]
    size: int  # number of different values
    text: bool  # True if the values are names, not whole numbers


def propose_columns(file: File, roles: Roles) -> list[dict[Role, str]]:
    """Return choices of columns that would give the table iterations, workers and times, most probable first.

    Args:
        file: the table.
        roles: known roles of its columns.
    """
    assigned, unassigned = roles.columns, roles.unassigned(file.header)
    labels = _label_columns(file, unassigned)
    scored: list[tuple[tuple[float, ...], dict[Role, str]]] = []
    for iteration, worker in _candidate_pairs(assigned, labels):
        iterations, workers = (labels.get(name) or _read_column(file, name) for name in (iteration, worker))
        score = _score_fit(iterations, workers, repeats_allowed=has_operations(roles))
        times = [assigned.get("time", "")]  # empty if start and end give the times
        if score and not has_times(roles):
            times = _time_columns(file, unassigned, {iteration, worker})
        for time in times:
            choice: dict[Role, str] = {"iteration": iteration, "worker": worker, "time": time}
            proposal = {role: name for role, name in choice.items() if name and assigned.get(role) != name}
            scored += [(score, proposal)] if score and proposal else []
    scored.sort(key=lambda scored_proposal: scored_proposal[0], reverse=True)  # stable: ties stay in the columns' order
    return [proposal for _, proposal in scored[:_MOST_PROPOSALS]]


def forms_table(file: File, roles: Roles) -> bool:
    """Return True if most pairs of an iteration and a worker occur, and most of them once.

    Args:
        file: the table.
        roles: roles, with both columns.
    """
    iteration, worker = (_read_column(file, roles.get(role)) for role in _PAIR)
    return _score_fit(iteration, worker, repeats_allowed=False) is not None


def repeated_rows_error(file: File, roles: Roles, unique_share: float) -> UnclearTraceError | None:
    """Return an error about rows of the same iteration and worker, if another column distinguishes them.

    The error lists the possible meanings of that column, and proposes the one that its name and its values suggest.

    Args:
        file: the table.
        roles: known roles of its columns.
        unique_share: share of the rows that repeat no iteration and worker.
    """
    iteration, worker = roles.get("iteration"), roles.get("worker")
    pairs = _combine(_read_column(file, iteration), _read_column(file, worker))
    has_no_ranks = worker == FILE or is_node_column(worker)  # so a further column may number the workers
    for name in roles.unassigned(file.header)[:_MOST_COLUMNS]:
        column, is_part = _read_column(file, name), _PART.search(to_snake_case(name)) is not None
        if holds_no_times(name) or column.size * _FEWEST_ROWS > len(column.codes):
            continue
        value, meanings = _value_without_repeats(file, name, column, pairs), dict[str, Options]()
        if value:
            meanings[f"runs or kinds, of which one counts, such as `only: {{{name}: {value}}}`"] = {"only": {name: value}}
        unique_with_column = len(np.unique(_combine(pairs, column).codes))
        if unique_share < _MOST_UNIQUE and unique_with_column >= _LEAST_UNIQUE * len(column.codes):
            refined: dict[Role, str] = {
                "type": name,
                "iteration": f"{name}{PLUS}{iteration}",
                "worker": f"{worker}{PLUS}{name}",
            }
            for role, meaning in _MEANINGS.items():
                if role == "type" or forms_table(file, Roles({**roles.columns, role: refined[role]})):
                    meanings[f"{meaning}: `columns: {{{role}: {refined[role]}}}`"] = {"columns": {role: refined[role]}}
        if meanings:
            names_workers = is_local_rank(name) or (has_no_ranks and not _KIND.search(to_snake_case(name)))
            likely_role = "worker" if names_workers else "type" if is_part else "iteration"
            ranked = sorted(meanings.values(), key=lambda options: likely_role not in options.get("columns", {}))
            return UnclearTraceError(
                f"{file.path}: {1 - unique_share:.0%} of the rows repeat the iteration and worker of an earlier row, with "
                f"another `{name}`. Say what it distinguishes: {'; '.join(meanings)}",
                # Without a sign in the name, one value that has no repeats is more probable than a role.
                remedies=ranked if names_workers or is_part or not value else [*meanings.values()],
            )
    return None


def _value_without_repeats(file: File, name: str, column: _Column, pairs: _Column) -> str:
    """Return a value of a column whose rows repeat nothing and have most iterations and workers, or an empty text."""
    labels = file.columns([name], [])[0][name]
    if column.size < 2:
        return ""
    for code in np.argsort(-np.bincount(labels.codes[labels.codes >= 0]), kind="stable")[:_MOST_PROPOSALS]:
        selected = pairs.codes[labels.codes == code]
        if len(np.unique(selected)) == len(selected) >= _LEAST_FULL * len(np.unique(pairs.codes)):
            return labels.names[code]
    return ""


def unclear_columns_error(problem: str, proposals: Sequence[Mapping[Role, str]]) -> UnclearTraceError:
    """Return an error about a table, with proposed roles for its columns.

    Args:
        problem: description of the problem, a sentence without its full stop.
        proposals: columns by role, most probable first.
    """
    likely = ", ".join(f"{role}: {name}" for role, name in proposals[0].items())
    return UnclearTraceError(
        f"{problem}. Say what they are (`columns: {{{likely}}}`)", remedies=[{"columns": roles} for roles in proposals]
    )


def unknown_unit_error(file: File, columns: Sequence[str], values: Floats) -> UnclearTraceError:
    """Return an error about times of unknown unit; it proposes the most probable unit, from their median.

    Args:
        file: the table.
        columns: columns of times.
        values: the times.
    """
    median = float(np.nanmedian(np.abs(values))) if np.isfinite(values).any() else 1.0
    likely: Unit = next((unit for unit, most in _UNIT_LIMITS.items() if median < most), "ns")
    units = [likely, *(unit for unit in PER_SECOND if unit != likely)]
    where = f"`{columns[0]}`" if len(columns) == 1 else f"columns {briefly(columns)}"
    return UnclearTraceError(
        f"{file.path}: in which unit are the times in {where}? Their median is {median:.4g}. Set `unit: {likely}`, or "
        f"{', '.join(units[1:])}",
        remedies=[{"unit": unit} for unit in units],
    )


def _candidate_pairs(assigned: Mapping[Role, str], labels: Mapping[str, _Column]) -> list[tuple[str, str]]:
    """Return pairs of columns that may be iteration and worker: those that have the role, or else any that vary."""
    varying = [name for name, column in labels.items() if column.size > 1]
    iterations = [assigned["iteration"]] if "iteration" in assigned else [name for name in varying if not labels[name].text]
    workers = [assigned["worker"]] if "worker" in assigned else varying
    return [(iteration, worker) for iteration, worker in itertools.product(iterations, workers) if iteration != worker]


def _score_fit(iteration: _Column, worker: _Column, repeats_allowed: bool) -> tuple[float, ...] | None:
    """Return how well two columns form a table, larger is better; None if they do not.

    Names are more probable workers than numbers; then the longer column is the iteration; then few duplicates and gaps count.

    Args:
        iteration: first column.
        worker: second column.
        repeats_allowed: True if a pair may have several rows.
    """
    rows = max(len(iteration.codes), len(worker.codes))
    pairs = len(np.unique(_combine(iteration, worker).codes))
    unique_share, full_share = pairs / rows, pairs / (iteration.size * worker.size)
    if (
        full_share < _LEAST_FULL
        or (unique_share < _LEAST_UNIQUE and not repeats_allowed)
        or rows < _FEWEST_ROWS * iteration.size
    ):
        return None
    return (float(worker.text), float(iteration.size >= worker.size), round(unique_share, 1), full_share)


def _combine(first: _Column, second: _Column) -> _Column:
    return _Column(first.codes * second.size + second.codes, first.size * second.size, text=True)


def _label_columns(file: File, names: Sequence[str]) -> dict[str, _Column]:
    """Return the columns that hold text or whole numbers, without gaps."""
    columns = {}
    for name in names[:_MOST_COLUMNS]:
        numbers = _read_numbers(file, name)
        if numbers is not None and not (np.isfinite(numbers).all() and (numbers == np.floor(numbers)).all()):
            continue
        column = _read_column(file, name)
        columns[name] = column._replace(text=numbers is None)
    return columns


def _read_column(file: File, name: str) -> _Column:
    """Return a column, or the combination of several.

    The codes are renumbered after each column. Their products would overflow 64 bits in a table with several columns of
    many names; the numbers of combinations that occur never exceed the number of rows.
    """
    columns = [column for column in split_columns(name, file.header) if column != FILE]
    labels = file.columns(columns, [])[0]
    codes = np.zeros(1, np.int64)
    for column in columns:  # + 1: empty cells have the code -1
        _, codes = np.unique(codes * (len(labels[column].names) + 1) + labels[column].codes + 1, return_inverse=True)
    return _Column(codes, int(codes.max(initial=0)) + 1, text=True)


def _time_columns(file: File, unassigned: Sequence[str], used: set[str]) -> list[str]:
    """Return the columns that may be times, those with decimals first."""
    free = [name for name in unassigned if name not in used]
    columns = {name: numbers for name in free if (numbers := _read_numbers(file, name)) is not None}
    columns = {name: numbers for name, numbers in columns.items() if not (holds_no_times(name) or file.has_moments(name))}
    candidates = [name for name, numbers in columns.items() if (numbers > 0).any()]
    return sorted(candidates, key=lambda name: bool((columns[name] == np.floor(columns[name])).all()))


def _read_numbers(file: File, name: str) -> NDArray[np.float64] | None:
    """Return a column as numbers; None if it has other cells."""
    try:
        return file.columns([], [name])[1][name]
    except FredError:
        return None


def resolve_problems(attempt: Callable[[Options], T], options: Options, doubt: Callable[[T], str]) -> T:
    """Return the result of an attempt; if it raises UnclearTraceError, raise one with options that resolve all problems.

    So a file with several unclear points gives one error, and the command in the error works: options are proposed only if they
    were tried and lead to a result without doubt.

    Args:
        attempt: function that reads with options.
        options: the user's own options.
        doubt: function that returns why a result cannot be right, or an empty text.

    Raises UnclearTraceError, also with the problems that remain after the first ones; FredError if no options are known to
    help. Other FredErrors pass unchanged.
    """
    try:
        return attempt(options)
    except UnclearTraceError as error:
        reasons: list[str] = []
        remedy = _find_remedy(attempt, error, options, _MOST_PROBLEMS, doubt, reasons)
        if remedy is None:
            raise FredError(*error.args, *reasons[:1]) from None
        problems, complete = remedy
        new = {name: value for name, value in complete.items() if options.get(name) != value}
        raise UnclearTraceError(*problems, remedies=[new], works=True) from None


def _find_remedy(
    attempt: Callable[[Options], T],
    error: UnclearTraceError,
    options: Options,
    depth: int,
    doubt: Callable[[T], str],
    reasons: list[str],
) -> tuple[tuple[str, ...], Options] | None:
    """Return all problems up to a readable trace, and the options for it; None if no remedy leads there.

    The search is depth-first. Each remedy may lead to a further unclear point, with remedies of its own; a chain longer than
    `depth` is given up. `reasons` collects why remedies fail, for the error if none helps.
    """
    for remedy in error.remedies if depth else ():
        attempted = merge_options(options, remedy)
        words = " ".join(UnclearTraceError(remedies=[remedy]).fix)
        try:
            reason = doubt(attempt(attempted))
        except UnclearTraceError as next_error:
            if solution := _find_remedy(attempt, next_error, attempted, depth - 1, doubt, reasons):
                return (*error.args, *solution[0]), solution[1]
        except FredError as failure:
            reasons.append(f"With {words}: {failure}")
        else:
            if not reason:
                return error.args, attempted
            reasons.append(f"With {words}: {reason}")
    return None


def merge_options(options: Options, overrides: Options) -> dict[str, Any]:
    """Merge options, of which the later take precedence; `columns` are merged column by column.

    >>> merge_options({"columns": {"iteration": "it"}}, {"columns": {"worker": "who"}, "unit": "ms"})
    {'columns': {'iteration': 'it', 'worker': 'who'}, 'unit': 'ms'}

    Args:
        options: options of `read`.
        overrides: options that take precedence.
    """
    merged = {**options, **overrides}
    if "columns" in options and "columns" in overrides:
        merged["columns"] = {**options["columns"], **overrides["columns"]}
    return merged
