"""Preempted machines of Google's cloud, from `gcloud compute operations list --format=json`.

Operations `compute.instances.preempted` take a machine down, until `insert` or `start` of it.
"""

from fred.base.errors import FredError
from fred.tables.content import Content
from fred.tables.opening import open_table
from fred.tables.records.record import Record, rows_table

NAME = "preemptions by gcloud"
KINDS = ("failures",)
_PREEMPTED = "compute.instances.preempted"
_BEGINS = ("insert", "start", "compute.instances.insert", "compute.instances.start")
_COMMAND = "`gcloud compute operations list --format=json > preempted.json`"


def sniff(file: Content) -> bool:
    """Return True for a file with such an operation.

    Args:
        file: content of the file.
    """
    return _PREEMPTED in file.head


def read(file: Content, kind: str) -> Record:
    """Return the failures: worker, down, up. Raises FredError.

    Args:
        file: content of the file.
        kind: `failures`.
    """
    if not file.head.lstrip().startswith(("[", "{")):
        raise FredError(f"{file.path}: expected JSON: {_COMMAND}")
    table = open_table(file, "operationType,targetLink,insertTime")
    if missing := [name for name in ("operationType", "targetLink", "insertTime") if name not in table.header]:
        raise FredError(f"{file.path} has no {missing[0]}; expected operations as from {_COMMAND}")
    kinds, targets, times = (table.texts(name) for name in ("operationType", "targetLink", "insertTime"))
    machines = [target.rpartition("/")[2] for target in targets]
    moments = table.columns([], ["insertTime"])[1]["insertTime"]
    rows = []
    for row in [row for row, kind in enumerate(kinds) if kind == _PREEMPTED]:
        restarts = [event for event, machine in enumerate(machines) if machine == machines[row] and kinds[event] in _BEGINS]
        restart_times = [float(moments[event]) for event in restarts if moments[event] > moments[row]]
        rows.append((machines[row], float(moments[row]), min(restart_times, default=None)))
    record = rows_table(file, ("worker", "down", "up"), rows)
    record.notes.append("a machine is down until it is inserted or started again")
    return Record(record, first=float(min(moments)) if times else None)
