"""Records that tools write, a file for each format: `sniff` tells whether a file has it, `read` returns its plain table.

`NAME` stands in the line that says how a file was read, `KINDS` are the kinds of tables that a format can become.
"""

from types import ModuleType

from fred.tables.content import Content
from fred.tables.records import (
    availability,
    aws_prices,
    azure_events,
    client_behaviour,
    failure_archive,
    fedscale,
    google_machines,
    kubernetes,
    lanl,
    on_off,
    preemptions,
    prometheus,
    sacct,
    slurm_events,
    spot_prices,
    transitions,
)
from fred.tables.records.record import Record

FORMATS: tuple[ModuleType, ...] = (
    *(sacct, slurm_events, lanl, failure_archive, preemptions, azure_events),
    *(kubernetes, prometheus, google_machines),
    *(aws_prices, spot_prices, availability, on_off, client_behaviour, fedscale, transitions),
)


def read_record(file: Content, kind: str) -> Record | None:
    """Return a tool's record as a plain table; None if no format knows the file. Raises FredError.

    Args:
        file: content of the file.
        kind: kind of table that a scenario needs, such as `failures`.
    """
    reader = next((reader for reader in FORMATS if kind in reader.KINDS and reader.sniff(file)), None)
    if reader is None:
        return None
    record: Record = reader.read(file, kind)
    record.table.notes.insert(0, f"record of {reader.NAME}")
    return record
