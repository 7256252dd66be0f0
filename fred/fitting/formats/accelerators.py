"""Benchmarks of collective operations between accelerators: nccl-tests, rccl-tests, nccom-test and ds_bench.

NVIDIA's nccl-tests and AMD's rccl-tests: the printed log, of one program or several, and the JSON of `-J`.
Sources: `src/util.cu` (2.19.6) and the logs of 2019. Sizes are those of the larger buffer, as FRED counts them; times are of
operations out of place.

AMD's rccl-tests: the records of `-x FILE -Z json` or `-Z csv`; its printed log is that of nccl-tests.
Source: the fields that ROCm's own validation (`cvs/models/rccl.py`) expects. Times are microseconds, out of place.

AWS Neuron's nccom-test: the printed table, and its `--report-to-json-file`.
Source: the tool's user guide (2.29). Neither has the number of ranks, and the operation only in the command line: they follow
from the bus bandwidths where only one number of ranks explains them.

DeepSpeed's ds_bench: all operations of a run, with and without `--raw`.
Source: `benchmarks/communication` of DeepSpeedExamples. The column `Description` has the exact size. An all_gather is measured
by the size of each process's part; FRED counts the whole.
"""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fred.base.errors import FredError
from fred.fitting.measurement import (
    NUMBER,
    TEXTBOOK,
    BenchmarkFormat,
    BenchmarkLog,
    Measurement,
    Setting,
    Skipped,
    infer_members,
    recognise_operations,
    skip_unknown,
)

_RANK = re.compile(r"[#\s]*Rank\s+(\d{1,9})\b(?:\s+Group\s+(\d+)\b)?.*?\bon\s+(\S+)")
_PROGRAM = re.compile(r"\b(\w+_perf)")
_BUILD = "make MPI=1 MPI_HOME=/path/to/mpi"
_RUN = "mpirun -np 2 -N 1 all_reduce_perf -b 8 -e 1G -f 2 -g 1"
_NCCL_TESTS_ROW = re.compile(
    r"^ +\d+ +\d+ +(?:u?int\d+|float|double|half|bfloat16|f\d\w+|fp8\w+) +\w+ +-?\d+ +[\d.]+ +[\d.]+ +[\d.]+ +\d+ ",
    re.MULTILINE,
)
_COLUMNS = ["size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong"]  # if the head of the log is missing
_WRONG = Skipped("had wrong results (#wrong)")


@dataclass
class _Program:
    """The head of one program's log.

    Args:
        name: name of the program; empty: not printed.
        ranks: number, group and machine of each rank.
        columns: names of the columns.
    """

    name: str = ""
    ranks: list[tuple[int, str, str]] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)


def sniff_nccl_tests(head: str, name: str) -> bool:
    """Return True for a log or a JSON file of these programs.

    Args:
        head: text of the file.
        name: name of the file.
    """
    is_json = head.lstrip().startswith("{") and '"nccl_version"' in head
    is_log = re.search(
        r"^#.*(nThread|out-of-place)|^#\s+size\s+count\b.*\btime\b", head, re.MULTILINE
    ) or _NCCL_TESTS_ROW.search(head)
    return is_json or bool(is_log)


def read_nccl_tests(log: BenchmarkLog) -> Iterator[Measurement | Skipped]:
    """Yield the measurements of a log.

    Args:
        log: the file.

    Raises FredError for ranks that are not connected, CPU times, and what the log does not say.
    """
    yield from _read_json(log) if log.text.lstrip().startswith("{") else _read_text(log)


def _read_text(log: BenchmarkLog) -> Iterator[Measurement | Skipped]:
    lines = list(log.lines())
    starts = [position for position, (_, line) in enumerate(lines) if re.match(r"[#\s]*nThread \d", line)]  # of programs
    ranks = [int(match[1]) for _, line in lines if (match := _RANK.match(line))]
    if ranks and not any(ranks):
        copies = f"{len(ranks)} processes that all have rank 0" if len(ranks) > 1 else "one rank"
        raise _connection_error(log, copies)
    name = ""
    for start, end in zip([0, *starts], [*starts, len(lines)], strict=True):
        program = _Program(name)
        rows: list[tuple[int, list[str]]] = []
        for number, line in lines[start:end]:
            words = line.split()
            if match := _RANK.match(line):
                program.ranks.append((int(match[1]), match[2] or "0", match[3]))
            elif re.match(r"[#\s]*size\s+count\b", line):
                program.columns = line.lstrip("# ").split()
            # Only the last line can be a row that is cut off.
            elif words and words[0].isdecimal() and (number == len(lines) or (len(words) > 4 and words[1].isdecimal())):
                rows.append((number, words))
            elif (match := _PROGRAM.search(line)) and "concluded" not in line:  # the line that ends a program has its name, too
                name = match[1]
                program.name = program.name if rows else name  # below rows, a name is that of the next program
        if rows and len({rank for rank, _, _ in program.ranks}) < len(program.ranks):
            raise _connection_error(log, "processes whose ranks have the same numbers")
        if rows:
            first_row = lines[rows[0][0] - 1][1]
            has_usual_columns = not program.columns and _NCCL_TESTS_ROW.search(first_row)
            program.columns = [*_COLUMNS] if has_usual_columns else program.columns
            yield from _nccl_tests_rows(log, program, rows)


