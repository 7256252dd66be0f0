"""DeepSpeed's ds_bench: all operations of a run, with and without `--raw`.

Source: `benchmarks/communication` of DeepSpeedExamples. The column `Description` has the exact size. An all_gather is measured
by the size of each process's part; FRED counts the whole.
"""

import re
from collections.abc import Iterator

from fred.base.errors import FredError
from fred.fitting.benchmark_log import BenchmarkLog, Setting
from fred.fitting.measurement import Measurement, Skipped

TOOL = "ds_bench"
_TITLE = re.compile(r"-+ Performance of (\w+) on (\d{1,9}) devices")
_ROW = re.compile(r"\s*[\d.]+ *[KMGT]?B?\s+(\d+)x(\d+)\s+([\d.]+)(?: *(us|ms|s))?\s+[\d.]+\s+[\d.]+")
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, None: 1e-6}
_LOGGED = re.compile(r"\bComm\. Op\s+Message Size\s+Count\s+Total Latency|\bcomm op: \w+ \| time \(ms\):")


def sniff(head: str, name: str) -> bool:
    """Return True for the output of ds_bench, and for the summary of DeepSpeed's communication logger.

    Args:
        head: text of the file.
        name: name of the file.
    """
    return bool(_TITLE.search(head) or _LOGGED.search(head))


def read(log: BenchmarkLog) -> Iterator[Measurement | Skipped]:
    """Yield the measurements of all operations.

    Args:
        log: the file.

    Raises FredError for one device, and for a summary of a training, whose times contain waiting.
    """
    if not _TITLE.search(log.text):
        raise FredError(
            f"{log.path}: DeepSpeed's summary of a training: its times contain the wait for the slowest process, not only "
            "the network's; run `ds_bench --scan > ds_bench.log` on the same machines, and fit to that"
        )
    setting: Setting | None = None
    for number, line in log.lines():
        if title := _TITLE.search(line):
            if int(title[2]) < 2:
                raise FredError(f"{log.path}:{number}: one device, which sent no message; run it on at least two machines")
            setting = log.setting(log.values.get("library", "nccl"), title[1], int(title[2]), number)
        elif setting and (row := _ROW.match(line)):
            elements, width, time, unit = row.groups()
            place = f"{log.path}:{number}"
            size = int(elements) * int(width) * (setting.nodes if setting.operation == "allgather" else 1)
            yield Measurement(*setting, size, log.number(time, "Duration", place) * _UNITS[unit])
        elif setting and re.match(r"\s*[\d.]+ *[KMGT]?B?\s+\d+x\d+", line):
            yield Skipped("were cut off")
