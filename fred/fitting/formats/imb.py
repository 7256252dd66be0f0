"""Intel MPI Benchmarks and oneCCL's benchmark: the output of IMB-MPI1, with all numbers of processes.

Source: output of versions 2018 and 2021, and oneCCL's `examples/benchmark`. The time is that of the slowest process, as in the
tool's own bandwidths. An allgather, alltoall, gather or scatter is measured by the size of each process's part; FRED counts the
whole.
"""

import re
from collections.abc import Iterator

from fred.fitting.benchmark_log import BenchmarkLog
from fred.fitting.formats.osu import PARTS
from fred.fitting.measurement import TEXTBOOK, Measurement, Skipped, recognise_operations, skip_unknown

TOOL = "Intel MPI benchmarks"
_RUN = "mpirun -np 4 -ppn 1 IMB-MPI1 -npmin 4 Allreduce > imb.txt"


def sniff(head: str, name: str) -> bool:
    """Return True for the output of IMB-MPI1.

    Args:
        head: text of the file.
        name: name of the file.
    """
    return "# Benchmarking" in head and "#bytes" in head


def read(log: BenchmarkLog) -> Iterator[Measurement | Skipped]:
    """Yield the measurements of all benchmarks and numbers of processes.

    Args:
        log: the file.

    Raises FredError for a number that is out of range.
    """
    name, processes, columns = "", 0, [""]
    for number, line in log.lines():
        words = line.split()
        if match := re.match(r"\s*#\s*Benchmarking:? (\S+)", line):
            name, processes = match[1], 0
        elif match := re.match(r"\s*#\s*#?processes(?: =|:) (\d{1,9})", line):
            processes = int(match[1])
        elif words and words[0] in ("#bytes", "#") and "#bytes" in line:
            columns = [word for word in words if word != "#"]
        elif name and words and words[0].isdecimal() and processes:
            time = next((columns.index(column) for column in ("t_max[usec]", "t[usec]", "avg[usec]") if column in columns), 0)
            operations = recognise_operations(name)
            if len(operations) != 1 or not time:
                yield skip_unknown(name, _RUN)
            elif len(words) < len(columns):
                yield Skipped("were cut off")
            elif words[0] == "0":
                yield Skipped("had size 0")
            elif processes < 2:
                yield Skipped("are of one process")
            else:
                place = f"{log.path}:{number}"
                setting = log.setting(TEXTBOOK, name, processes, number)
                size = log.number(words[0], "#bytes", place) * (processes if operations[0] in PARTS else 1)
                yield Measurement(*setting, size, log.number(words[time], columns[time], place) * 1e-6)