def _connection_error(log: BenchmarkLog, processes: str) -> FredError:
    """Return the error for processes that do not know of each other."""
    return FredError(
        f"{log.path}: the log is of {processes}: each ran alone, without a message between them (busbw 0 of a single rank). "
        f"Build nccl-tests with `{_BUILD}` and start it with `{_RUN}`: its log then lists ranks 0 and 1"
    )


def _nccl_tests_rows(
    log: BenchmarkLog, program: _Program, rows: list[tuple[int, list[str]]]
) -> Iterator[Measurement | Skipped]:
    """Yield the measurements in the rows of one program."""
    if "cputime" in program.columns:
        raise FredError(f"{log.path}: times of the CPU (-C 1), which do not include the network's; run it without -C")
    if "time" not in program.columns:
        raise FredError(f"{log.path}: the log has no line `# size count ... time ...`")
    if program.name and not recognise_operations(program.name):
        yield from (skip_unknown(program.name, _RUN) for _ in rows)
        return
    rows = [(number, _align(words, program.columns)) for number, words in rows]
    time_column = program.columns.index("time")  # the first one: out of place
    _check_bandwidths(log, [words for _, words in rows], time_column)
    wrong_column = program.columns.index("#wrong") if "#wrong" in program.columns else 0
    hosts = _hosts_of_members(program)
    members = len(hosts) or _count_members(program, log, [words for _, words in rows])
    setting = log.setting("nccl", program.name, members, rows[0][0])
    for number, words in rows:
        if skipped := _skip_reason(words, time_column, wrong_column):
            yield skipped
        else:
            where = f"{log.path}:{number}"
            size, microseconds = log.number(words[0], "size", where), log.number(words[time_column], "time", where)
            yield Measurement(*setting, size, microseconds * 1e-6, machines=len({*hosts} - {""}))


def _hosts_of_members(program: _Program) -> list[str]:
    """Return the machine of each member of the first group, empty ones if lines are missing; none: no ranks were printed."""
    first_group = program.ranks[0][1] if program.ranks else "0"
    hosts = [host for _, group, host in program.ranks if group == first_group]
    largest_rank = max((rank for rank, _, _ in program.ranks), default=-1)
    has_one_group = len({group for _, group, _ in program.ranks}) == 1  # ranks count over all groups
    return [""] * (1 + largest_rank) if has_one_group and len(hosts) <= largest_rank else hosts


def _count_members(program: _Program, log: BenchmarkLog, rows: Sequence[Sequence[str]]) -> int:
    """Return the number of members, from the ratio of the two bandwidths; 0: unknown."""
    algbw_column = program.columns.index("time") + 1  # busbw follows
    operations = recognise_operations(program.name or log.values.get("operation", log.path.stem))
    bandwidths = [(words[algbw_column], words[algbw_column + 1]) for words in rows if len(words) > algbw_column + 1]
    return infer_members(operations[0], bandwidths) if len(operations) == 1 else 0


def _skip_reason(words: Sequence[str], time_column: int, wrong_column: int) -> Skipped | None:
    """Return why a row is no measurement; None: it is one.

    `wrong_column` is that of the number of wrong results; 0: there is none.
    """
    if len(words) < time_column + 2:
        return Skipped("were cut off")
    if not words[0].strip("0"):
        return Skipped("had size 0")
    if not words[time_column].strip("0."):
        return Skipped("had time 0")
    wrong_results = words[wrong_column] if wrong_column and len(words) > wrong_column else ""
    return _WRONG if wrong_results.strip("0.") not in ("", "N/A") else None


