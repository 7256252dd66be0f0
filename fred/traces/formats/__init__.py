"""Formats of step-time logs, a file for each family. The first format that knows a file reads it; tables come last."""

from collections.abc import Sequence

from fred.base.errors import FredError
from fred.tables.content import Content
from fred.traces.cells import Cells, LogFormat
from fred.traces.formats import collective_events, consoles, nsys, profilers, step_recorders, tabular, trackers
from fred.traces.roles import FileOptions

FORMATS: tuple[LogFormat, ...] = (
    *(
        step_recorders.RECORDED_STEPS,
        collective_events.HOROVOD,
        profilers.XLA,
        profilers.KINETO,
        nsys.NSYS,
        step_recorders.TRACEML,
        collective_events.FLIGHT_RECORDER,
    ),
    *(
        trackers.TENSORBOARD,
        trackers.WANDB,
        trackers.RAY,
        tabular.METRIC_ROWS,
        step_recorders.MEGATRON,
        consoles.CONSOLES,
        tabular.ANY_TABLE,
    ),
)


def find_format(file: Content) -> LogFormat:
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
    if workers == 1 and find_format(files[0]) is consoles.CONSOLES:
        raise FredError(consoles.explain_single_log(files[0]))
