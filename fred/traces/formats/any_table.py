"""Tables of step times or operations in any file: the format of all logs that no other format knows."""

import re

from fred.base.errors import FredError
from fred.tables.content import Content
from fred.tables.opening import open_table
from fred.tables.text_layout import RECORDING_CURE
from fred.traces import long_tables
from fred.traces.cells import Cells
from fred.traces.roles import FileOptions

NAME = "table"
_SUMMARY = re.compile(  # in a line of names, of profilers of one process or of whole traces
    r"^(?!.*\b(?:step|iter|iteration|round)s?\b)[^\d\n]*?\b(n?calls|instances|percentage|\w+_pctg)\b[^\d\n]*$",
    re.IGNORECASE | re.MULTILINE,
)
_REFUSED = {  # mark in the begin of a file -> what it is
    r"\A@ mpiP\b": "is a report of mpiP, which has sums over the run for each task and no steps",
    r"\A(?=[^\n]*\btensor_fusion_threshold\b)[^\n]*\bscore\b": "is Horovod's log of autotuning, which has settings and their "
    "scores, and no times of ranks",
}


def sniff(file: Content) -> bool:
    """Return True, because every file may hold a table.

    Args:
        file: the content of the file.
    """
    return bool(file.path)


def read(file: Content, options: FileOptions) -> Cells:
    """Return the times in a table. Raises FredError, or UnclearTraceError if options can make the file readable.

    Args:
        file: the content of the file.
        options: options from the user.
    """
    if description := next((text for mark, text in _REFUSED.items() if re.search(mark, file.head)), ""):
        raise FredError(f"{file.path} {description}; {RECORDING_CURE}")
    if summary := _SUMMARY.search(file.head):
        raise FredError(
            f"{file.path} has sums over many steps (`{summary[1]}`), which hide the times of steps; {RECORDING_CURE}"
        )
    return long_tables.read_cells(open_table(file), options)
