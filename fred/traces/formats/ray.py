"""Ray Train and Tune: a worker's or trial's `progress.csv` or `result.json`, with a row for each report.

`time_this_iter_s` is the time between two reports; `time_total_s` and `timestamp` grow and are no durations.
"""

import re
from dataclasses import replace

from fred.tables.content import Content
from fred.tables.opening import open_table
from fred.traces import long_tables
from fred.traces.cells import Cells
from fred.traces.roles import FILE, FileOptions

NAME = "Ray"
_TIME, _ITERATION = re.compile(r"\b_?time_this_iter_s\b"), re.compile(r"\b_?training_iteration\b")


def sniff(file: Content) -> bool:
    """Return True for a file with Ray's columns.

    Args:
        file: the content of the file.
    """
    first = file.head.partition("\n")[0]
    return bool(_TIME.search(first) and _ITERATION.search(first))


def read(file: Content, options: FileOptions) -> Cells:
    """Return the time between two reports of each worker or trial.

    Raises FredError, or UnclearTraceError if options can make the file readable.

    Args:
        file: the content of the file.
        options: options from the user.
    """
    table = open_table(file)
    iteration, time = (next(name for name in table.header if words.fullmatch(name)) for words in (_ITERATION, _TIME))
    workers = [name for name in ("world_rank", "rank", "trial_id") if name in table.header]
    varying = [name for name in workers if len(set(table.texts(name))) > 1]
    table.names = [name for name in table.names if name in (iteration, time, *varying)]
    table.header = list(table.names)
    roles = {"iteration": iteration, "time": time, "worker": varying[0] if varying else FILE, **options.columns}
    cells = long_tables.read_cells(table, replace(options, columns=roles))
    source = f"`{varying[0]}`" if varying else "each file"
    note = f"Ray: a worker for {source}, the time between its reports in `{time}`, which holds what it waited for others"
    return replace(cells, notes=(note, *cells.notes))
