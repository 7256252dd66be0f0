"""FRED's recorder (`fred/record.py`): a file for each rank, `seconds` without its waits for others.

A job that is killed leaves ranks with different numbers of steps, of which those count that all ranks completed.
"""

from dataclasses import replace

import numpy as np

from fred.tables.columns import Labels
from fred.tables.content import Content
from fred.tables.opening import open_table
from fred.traces import long_tables
from fred.traces.cells import Cells
from fred.traces.roles import FileOptions

NAME = "FRED's recorder"
_HEADER = "iteration,worker,node,start,seconds,data,wait"


def sniff(file: Content) -> bool:
    """Return True for a file with the recorder's header.

    Args:
        file: the content of the file.
    """
    return file.head.startswith(_HEADER)


def read(file: Content, options: FileOptions) -> Cells:
    """Return the times of one rank. Raises FredError.

    Args:
        file: the content of the file.
        options: options from the user.
    """
    table = open_table(file)
    table.header = [name for name in table.header if name in ("iteration", "worker", "node", "seconds")]
    cells = long_tables.read_cells(table, options)
    return replace(cells, notes=(f"{NAME}: a rank in each file, its time without waits in `seconds`", *cells.notes))


def drop_incomplete(cells: Cells) -> Cells:
    """Leave out the iterations after the last one that all ranks completed.

    Args:
        cells: the times of all ranks.
    """
    last = np.full(len(cells.worker.names), -1)
    np.maximum.at(last, cells.worker.codes, cells.iteration.codes)
    size = int(last.min()) + 1
    surplus = len(cells.iteration.names) - size
    if surplus == 0 or size == 0:
        return cells
    complete = cells.iteration.codes < size
    return replace(
        cells,
        iteration=Labels(cells.iteration.codes[complete], cells.iteration.names[:size]),
        worker=Labels(cells.worker.codes[complete], cells.worker.names),
        node=cells.node and Labels(cells.node.codes[complete], cells.node.names),
        seconds=cells.seconds[complete],
        row=cells.row[complete],
        notes=(*cells.notes, f"left out, because not all workers completed them: the last {surplus} iterations"),
    )
