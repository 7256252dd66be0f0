"""AMD's rccl-tests: the records of `-x FILE -Z json` or `-Z csv`; its printed log is that of nccl-tests.

Source: the fields that ROCm's own validation (`cvs/models/rccl.py`) expects. Times are microseconds, out of place.
"""

import csv
from collections.abc import Iterator

from fred.base.errors import FredError
from fred.fitting.benchmark_log import BenchmarkLog
from fred.fitting.measurement import Measurement, Skipped, recognise_operations, skip_unknown

TOOL = "rccl-tests"
_FIELDS = {"name", "ranks", "size", "inPlace", "time", "busBw"}


def sniff(head: str, name: str) -> bool:
    """Return True for records of rccl-tests.

    Args:
        head: text of the file.
        name: name of the file.
    """
    return "numCycle" in head[:200] and "busBw" in head


def read(log: BenchmarkLog) -> Iterator[Measurement | Skipped]:
    """Yield the measurements of the records.

    Args:
        log: the file.

    Raises FredError for one rank, and for a number that is missing.
    """
    is_json = log.text.lstrip().startswith(("[", "{"))
    rows = log.records("") if is_json else list(csv.DictReader(log.text.splitlines(), skipinitialspace=True))
    if is_json and not rows:  # a record on each line
        rows = BenchmarkLog(log.path, f"[{log.text}").records("")
    for number, row in enumerate(rows, start=1):
        place = f"{log.path}: record {number}"
        values = {name: str(value).strip() for name, value in row.items() if name}
        if None in row.values() or _FIELDS - {*values}:
            yield Skipped("were cut off")
        elif values["inPlace"] not in ("0", "false", "False"):
            continue
        elif values.get("wrong", "0").strip("0.") not in ("", "N/A"):
            yield Skipped("had wrong results")
        elif not recognise_operations(values["name"]):
            yield skip_unknown(values["name"])
        elif values["size"] == "0":
            yield Skipped("had size 0")
        else:
            nodes, ranks, gpus = (
                int(log.number(values.get(name, "1"), name, place)) for name in ("nodes", "ranks", "gpusPerRank")
            )
            if ranks * gpus < 2:
                run = "mpirun -np 2 -N 1 all_reduce_perf -b 8 -e 1G -f 2 -g 1 -Z json -x all_reduce.json"
                raise FredError(f"{log.path}: one rank, which sent no message; start at least two: `{run}`")
            setting = log.setting("nccl", values["name"], ranks * gpus)
            size, microseconds = log.number(values["size"], "size", place), log.number(values["time"], "time", place)
            yield Measurement(*setting, size, microseconds * 1e-6, machines=nodes)