def _align(words: list[str], columns: Sequence[str]) -> list[str]:
    """Return the words of a row, with empty ones for `redop` and `root` where the program leaves them blank."""
    # A blank `redop` comes with a `root` in broadcast and reduce, and without one elsewhere. If the row is still too short
    # after the first blank, the root is blank, too.
    words, full_length = list(words), len(columns) - ("timestamp" in columns)
    for column, pattern in (("redop", r"[a-z]"), ("root", r"-?\d+$")):
        position = columns.index(column) if column in columns else len(words)
        if position < len(words) and not re.match(pattern, words[position]):
            words.insert(position, "")
        elif position < len(words) and column == "root" and not words[position - 1] and len(words) < full_length:
            words.insert(position, "")  # the root is blank, too: the integer in its place is a time
    return words


def _check_bandwidths(log: BenchmarkLog, rows: Sequence[Sequence[str]], time_column: int) -> None:
    """Raise FredError if most algorithm bandwidths are not size / time: the columns are others than the header says."""
    cells = [(row[0], *row[time_column : time_column + 2]) for row in rows if len(row) > time_column + 2]
    numbers = [tuple(map(float, row)) for row in cells if all(map(NUMBER.fullmatch, row))]
    bandwidths = [(size / time / 1e3, printed) for size, time, printed in numbers if time > 0]  # GB/s, from bytes and us
    precise = [pair for pair in bandwidths if pair[1] >= 0.1]  # two decimals are printed: smaller ones are too coarse
    if 2 * sum(1 for computed, printed in precise if abs(computed / printed - 1) > 0.2) > len(precise):
        raise FredError(
            f"{log.path}: `algbw` is not size / `time`, so the columns are not those of the line `# size count ...`; correct "
            "that line, or write a table with the header `library,operation,nodes,bytes,microseconds`"
        )


def _read_json(log: BenchmarkLog) -> Iterator[Measurement | Skipped]:
    devices = log.records("devices")
    hosts = [str(device.get("hostname")) for device in devices if device.get("group") == devices[0].get("group")]
    if len(hosts) == 1:
        raise FredError(f"{log.path}: one rank, which sent no message; start at least two: `{_RUN} -J {log.path.name}`")
    arguments = re.search(r'"args"\s*:\s*(\[[^\]]*\])', log.text)
    program = _PROGRAM.search(arguments[1] if arguments else "")  # such as all_reduce_perf
    results = log.records("results")
    if results:
        setting = log.setting("nccl", program[1] if program else "", len(hosts))
    for number, row in enumerate(results, start=1):
        sides = [row.get("out_of_place"), row.get("in_place")]
        times: dict[str, Any] = next((side for side in sides if isinstance(side, dict)), {})
        if "cpu_time" in times:
            raise FredError(f"{log.path}: times of the CPU (-C 1), which do not include the network's; run it without -C")
        where = f"{log.path}: result {number}"
        if not row.get("size") or "time" not in times:
            yield Skipped("had no size or no time")
        elif times.get("nwrong"):
            yield _WRONG
        else:
            size, microseconds = (log.number(str(part[name]), name, where) for part, name in ((row, "size"), (times, "time")))
            yield Measurement(*setting, size, microseconds * 1e-6, machines=len(set(hosts)))


NCCL_TESTS = BenchmarkFormat("nccl-tests", sniff_nccl_tests, read_nccl_tests)


_FIELDS = {"name", "ranks", "size", "inPlace", "time", "busBw"}


def sniff_rccl_tests(head: str, name: str) -> bool:
    """Return True for records of rccl-tests.

    Args:
        head: text of the file.
        name: name of the file.
    """
    return "numCycle" in head[:200] and "busBw" in head


def read_rccl_tests(log: BenchmarkLog) -> Iterator[Measurement | Skipped]:
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
        where = f"{log.path}: record {number}"
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
                int(log.number(values.get(name, "1"), name, where)) for name in ("nodes", "ranks", "gpusPerRank")
            )
            if ranks * gpus < 2:
                run = "mpirun -np 2 -N 1 all_reduce_perf -b 8 -e 1G -f 2 -g 1 -Z json -x all_reduce.json"
                raise FredError(f"{log.path}: one rank, which sent no message; start at least two: `{run}`")
            setting = log.setting("nccl", values["name"], ranks * gpus)
            size, microseconds = log.number(values["size"], "size", where), log.number(values["time"], "time", where)
            yield Measurement(*setting, size, microseconds * 1e-6, machines=nodes)


RCCL_TESTS = BenchmarkFormat("rccl-tests", sniff_rccl_tests, read_rccl_tests)


