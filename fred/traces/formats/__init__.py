"""Formats of step-time logs, a file for each: `sniff` tells whether a file has the format, `read` returns its times.

The first format that knows a file reads it; tables come last. `NAME` stands in the line that says how a file was read.
"""

from types import ModuleType

from fred.tables.content import Content
from fred.traces.cells import Cells
from fred.traces.formats import any_table, kineto, metric_rows, ray, recorded_steps, tensorboard, wandb
from fred.traces.roles import Says

FORMATS: tuple[ModuleType, ...] = (recorded_steps, kineto, tensorboard, wandb, ray, metric_rows, any_table)


def cells_of(file: Content, says: Says) -> Cells:
    """Return the times in a file. Raises FredError, or UnclearTraceError if options can make the file readable.

    Args:
        file: the content of the file.
        says: options from the user.
    """
    return next(reader for reader in FORMATS if reader.sniff(file)).read(file, says)
