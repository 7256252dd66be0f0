"""Tables of step times or operations in any file: the format of all logs that no other format knows."""

from fred.tables.content import Content
from fred.tables.opening import opened
from fred.traces import long_tables
from fred.traces.cells import Cells
from fred.traces.roles import Says

NAME = "table"


def sniff(file: Content) -> bool:
    """Return True, because every file may hold a table.

    Args:
        file: the content of the file.
    """
    return bool(file.path)


def read(file: Content, says: Says) -> Cells:
    """Return the times in a table. Raises FredError, or UnclearTraceError if options can make the file readable.

    Args:
        file: the content of the file.
        says: options from the user.
    """
    return long_tables.cells_of(opened(file), says)
