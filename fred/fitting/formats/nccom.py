"""AWS Neuron's nccom-test: the printed table, and its `--report-to-json-file`.

Source: the tool's user guide (2.29). Neither has the number of ranks, and the operation only in the command line: they follow
from the bus bandwidths where only one number of ranks explains them.
"""

import re
from collections.abc import Iterator, Mapping

from fred.fitting.benchmark_log import BenchmarkLog
from fred.fitting.measurement import NUMBER, TEXTBOOK, Measurement, Skipped, infer_members, recognise_operations

TOOL = "nccom-test"
_TIMES = re.compile(r"time(:avg)?\(us\)|time:p\d+\(us\)")
_GROUP = re.compile(r"--data-parallel-dimension[ =](\d{1,9})")  # as many ranks take part in an operation
_COMMAND = re.compile(
    r"\bnccom-test\b.*?\b(all_?reduce|allr|all_?gather|allg|reduce_scatter|redsct|alltoallv?|sendrecv|permute)\b.*"
)


def sniff(head: str, name: str) -> bool:
    """Return True for a table or JSON file of nccom-test.

    Args:
        head: text of the file.
        name: name of the file.
    """
    return "size(B)" in head and "count(elems)" in head and bool(_TIMES.search(head))


def read(log: BenchmarkLog) -> Iterator[Measurement | Skipped]:
    """Yield the measurements of a table.

    Args:
        log: the file.

    Raises FredError for an operation or a number of ranks that neither the file nor the command line has.
    """
    rows = list(_rows(log))
    command = _COMMAND.search(log.text)
    ranks = command and (_GROUP.search(command[0]) or re.search(r"(?:-r|--nworkers)[ =](\d{1,9})", command[0]))
    machines = re.search(r"(?:-N|--nnodes)[ =](\d{1,9})", command[0]) if command else None
    bandwidths = [(row["algbw(GB/s)"], row["busbw(GB/s)"]) for row in rows if {"algbw(GB/s)", "busbw(GB/s)"} <= {*row}]
    operation = command[1] if command else "" if recognise_operations(log.path.stem) else log.values.get("operation", "")
    bandwidths = [pair for pair in bandwidths if all(map(NUMBER.fullmatch, pair))]
    if not command and any(float(bus) > float(algorithm) for algorithm, bus in bandwidths):
        operation = "allreduce"  # the only one with more on the bus than the size
    operations = recognise_operations(operation or log.path.stem)
    members = int(ranks[1]) if ranks else infer_members(operations[0], bandwidths) if len(operations) == 1 else 0
    setting = log.setting(TEXTBOOK, operation, members)
    for number, row in enumerate(rows, start=1):
        times = sorted((name for name in row if _TIMES.fullmatch(name)), key=lambda name: ("p" in name, name != "time:p50(us)"))
        place = f"{log.path}: row {number}"
        if not row.get("count(elems)", "").isdecimal():
            yield Skipped("failed")
        elif not times or not {"size(B)", "busbw(GB/s)"} <= {*row}:
            yield Skipped("were cut off")
        else:
            size, microseconds = log.number(row["size(B)"], "size(B)", place), log.number(row[times[0]], times[0], place)
            yield Measurement(*setting, size, microseconds * 1e-6, machines=int(machines[1]) if machines else 0)


def _rows(log: BenchmarkLog) -> Iterator[Mapping[str, str]]:
    """Yield the cells of all rows, by their columns."""
    for record in log.records("results"):
        yield {name: str(value) for name, value in record.items()}
    columns: list[str] = []
    for _, line in log.lines():
        words = line.split()
        if "size(B)" in words and "count(elems)" in words:
            columns = words
        elif columns and words and words[0].isdecimal():
            yield dict(zip(columns, words, strict=False))
