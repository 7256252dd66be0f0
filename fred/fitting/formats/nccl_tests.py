"""NVIDIA's nccl-tests and AMD's rccl-tests: the printed log, of one program or several, and the JSON of `-J`.

Sources: `src/util.cu` (2.19.6) and the logs of 2019. Sizes are those of the larger buffer, as FRED counts them; times are of
operations out of place.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fred.base.errors import FredError
from fred.fitting.benchmark_log import BenchmarkLog
from fred.fitting.measurement import NUMBER, Measurement, Skipped, infer_members, recognise_operations, skip_unknown

TOOL = "nccl-tests"
_RANK = re.compile(r"[#\s]*Rank\s+(\d{1,9})\b(?:\s+Group\s+(\d+)\b)?.*?\bon\s+(\S+)")
_PROGRAM = re.compile(r"\b(\w+_perf)")
_BUILD = "make MPI=1 MPI_HOME=/path/to/mpi"
_RUN = "mpirun -np 2 -N 1 all_reduce_perf -b 8 -e 1G -f 2 -g 1"
_ROW = re.compile(
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


def sniff(head: str, name: str) -> bool:
    """Return True for a log or a JSON file of these programs.

    Args:
        head: text of the file.
        name: name of the file.
    """
    is_json = head.lstrip().startswith("{") and '"nccl_version"' in head
    is_log = re.search(r"^#.*(nThread|out-of-place)|^#\s+size\s+count\b.*\btime\b", head, re.MULTILINE) or _ROW.search(head)
    return is_json or bool(is_log)


def read(log: BenchmarkLog) -> Iterator[Measurement | Skipped]:
    """Yield the measurements of a log.

    Args:
        log: the file.

    Raises FredError for ranks that are not connected, CPU times, and what the log does not say.
    """
    yield from _read_json(log) if log.text.lstrip().startswith("{") else _read_text(log)


def _read_text(log: BenchmarkLog) -> Iterator[Measurement | Skipped]:
    lines = list(log.lines())
    starts = [position for position, (_, line) in enumerate(lines) if re.match(r"[#\s]*nThread \d", line)]
    _check_connected(log, [match for _, line in lines if (match := _RANK.match(line))])
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
            elif words and words[0].isdecimal() and (number == len(lines) or (len(words) > 4 and words[1].isdecimal())):
                rows.append((number, words))
            elif (match := _PROGRAM.search(line)) and "concluded" not in line:
                name = match[1]
                program.name = program.name if rows else name
        numbers = [rank for rank, _, _ in program.ranks]
        if rows and len({*numbers}) < len(numbers):
            raise _connection_error(log, "processes whose ranks have the same numbers")
        if rows:
            is_usual = not program.columns and _ROW.search(lines[rows[0][0] - 1][1])
            program.columns = [*_COLUMNS] if is_usual else program.columns
            yield from _rows(log, program, rows)


def _check_connected(log: BenchmarkLog, ranks: Sequence[re.Match[str]]) -> None:
    """Raise FredError if every process has rank 0: they ran alone."""
    if ranks and all(int(match[1]) == 0 for match in ranks):
        copies = f"{len(ranks)} processes that all have rank 0" if len(ranks) > 1 else "one rank"
        raise _connection_error(log, copies)


def _connection_error(log: BenchmarkLog, processes: str) -> FredError:
    """Return the error for processes that do not know of each other."""
    return FredError(
        f"{log.path}: the log is of {processes}: each ran alone, without a message between them (busbw 0 of a single rank). "
        f"Build nccl-tests with `{_BUILD}` and start it with `{_RUN}`: its log then lists ranks 0 and 1"
    )


def _rows(log: BenchmarkLog, program: _Program, rows: list[tuple[int, list[str]]]) -> Iterator[Measurement | Skipped]:
    """Yield the measurements in the rows of one program."""
    if "cputime" in program.columns:
        raise FredError(f"{log.path}: times of the CPU (-C 1), which do not include the network's; run it without -C")
    if "time" not in program.columns:
        raise FredError(f"{log.path}: the log has no line `# size count ... time ...`")
    if program.name and not recognise_operations(program.name):
        yield from (skip_unknown(program.name, _RUN) for _ in rows)
        return
    rows = [(number, _align(words, program.columns)) for number, words in rows]
    place = program.columns.index("time")
    _check_bandwidths(log, [words for _, words in rows], place)
    wrong = program.columns.index("#wrong") if "#wrong" in program.columns else 0
    hosts = _hosts_of_members(program)
    members = len(hosts) or _count_members(program, log, [words for _, words in rows])
    setting = log.setting("nccl", program.name, members, rows[0][0])
    for number, words in rows:
        if skipped := _skip_reason(words, place, wrong):
            yield skipped
        else:
            where = f"{log.path}:{number}"
            size, microseconds = log.number(words[0], "size", where), log.number(words[place], "time", where)
            yield Measurement(*setting, size, microseconds * 1e-6, machines=len({*hosts} - {""}))


def _hosts_of_members(program: _Program) -> list[str]:
    """Return the machine of each member of the first group, empty ones if lines are missing; none: no ranks were printed."""
    group = program.ranks[0][1] if program.ranks else "0"
    hosts = [host for _, rank_group, host in program.ranks if rank_group == group]
    if len({group for _, group, _ in program.ranks}) == 1 and len(hosts) <= max(rank for rank, _, _ in program.ranks):
        return [""] * (1 + max(rank for rank, _, _ in program.ranks))
    return hosts


def _count_members(program: _Program, log: BenchmarkLog, rows: Sequence[Sequence[str]]) -> int:
    """Return the number of members, from the ratio of the two bandwidths; 0: unknown."""
    place = program.columns.index("time")
    operations = recognise_operations(program.name or log.values.get("operation", log.path.stem))
    bandwidths = [(words[place + 1], words[place + 2]) for words in rows if len(words) > place + 2]
    return infer_members(operations[0], bandwidths) if len(operations) == 1 else 0


def _skip_reason(words: Sequence[str], place: int, wrong: int) -> Skipped | None:
    """Return why a row is no measurement; None: it is one.

    `place`, `wrong`: columns of the time and of the number of wrong results; `wrong` 0: there is none.
    """
    if len(words) < place + 2:
        return Skipped("were cut off")
    if not words[0].strip("0"):
        return Skipped("had size 0")
    if not words[place].strip("0."):
        return Skipped("had time 0")
    return _WRONG if wrong and len(words) > wrong and words[wrong].strip("0.") not in ("", "N/A") else None


def _align(words: list[str], columns: Sequence[str]) -> list[str]:
    """Return the words of a row, with empty ones for `redop` and `root` where the program leaves them blank."""
    words, full = list(words), len(columns) - ("timestamp" in columns)
    for column, pattern in (("redop", r"[a-z]"), ("root", r"-?\d+$")):
        position = columns.index(column) if column in columns else len(words)
        if position < len(words) and not re.match(pattern, words[position]):
            words.insert(position, "")
        elif position < len(words) and column == "root" and not words[position - 1] and len(words) < full:
            words.insert(position, "")  # the integer is a time
    return words


def _check_bandwidths(log: BenchmarkLog, rows: Sequence[Sequence[str]], place: int) -> None:
    """Raise FredError if most algorithm bandwidths are not size / time: the columns are others than the header says."""
    cells = [(row[0], *row[place : place + 2]) for row in rows if len(row) > place + 2]
    numbers = [tuple(map(float, row)) for row in cells if all(map(NUMBER.fullmatch, row))]
    pairs = [(size / time / 1e3, printed) for size, time, printed in numbers if time > 0]
    wrong = [pair for pair in pairs if pair[1] >= 0.1 and abs(pair[0] / pair[1] - 1) > 0.2]
    if 2 * len(wrong) > sum(1 for _, printed in pairs if printed >= 0.1):
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
    program = _PROGRAM.search(arguments[1] if arguments else "")
    results = log.records("results")
    if results:
        setting = log.setting("nccl", program[1] if program else "", len(hosts))
    for number, row in enumerate(results, start=1):
        sides = [row.get("out_of_place"), row.get("in_place")]
        times: dict[str, Any] = next((side for side in sides if isinstance(side, dict)), {})
        if "cpu_time" in times:
            raise FredError(f"{log.path}: times of the CPU (-C 1), which do not include the network's; run it without -C")
        place = f"{log.path}: result {number}"
        if not row.get("size") or "time" not in times:
            yield Skipped("had no size or no time")
        elif times.get("nwrong"):
            yield _WRONG
        else:
            size, microseconds = (
                log.number(str(value), name, place) for value, name in ((row["size"], "size"), (times["time"], "time"))
            )
            yield Measurement(*setting, size, microseconds * 1e-6, machines=len(set(hosts)))
