"""Records that tools write, a file for each family of formats. `FORMATS` has all, the first that knows a file reads it."""

from fred.tables.content import Content
from fred.tables.records import archives, clients, clouds, monitors, slurm
from fred.tables.records.record import Record, RecordFormat

FORMATS: tuple[RecordFormat, ...] = (
    *(slurm.SACCT, slurm.SLURM_EVENTS, archives.LANL, archives.FAILURE_ARCHIVE, clouds.PREEMPTIONS, clouds.AZURE_EVENTS),
    *(monitors.KUBERNETES, monitors.PROMETHEUS, archives.GOOGLE_MACHINES),
    *(
        clouds.AWS_PRICES,
        clouds.SPOT_PRICES,
        clients.AVAILABILITY,
        clients.ON_OFF,
        clients.CLIENT_BEHAVIOUR,
        clients.FEDSCALE,
        monitors.TRANSITIONS,
    ),
)


def read_record(file: Content, kind: str) -> Record | None:
    """Return a tool's record as a plain table; None if no format knows the file. Raises FredError.

    Args:
        file: content of the file.
        kind: kind of table that a scenario needs, such as `failures`.
    """
    reader = next((reader for reader in FORMATS if kind in reader.kinds and reader.sniff(file)), None)
    if reader is None:
        return None
    record = reader.read(file, kind)
    record.table.notes.insert(0, f"record of {reader.name}")
    return record
