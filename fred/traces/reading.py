"""Reading a trace: FRED's long table, a wide one, or a trace of operations, mended only as the user says.

| format     | columns                                                                                              |
|------------|------------------------------------------------------------------------------------------------------|
| long       | `iteration`, `worker`, `seconds`; and `node`, if it is known: one row for each gradient              |
| wide       | one column for each worker, and `iteration` if there is one: one row for each iteration              |
| operations | `iteration`, `worker`, and `seconds` or `start` and `end`: several rows for each gradient, summed up |

Each as CSV with a header or as Parquet; `columns` says what they are called there. Iterations and workers may be named by
numbers, which put them in order, or by anything else: then they come as in the file. Iterations need not be consecutive.
"""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from fred.components.component import Component
from fred.components.limits import LONGEST
from fred.errors import FredError
from fred.traces.columns import File, Labels, Numbers, listed, opened
from fred.traces.mending import Absurd, Cells, Duplicates, Mender, Missing
from fred.traces.nodes import spread
from fred.traces.trace import Trace

Column = Literal["iteration", "worker", "seconds", "node", "start", "end"]
Nodes = int | Sequence[int]
Unit = Literal["s", "ms", "us", "ns"]
_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
_OTHER_UNIT = re.compile(r"(?:.*[\W_])?(ms|us|ns)\W?", re.IGNORECASE)  # columns such as `time_ms` or `time (ms)`
_NUMBER = re.compile(r"-?[0-9]+([.][0-9]+)?")


class Reading(Component):
    """How a file is read, and what is done about what is wrong in it."""

    columns: dict[Column, str] = Field({}, description="what the file calls its columns, where FRED calls them otherwise")
    unit: Unit | None = Field(None, description="of the file's times; if not given: s, unless columns are called otherwise")
    missing: Missing = Field("refuse", description="a time that is not there: drop the iteration, or fill it in")
    duplicates: Duplicates = Field("refuse", description="several rows for one gradient: take the first, or their sum")
    absurd: Absurd = Field("refuse", description="times that cannot be: take them as missing")
    longest: Annotated[float, Field(gt=0, le=LONGEST)] = Field(LONGEST, description="longer times are absurd, s")

    def read(self, path: Path, nodes: Nodes | None = None) -> Trace:
        """The trace in a file; `nodes`: see `read`. Raises FredError.

        Args:
            path: CSV or Parquet; `example` is the trace that comes with FRED.
            nodes: see `read`.
        """
        file = opened(path)
        cells, node_of = self._long(file) if self._is_long(file) else (self._wide(file), None)
        mender = Mender(path, self.missing, self.duplicates, self.absurd, self.longest)
        seconds = mender.mended(cells)
        if nodes is not None:
            node_of = _spread(nodes, len(cells.workers))
        seconds.flags.writeable = False  # several runs share it
        return Trace(seconds, tuple(cells.workers), node_of, str(path), tuple(mender.repairs))

    @property
    def _per_second(self) -> float:
        return _PER_SECOND[self.unit or "s"]

    def _check_unit(self, file: File, names: Sequence[str]) -> None:
        """Refuse columns of times that are called otherwise where nobody has said that they are in seconds."""
        found = [(name, match[1].lower()) for name in names if (match := _OTHER_UNIT.fullmatch(name))]
        if found and self.unit is None:
            name, unit = found[0]
            raise FredError(
                f"{file.path}: the times in `{name}` seem to be in {unit}, and are taken as s unless said otherwise; give "
                f"`unit: {unit}`, or `unit: s` if that is right (on a command line: --unit {unit})"
            )

    def _name(self, column: Column) -> str:
        return self.columns.get(column, column)

    def _is_long(self, file: File) -> bool:
        """Whether it has a column of workers, or of times; or, by what the user says, should have."""
        for column, name in self.columns.items():
            if name not in file.header:
                raise FredError(f"{file.path} has no column `{name}` ({column}); it has {listed(file.header)}")
        return any(self._name(column) in file.header for column in ("worker", "seconds", "start", "end"))

    def _long(self, file: File) -> tuple[Cells, NDArray[np.int64] | None]:
        spans = "start" in self.columns or "end" in self.columns or self._name("seconds") not in file.header
        times: list[Column] = ["start", "end"] if spans and self._name("start") in file.header else ["seconds"]
        roles: list[Column] = ["iteration", "worker", *times]
        needed = [self._name(column) for column in roles]
        absent = [name for name in needed if name not in file.header]
        if absent:
            raise FredError(
                f"{file.path} has no column `{absent[0]}`; it has {listed(file.header)}; expected {listed(needed)}: "
                "if they are called otherwise, say so with `columns` (on a command line: --columns OURS=THEIRS,...)"
            )
        node = [self._name("node")] if self._name("node") in file.header else []
        self._check_unit(file, needed[2:])
        _check_apart(file, dict(zip([*roles, "node"], [*needed, *node], strict=False)))
        labels, numbers = file.columns([*needed[:2], *node], needed[2:])
        seconds = numbers[needed[2]] if len(times) == 1 else numbers[needed[3]] - numbers[needed[2]]
        iteration, worker = (_in_order(file, name, labels[name]) for name in needed[:2])
        rows = np.arange(len(seconds))
        cells = Cells(
            iteration.names, worker.names, iteration.codes, worker.codes, seconds / self._per_second, rows, file.where
        )
        return cells, _nodes(file, worker, _in_order(file, node[0], labels[node[0]])) if node else None

    def _wide(self, file: File) -> Cells:
        name = self._name("iteration")
        workers = [each for each in file.header if each != name]
        if not workers:
            raise FredError(f"{file.path} has no column of times; it has {listed(file.header)}")
        try:
            labels, numbers = file.columns([name] if name in file.header else [], workers)
        except FredError as error:
            raise FredError(
                f"{error}; without columns `worker` and `seconds` each is a worker's times: if they are called otherwise, "
                "say so with `columns`"
            ) from None
        for worker in workers if name not in file.header else ():
            _check_no_count(file, worker, numbers[worker])
        self._check_unit(file, workers)
        rows, columns = len(next(iter(numbers.values()))), len(workers)
        iterations = _in_order(file, name, labels.get(name) or Labels(np.arange(rows), list(map(str, range(rows)))))
        order = _ordered(workers)
        return Cells(
            iterations.names,
            [workers[i] for i in order],
            np.repeat(iterations.codes, columns),
            np.tile(np.arange(columns), rows),
            np.stack([numbers[workers[i]] for i in order], axis=1).ravel() / self._per_second,
            np.repeat(np.arange(rows), columns),
            file.where,
        )


