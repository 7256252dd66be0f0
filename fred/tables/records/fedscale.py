"""Capacities of devices from FedScale: `computation` in ms a sample, `communication` in kbit/s, for each client.

Lai et al., "FedScale", ICML 2022; the file `client_device_capacity`, `{1: {"computation": 67.0, "communication": 5648.1}}`,
as JSON or as a table. A speed divides compute times, so the median device has speed 1.
"""

import numpy as np

from fred.base.errors import FredError
from fred.tables.content import Content
from fred.tables.opening import open_table
from fred.tables.records.record import Record, objects_by_name, rows_table

NAME = "FedScale's device capacities"
KINDS = ("devices",)
_BYTES = 125.0  # in a kbit


def sniff(file: Content) -> bool:
    """Return True for a file with `computation` and `communication`.

    Args:
        file: content of the file.
    """
    return "computation" in file.head and "communication" in file.head


def read(file: Content, kind: str) -> Record:
    """Return the devices: speed, upload, download in bytes/s. Raises FredError.

    Args:
        file: content of the file.
        kind: `devices`.
    """
    names = ("computation", "communication")
    if file.head.lstrip().startswith("{"):
        clients = objects_by_name(file)
        try:
            times, rates = (np.array([float(client[name]) for client in clients.values()]) for name in names)
        except (KeyError, TypeError, ValueError):
            raise FredError(f"{file.path}: expected the numbers computation and communication of each client") from None
    else:
        table = open_table(file, "client,computation,communication")
        if missing := [name for name in names if name not in table.header]:
            raise FredError(f"{file.path} has no column `{missing[0]}`; expected {', '.join(names)}")
        times, rates = (table.quantities(name, {"x": 1.0}) for name in names)
    if not len(times) or not (np.all(times > 0) and np.all(rates > 0)):
        raise FredError(f"{file.path}: expected positive numbers of computation (ms a sample) and communication (kbit/s)")
    speeds, widths = (np.median(times) / times).tolist(), (rates * _BYTES).tolist()
    record = rows_table(file, ("speed", "upload", "download"), list(zip(speeds, widths, widths, strict=True)))
    record.notes.append("`computation` in ms, so that the median device has speed 1; `communication` in kbit/s, both ways")
    return Record(record)
