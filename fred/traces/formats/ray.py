"""Ray Train and Tune: a worker's or trial's `progress.csv` or `result.json`, with a row for each report.

`time_this_iter_s` is the time between two reports; `time_total_s` and `timestamp` grow and are no durations.
"""

import re
from dataclasses import replace

from fred.tables.content import Content
from fred.tables.opening import opened
from fred.traces import long_tables
from fred.traces.cells import Cells
from fred.traces.roles import FILE, Says

NAME = "Ray"
_TIME, _ITERATION = re.compile(r"\b_?time_this_iter_s\b"), re.compile(r"\b_?training_iteration\b")


def sniff(file: Content) -> bool:
    """Return True for a file with Ray's columns.

    Args:
        file: the content of the file.
    """
    first = file.head.partition("\n")[0]
    return bool(_TIME.search(first) and _ITERATION.search(first))


def read(file: Content, says: Says) -> Cells:
    """Return the time between two reports of each worker or trial.

    Raises FredError, or UnclearTraceError if options can make the file readable.

    Args:
        file: the content of the file.
        says: options from the user.
    """
    table = opened(file)
    iteration, time = (next(name for name in table.header if words.fullmatch(name)) for words in (_ITERATION, _TIME))
    workers = [name for name in ("world_rank", "rank", "trial_id") if name in table.header]
    many = [name for name in workers if len(set(table.texts(name))) > 1]
    table.names = [name for name in table.names if name in (iteration, time, *many)]
    table.header = list(table.names)
    roles = {"iteration": iteration, "time": time, "worker": many[0] if many else FILE, **says.columns}
    cells = long_tables.cells_of(table, replace(says, columns=roles))
    source = f"`{many[0]}`" if many else "each file"
    note = f"Ray: a worker for {source}, the time between its reports in `{time}`, which holds what it waited for others"
    return replace(cells, notes=(note, *cells.notes))