_TIMES = re.compile(r"time(:avg)?\(us\)|time:p\d+\(us\)")
_GROUP = re.compile(r"--data-parallel-dimension[ =](\d{1,9})")  # as many ranks take part in an operation
_COMMAND = re.compile(
    r"\bnccom-test\b.*?\b(all_?reduce|allr|all_?gather|allg|reduce_scatter|redsct|alltoallv?|sendrecv|permute)\b.*"
)


def sniff_nccom(head: str, name: str) -> bool:
    """Return True for a table or JSON file of nccom-test.

    Args:
        head: text of the file.
        name: name of the file.
    """
    return "size(B)" in head and "count(elems)" in head and bool(_TIMES.search(head))


def read_nccom(log: BenchmarkLog) -> Iterator[Measurement | Skipped]:
    """Yield the measurements of a table.

    Args:
        log: the file.

    Raises FredError for an operation or a number of ranks that neither the file nor the command line has.
    """
    rows = list(_nccom_rows(log))
    command = _COMMAND.search(log.text)
    ranks_option = command and (_GROUP.search(command[0]) or re.search(r"(?:-r|--nworkers)[ =](\d{1,9})", command[0]))
    machines_option = re.search(r"(?:-N|--nnodes)[ =](\d{1,9})", command[0]) if command else None
    bandwidths = [(row["algbw(GB/s)"], row["busbw(GB/s)"]) for row in rows if {"algbw(GB/s)", "busbw(GB/s)"} <= {*row}]
    operation = command[1] if command else "" if recognise_operations(log.path.stem) else log.values.get("operation", "")
    bandwidths = [pair for pair in bandwidths if all(map(NUMBER.fullmatch, pair))]
    if not command and any(float(bus) > float(algorithm) for algorithm, bus in bandwidths):
        operation = "allreduce"  # the only one with more on the bus than the size
    operations = recognise_operations(operation or log.path.stem)
    members = int(ranks_option[1]) if ranks_option else infer_members(operations[0], bandwidths) if len(operations) == 1 else 0
    setting = log.setting(TEXTBOOK, operation, members)
    for number, row in enumerate(rows, start=1):
        times = [name for name in row if _TIMES.fullmatch(name)]
        times.sort(key=lambda name: ("p" in name, name != "time:p50(us)"))  # the mean, else the median, else another percentile
        where = f"{log.path}: row {number}"
        if not row.get("count(elems)", "").isdecimal():
            yield Skipped("failed")
        elif not times or not {"size(B)", "busbw(GB/s)"} <= {*row}:
            yield Skipped("were cut off")
        else:
            size, microseconds = log.number(row["size(B)"], "size(B)", where), log.number(row[times[0]], times[0], where)
            yield Measurement(*setting, size, microseconds * 1e-6, machines=int(machines_option[1]) if machines_option else 0)


def _nccom_rows(log: BenchmarkLog) -> Iterator[Mapping[str, str]]:
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


NCCOM = BenchmarkFormat("nccom-test", sniff_nccom, read_nccom)


_TITLE = re.compile(r"-+ Performance of (\w+) on (\d{1,9}) devices")
_DS_BENCH_ROW = re.compile(r"\s*[\d.]+ *[KMGT]?B?\s+(\d+)x(\d+)\s+([\d.]+)(?: *(us|ms|s))?\s+[\d.]+\s+[\d.]+")
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, None: 1e-6}
_LOGGED = re.compile(r"\bComm\. Op\s+Message Size\s+Count\s+Total Latency|\bcomm op: \w+ \| time \(ms\):")


def sniff_ds_bench(head: str, name: str) -> bool:
    """Return True for the output of ds_bench, and for the summary of DeepSpeed's communication logger.

    Args:
        head: text of the file.
        name: name of the file.
    """
    return bool(_TITLE.search(head) or _LOGGED.search(head))


def read_ds_bench(log: BenchmarkLog) -> Iterator[Measurement | Skipped]:
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
        elif setting and (row := _DS_BENCH_ROW.match(line)):
            elements, width, time, unit = row.groups()
            size = int(elements) * int(width) * (setting.nodes if setting.operation == "allgather" else 1)
            yield Measurement(*setting, size, log.number(time, "Duration", f"{log.path}:{number}") * _UNITS[unit])
        elif setting and re.match(r"\s*[\d.]+ *[KMGT]?B?\s+\d+x\d+", line):  # the begin of a row
            yield Skipped("were cut off")


DS_BENCH = BenchmarkFormat("ds_bench", sniff_ds_bench, read_ds_bench)
