"""Formats of step-time logs, a file for each: `sniff` tells whether a file has the format, `read` returns its times.

The first format that knows a file reads it; tables come last. `NAME` stands in the line that says how a file was read.
"""

from collections.abc import Sequence
from types import ModuleType

from fred.base.errors import FredError
from fred.tables.content import Content
from fred.traces.cells import Cells
from fred.traces.formats import (
    any_table,
    consoles,
    flight_recorder,
    horovod,
    kineto,
    megatron,
    metric_rows,
    nsys,
    ray,
    recorded_steps,
    tensorboard,
    traceml,
    wandb,
    xla,
)
from fred.traces.roles import FileOptions

FORMATS: tuple[ModuleType, ...] = (
    *(recorded_steps, horovod, xla, kineto, nsys, traceml, flight_recorder),
    *(tensorboard, wandb, ray, metric_rows, megatron, consoles, any_table),
)


def find_format(file: Content) -> ModuleType:
    """Return the first format that knows a file.

    Args:
        file: the content of the file.
    """
    return next(reader for reader in FORMATS if reader.sniff(file))


def read_cells(file: Content, options: FileOptions) -> Cells:
    """Return the times in a file. Raises FredError, or UnclearTraceError if options can make the file readable.

    Args:
        file: the content of the file.
        options: options from the user.
    """
    return find_format(file).read(file, options)


def check_several_workers(files: Sequence[Content], workers: int) -> None:
    """Raise FredError if the only worker of a trace is the one process whose console log was given.

    Args:
        files: the files of the trace.
        workers: number of workers in them.
    """
    if workers == 1 and find_format(files[0]) is consoles:
        raise FredError(consoles.explain_single_log(files[0]))
