"""Benchmarks of MPI and of its collective operations: OSU's and Intel's.

OSU micro-benchmarks: latencies of collective operations and of messages, with the options `-f`, `-z` and `-c`.
Source: output of versions 3.8 to 7.5. The log has no number of processes. An allgather, all-to-all, gather or scatter is
measured by the size of each process's part; FRED counts the whole. Bandwidth tests have many messages under way, so that their
times have no latency: their rows are left out.

Intel MPI Benchmarks and oneCCL's benchmark: the output of IMB-MPI1, with all numbers of processes.
Source: output of versions 2018 and 2021, and oneCCL's `examples/benchmark`. The time is that of the slowest process, as in the
tool's own bandwidths. An allgather, alltoall, gather or scatter is measured by the size of each process's part; FRED counts the
whole.
"""

import re
from collections.abc import Iterator

from fred.fitting.measurement import (
    TEXTBOOK,
    BenchmarkFormat,
    BenchmarkLog,
    Measurement,
    Setting,
    Skipped,
    recognise_operations,
    skip_unknown,
)

PARTS = ("allgather", "all-to-all", "gather", "scatter")  # measured by the size of a part
_TITLE = re.compile(r"#\s*OSU (.*?) ?\b(?:Test\b|v\d)")


def sniff_osu(head: str, name: str) -> bool:
    """Return True for the output of these programs.

    Args:
        head: text of the file.
        name: name of the file.
    """
    return bool(re.search(r"^\s*#\s*OSU .*(Test|v\d)", head, re.MULTILINE))


def read_osu(log: BenchmarkLog) -> Iterator[Measurement | Skipped]:
    """Yield the measurements of all programs in a log.

    Args:
        log: the file.

    Raises FredError for a number of members that neither the log nor the command line has.
    """
    title, columns = "", [""]
    setting: Setting | None = None
    for number, line in log.lines():
        words = line.split()
        if match := _TITLE.match(line.strip()):
            title, columns, setting = match[1], [""], None
        elif re.match(r"#\s*Size\b", line.strip()):
            columns = re.split(r"\s{2,}|\t", line.strip().lstrip("# "))
        elif title and words and words[0].isdecimal():
            times = [place for place, name in enumerate(columns) if re.match(r"(avg |overall)?lat", name.lower())]
            operation = _operation(title)
            if not operation or not times:
                yield _skip(title)
            elif len(words) <= times[0] or (not line.endswith("\n") and len(words) < len(columns)):
                yield Skipped("were cut off")
            elif "Fail" in words:
                yield Skipped("failed the validation")
            elif words[0] == "0":
                yield Skipped("had size 0")
            else:
                place = f"{log.path}:{number}"
                library = "nccl" if "NCCL" in title else TEXTBOOK
                if setting is None:
                    processes = 0 if operation == "point-to-point" else log.count_launched(number)
                    setting = log.setting(library, operation, processes, number)
                size = log.number(words[0], "Size", place) * (setting.nodes if operation in PARTS else 1)
                yield Measurement(*setting, size, log.number(words[times[0]], columns[times[0]], place) * 1e-6)


def _operation(title: str) -> str:
    """Return the operation of a title such as `MPI-CUDA Allreduce Latency`, or an empty text if FRED does not know it."""
    if "Bandwidth" in title or re.search("Non-?blocking|Persistent|Neighbor|Multi", title, re.IGNORECASE):
        return ""
    if re.fullmatch(r"(\S+ )?Latency", title):
        return "point-to-point"
    operations = recognise_operations(title.replace("Personalized", ""))
    return operations[0] if len(operations) == 1 else ""


def _skip(title: str) -> Skipped:
    """Return the reason to leave out a row, with a program to run instead."""
    if "Bandwidth" in title:
        return Skipped(
            "are of a bandwidth test, whose times have no latency", "mpirun -np 2 -N 1 osu_latency > osu_latency.txt"
        )
    return skip_unknown(title, "mpirun -np 4 -N 1 osu_allreduce -f > osu_allreduce-np4.txt")


OSU = BenchmarkFormat("OSU micro-benchmarks", sniff_osu, read_osu)


_RUN = "mpirun -np 4 -ppn 1 IMB-MPI1 -npmin 4 Allreduce > imb.txt"


def sniff_imb(head: str, name: str) -> bool:
    """Return True for the output of IMB-MPI1.

    Args:
        head: text of the file.
        name: name of the file.
    """
    return "# Benchmarking" in head and "#bytes" in head


def read_imb(log: BenchmarkLog) -> Iterator[Measurement | Skipped]:
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


IMB = BenchmarkFormat("Intel MPI benchmarks", sniff_imb, read_imb)
