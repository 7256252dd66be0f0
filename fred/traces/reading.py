"""Reader of traces: logs and exports of many tools (`formats/`), and tables of times or operations, in one file or several.

| table      | columns                                                                                           |
|------------|---------------------------------------------------------------------------------------------------|
| long       | `iteration`, `worker`, `seconds`, and `node` if it is known: one row for each gradient            |
| wide       | one column for each worker, and `iteration` if there is one: one row for each iteration           |
| operations | `iteration`, `worker`, `start`, `end` or a duration, and a `type`: several rows for each gradient |

`fred/tables/` unpacks, decodes and splits files. FRED recognises many names of columns (`roles.py`); `columns` names others.
A unit comes from a cell, the name of a column or the user, never from the size of numbers. Iterations and workers are sorted
by number if their names are numbers or differ in one, and otherwise stay in order of appearance.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from fred.base.errors import FredError
from fred.components.component import Component, Duration
from fred.tables.content import Content, read_contents
from fred.tables.quantities import Unit
from fred.traces import formats, plausibility
from fred.traces.cells import Cells, join_files, short_names
from fred.traces.formats import recorded_steps
from fred.traces.mending import Mend, mend_table
from fred.traces.nodes import spread_workers
from fred.traces.refusal import resolve_problems
from fred.traces.roles import FileOptions, Role
from fred.traces.trace import Trace

EXAMPLE = "example"  # name of the trace that comes with FRED
Nodes = int | Sequence[int]


class Reading(Component):
    """Options for reading the files of a trace, and for repairing gaps and duplicates."""

    columns: dict[Role, str] = Field(
        default={},
        description="columns by role, where FRED does not recognise them; `a+b`: two together; `FILE`: one value per file",
    )
    unit: Unit | None = Field(default=None, description="unit of the times, if the names of the columns do not give it")
    mend: Mend = Field(
        default="refuse",
        description="repair of gaps and duplicates: use the first duplicate, and drop iterations with gaps or fill them",
    )
    longest: Duration | None = Field(default=None, description="times above this count as gaps, s")
    only: dict[str, str] = Field(default={}, description="values of columns, by their names, that the rows to read have")

    def read(self, paths: Sequence[Path], nodes: Nodes | None = None) -> Trace:
        """Return the trace in some files.

        Args:
            paths: files, archives or folders; `example` is the trace that comes with FRED.
            nodes: as in the function `read`.

        Raises FredError, or UnclearTraceError if options would help.
        """
        options = {name: getattr(self, name) for name in Reading.model_fields}
        example = Path(__file__).with_name("example.csv")
        files = read_contents([example if str(path) == EXAMPLE else path for path in paths])
        source = f"{paths[0]} and {len(paths) - 1} more" if len(paths) > 1 else str(paths[0])
        return resolve_problems(
            lambda attempted: Reading.model_validate(attempted)._read(files, source, nodes),
            options,
            lambda trace: plausibility.find_implausibility(trace.seconds, trace.workers),
        )

    def _read(self, files: Sequence[Content], source: str, nodes: Nodes | None) -> Trace:
        """Return the trace with exactly these options."""
        names = short_names([file.path for file in files])
        file_options = [FileOptions(self.columns, self.unit, self.mend != "refuse", name, self.only) for name in names]
        cells = join_files([formats.read_cells(file, options) for file, options in zip(files, file_options, strict=True)])
        if all(map(recorded_steps.sniff, files)):
            cells = recorded_steps.drop_incomplete(cells)
        formats.check_several_workers(files, len(cells.worker.names))
        table = mend_table(cells, files, source, self.mend, self.longest)
        node_of, node_names = _find_nodes(cells) if nodes is None else (_assign_nodes(nodes, len(cells.worker.names)), ())
        table.seconds.flags.writeable = False  # shared by several runs
        notes = dict.fromkeys((*cells.notes, *(note for file in files for note in file.notes)))
        if table.seconds.shape[1] == 1:
            notes["only one worker: name the files of all workers to see which is slow"] = None
        steps = tuple(cells.iteration.names[row] for row in table.rows)
        workers, repairs, collective = tuple(cells.worker.names), table.repairs, cells.collective
        return Trace(table.seconds, workers, node_of, source, repairs, node_names, tuple(notes), steps, collective)


def read(path: str | Path, *more_paths: str | Path, nodes: Nodes | None = None, **options: Any) -> Trace:
    r"""Return the trace in a file, or in several that belong together, such as one for each node or day.

    Args:
        path: file, archive or folder; `example` is the trace that comes with FRED.
        more_paths: further files of the trace.
        nodes: number of nodes over which the workers are spread evenly, in order; or number of workers on each node. This
            overrides the nodes in the file.
        options: options of `Reading`: `columns` by role; `unit` of the times (s, ms, us, ns); `mend` for gaps and
            duplicates (refuse, drop, fill); `longest`, above which a time counts as a gap, s; `only`, values by column.

    Raises FredError, with file and row, for errors in the files; UnclearTraceError, with options that would help, if more
    than one reading is possible.

    >>> trace = read("example")
    >>> trace.seconds.shape, trace.node_of.tolist()
    ((240, 8), [0, 0, 1, 1, 2, 2, 3, 3])
    >>> _ = Path("mine.csv").write_text("step,rank,duration_ms\n0,a,1000\n0,b,1500\n1,a,500\n")
    >>> mended = read("mine.csv", mend="drop")
    >>> mended.seconds.tolist(), mended.notes
    ([[1.0, 1.5]], ('times in ms, as `duration_ms` says',))
    >>> mended.repairs
    ('1 iteration of 2 left out, for 1 missing time (iteration 1, worker b)',)
    >>> read("mine.csv")
    Traceback (most recent call last):
    ...
    fred.traces.refusal.UnclearTraceError: mine.csv: no time for iteration 1, worker b. 1 time of 4 missing; some ...
    """
    try:
        reading = Reading.model_validate(options)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        expected = first["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
        raise FredError(f"reading {path}: {key}{': ' if key else ''}{expected}") from None
    return reading.read([Path(path), *map(Path, more_paths)], nodes)


def _find_nodes(cells: Cells) -> tuple[NDArray[np.int64] | None, tuple[str, ...]]:
    """Return the node of each worker, and the names of the nodes."""
    if cells.node is None:
        return None, ()
    node_of = np.empty(len(cells.worker.names), np.int64)
    node_of[cells.worker.codes] = cells.node.codes
    _, first, positions = np.unique(node_of, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))  # in the order of their first workers
    return rank[positions], tuple(cells.node.names[node_of[worker]] for worker in np.sort(first))


def _assign_nodes(nodes: Nodes, workers: int) -> NDArray[np.int64]:
    try:
        return spread_workers(nodes, workers)
    except ValueError as error:
        raise FredError(str(error)) from None