def read(path: str | Path, nodes: Nodes | None = None, **options: Any) -> Trace:
    r"""The trace in a file, by the options of `Reading`. Raises FredError, with file and row, for what is wrong in it.

    Args:
        path: CSV or Parquet; `example` is the trace that comes with FRED.
        nodes: among how many nodes the workers are spread evenly, in order; or how many workers each node has. What the file
            says of nodes does not count then.
        options: `columns` (what the file calls them), `unit` of its times (s, ms, us, ns), and what is done about what is
            `missing`, about `duplicates`, and about times that are `absurd`, or longer than `longest`, s.

    >>> trace = read("example")
    >>> trace.seconds.shape, trace.node_of.tolist()
    ((60, 8), [0, 0, 0, 0, 1, 1, 1, 1])
    >>> _ = Path("mine.csv").write_text("step,a,b\n0,1000,1500\n1,500,\n")
    >>> mended = read("mine.csv", columns={"iteration": "step"}, unit="ms", missing="drop")
    >>> mended.seconds.tolist(), mended.repairs
    ([[1.0, 1.5]], ('1 iteration dropped for 1 missing time; the first: worker b in iteration 1',))
    >>> read("mine.csv", columns={"iteration": "step"})
    Traceback (most recent call last):
    ...
    fred.errors.FredError: mine.csv:3: no time of worker b in iteration 1; 1 of 4 times are missing...
    """
    try:
        reading = Reading.model_validate(options)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        expected = first["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
        raise FredError(f"reading {path}: {key}{': ' if key else ''}{expected}") from None
    return reading.read(Path(path), nodes)


def _ordered(names: Sequence[str]) -> list[int]:
    """Positions of the names in the order of the numbers that they are; as they are if one is not a number."""
    if not all(map(_NUMBER.fullmatch, names)):
        return list(range(len(names)))
    keys = list(map(Decimal, names))
    return sorted(range(len(names)), key=keys.__getitem__)


def _in_order(file: File, column: str, labels: Labels) -> Labels:
    """The same with the names in order. Raises FredError for a row without one."""
    if (labels.codes < 0).any():
        raise FredError(f"{file.where(int(np.argmax(labels.codes < 0)))}: nothing in column `{column}`; every row needs it")
    order = _ordered(labels.names)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return Labels(rank[labels.codes], [labels.names[i] for i in order])


def _check_apart(file: File, names: Mapping[Column, str]) -> None:
    """Refuse one column in two roles."""
    roles: dict[str, Column] = {}
    for role, name in names.items():
        if name in roles:
            raise FredError(f"{file.path}: column `{name}` cannot be both `{roles[name]}` and `{role}`; mend `columns`")
        roles[name] = role


def _nodes(file: File, worker: Labels, node: Labels) -> NDArray[np.int64]:
    """The node of each worker. Raises FredError where rows do not agree."""
    node_of = np.empty(len(worker.names), np.int64)
    node_of[worker.codes[::-1]] = node.codes[::-1]
    moved = node_of[worker.codes] != node.codes
    if moved.any():
        row = int(np.argmax(moved))
        name, here, before = worker.names[worker.codes[row]], node.names[node.codes[row]], worker.codes[row]
        raise FredError(
            f"{file.where(row)}: worker {name} is on node {here}, but on node {node.names[node_of[before]]} above; "
            "expected the same in all rows"
        )
    return node_of


def _spread(nodes: Nodes, workers: int) -> NDArray[np.int64]:
    try:
        return spread(nodes, workers)
    except ValueError as error:
        raise FredError(str(error)) from None


def _check_no_count(file: File, name: str, numbers: Numbers) -> None:
    """Refuse to take a count of rows, or of iterations that have several, for a worker's times."""
    steps = np.diff(numbers)
    if len(numbers) > 2 and np.isin(steps, (0, 1)).all() and steps.any():
        raise FredError(
            f"{file.path}: column `{name}` counts: if iterations, say so with `columns` (iteration={name}), or else remove it"
        )
