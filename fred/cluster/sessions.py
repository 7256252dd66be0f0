"""Workers that are available at times only: in sessions from a file, or for a part of each day.

Example: two spot machines, of which a record has the number that can be had, every five minutes.
    >>> spot = Sessions(sessions=spans_of_counts([2, 1, 0, 2], gap=300.0), length=1200.0)
    >>> process = spot.start(seed=0, name="spot", workers=2, servers=1)
    >>> [tuple(time / 1e9 for time in process.away("worker", number, after=0)) for number in (0, 1)]
    [(600.0, 900.0), (300.0, 900.0)]
"""

import json
import math
from bisect import bisect_right
from collections.abc import Sequence
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, model_validator

from fred.base import numerics
from fred.base.errors import FredError
from fred.cluster.faults import NOT_AT_ALL, Fault, FaultProcess, MachineKind, Span
from fred.cluster.recorded import Dated, begin_of, check_has_file
from fred.components.component import LONGEST, NANOSECONDS, Duration, Natural, Time
from fred.components.input_path import InputPath, file_instead
from fred.tables.content import Content, read_content
from fred.tables.quantities import ARRIVALS, BEGINS, DEPARTURES, ENDS, MACHINES
from fred.tables.records import read_record
from fred.tables.small_tables import intervals, read_table
from fred.tables.table_kinds import Column, Kind

_LONGER = "give longer `sessions`"
_MOST_SESSIONS = 100_000  # all of them are stored in every manifest
_COUNTS = '{"metadata": {"gap_seconds": 300}, "data": [4, 4, 3]}: a distance in s, and numbers of machines'
_KIND = Kind(
    "sessions",
    (
        Column("member", "names", MACHINES),
        Column("begin", "times", (*BEGINS, *ARRIVALS, "available_from")),
        Column("end", "times", (*ENDS, *DEPARTURES, "available_until")),
        Column("length", "lengths", ("duration", "uptime", "up_time"), required=False),
    ),
    "phone-3,600,1500",
)
_Session = tuple[Time, Time]  # begin and end, s
_OfMember = Annotated[tuple[_Session, ...], Field(min_length=1)]


class Sessions(Dated, Fault):
    """Workers that are available in recorded sessions only, such as spot machines or phones.

    A file is a table with the columns `member`, `begin` and `end` (s, or dates), a row for each session; or JSON with the
    number of available machines at equal distances, `{"metadata": {"gap_seconds": 300}, "data": [4, 4, 3]}`, as records of
    spot machines have it. There the last machine to come is the first to go. Traces of Plato, FedScale, FLASH and the Failure
    Trace Archive are read, too.

    The record begins again after its end. Its sessions are stored in the manifest.
    """

    sessions: tuple[_OfMember, ...] = Field(
        default=(),
        description="begin and end of each session, s, for each member; or give `file`",
        examples=[[[[0, 60]], [[30, 90]]]],
    )
    file: InputPath | None = Field(default=None, description="table or record of the sessions, relative to the scenario file")
    length: Duration | None = Field(
        default=None, description="time after which the record begins again, s; absent: its last end"
    )
    assignment: Literal["in-order", "drawn"] = Field(
        default="in-order",
        description="`in-order`: worker i has the sessions of the i-th member, further ones start over with the first; "
        "`drawn`: those of a random member, from a random time on",
    )
    workers: tuple[Natural, ...] = Field(default=(), description="numbers of the workers; absent: all")

    @model_validator(mode="before")
    @classmethod
    def _load_file(cls, options: Any, info: ValidationInfo) -> Any:
        if isinstance(options, dict):
            check_has_file(options, "file")
        path = file_instead(options, info, "file", "sessions")
        if path is None:
            return options
        other_options = {key: value for key, value in options.items() if key not in ("file", "from")}
        try:
            return {**_read_file(path, begin_of(options)), **other_options}  # a given `length` replaces the file's
        except FredError as error:
            raise ValueError(str(error)) from error

    @model_validator(mode="after")
    def _check_sessions(self) -> "Sessions":
        if not self.sessions:
            raise ValueError("needs sessions: give `sessions`, or a `file` of them")
        if (number := sum(map(len, self.sessions))) > _MOST_SESSIONS:
            raise ValueError(f"{number:,} sessions; expected at most {_MOST_SESSIONS:,}: take some of the members")
        for spans in self.sessions:
            for begin, end in spans:
                if round(end * NANOSECONDS) <= round(begin * NANOSECONDS):
                    raise ValueError(f"a session ends at {end:g} s, which is not 1 ns or more after its begin at {begin:g} s")
        if self.length is not None and self.length < self._last_end:
            raise ValueError(f"`length` ({self.length:g} s) is before the end of the last session ({self._last_end:g} s)")
        return self

    @property
    def _last_end(self) -> float:
        return max(end for spans in self.sessions for _, end in spans)

    def start(self, seed: int, name: str, workers: int, servers: int) -> FaultProcess:
        selected = _select(self.workers, workers)
        length_ns = round((self.length or self._last_end) * NANOSECONDS)
        absences = [_absences(sessions, length_ns) for sessions in self.sessions]  # of each member of the record
        members = len(absences)
        if self.assignment == "in-order":
            absences_of = {worker: (absences[position % members], 0) for position, worker in enumerate(selected)}
            return _RepeatedAbsences(_LONGER, length_ns, absences_of)
        draws = {worker: numerics.uniforms(seed, f"{name} member", worker, 0, 2).tolist() for worker in selected}
        # Of the two draws, the first one selects the member, and the second one the time in the record.
        absences_of = {worker: (absences[int(u * members)], int(v * length_ns)) for worker, (u, v) in draws.items()}
        return _RepeatedAbsences(_LONGER, length_ns, absences_of)


class Periodic(Fault):
    """Workers that are available for a part of each day, or of any other period, such as phones that charge at night."""

    available: Duration = Field(description="time in each period in which a worker is available, s", examples=[28800.0])
    period: Duration = Field(default=86400.0, description="length of a period, s")
    begin: Time = Field(default=0.0, description="begin of the available time, s from the begin of a period")
    shifts: tuple[Time, ...] = Field(
        default=(0.0,),
        min_length=1,
        description="how much later each worker's periods begin, s, such as time zones; further ones start over",
    )
    workers: tuple[Natural, ...] = Field(default=(), description="numbers of the workers; absent: all")

    @model_validator(mode="after")
    def _parts(self) -> "Periodic":
        if not round(self.available * NANOSECONDS) < round(self.period * NANOSECONDS):
            raise ValueError(f"`available` ({self.available:g} s) must be less than the `period` ({self.period:g} s)")
        return self

    def start(self, seed: int, name: str, workers: int, servers: int) -> FaultProcess:
        period, up = round(self.period * NANOSECONDS), round(self.available * NANOSECONDS)
        selected = enumerate(_select(self.workers, workers))
        shifts = {worker: self.shifts[position % len(self.shifts)] for position, worker in selected}
        begins = {worker: round((self.begin + shift) * NANOSECONDS) for worker, shift in shifts.items()}
        # Counted from the begin of the available time, a worker is offline from `up` to the end of the period.
        absences_of = {worker: ([(up, period)], -begin % period) for worker, begin in begins.items()}
        return _RepeatedAbsences("give a longer `available` of `periodic`", period, absences_of)


class _RepeatedAbsences(FaultProcess):
    """Offline intervals that are repeated.

    Args:
        cure: what makes them shorter, for messages.
        length: time after which they begin again, ns.
        spans_of: by worker, the intervals within that time, in order, and the time in it at which the run begins, ns.
    """

    def __init__(self, cure: str, length: int, spans_of: dict[int, tuple[list[Span], int]]):
        self.cure, self._length, self._spans_of = cure, length, spans_of

    def away(self, kind: MachineKind, number: int, after: int) -> Span:
        spans, shift = self._spans_of.get(number, ([], 0)) if kind == "worker" else ([], 0)
        if not spans:
            return NOT_AT_ALL
        rounds, offset = divmod(after + shift, self._length)
        index = bisect_right(spans, offset, key=lambda span: span[1])  # of the first span that ends after `after`
        if index == len(spans):
            rounds, index = rounds + 1, 0
        begin, end = (rounds * self._length + time - shift for time in spans[index])
        return max(0, begin), end  # the run may begin inside a span


def spans_of_counts(counts: Sequence[int], gap: float) -> list[list[tuple[float, float]]]:
    """Return the sessions of each machine, s, from the number of machines at equal distances; the last to come goes first.

    Args:
        counts: available machines.
        gap: distance of two numbers, s.

    >>> spans_of_counts([1, 2, 0, 1], gap=10.0)
    [[(0.0, 20.0), (30.0, 40.0)], [(10.0, 20.0)]]
    """
    sessions: list[list[tuple[float, float]]] = [[] for _ in range(max(counts, default=0))]
    begins: list[float] = []  # of the machines that are available now
    for i, count in enumerate([*counts, 0]):  # the last machines go at the end of the record
        time = i * gap
        while len(begins) > count:
            begin = begins.pop()
            sessions[len(begins)].append((begin, time))  # numbered from 0: the one that goes has the number of those that stay
        begins += [time] * (count - len(begins))
    return sessions


def _select(workers: Sequence[int], number: int) -> Sequence[int]:
    """Return the chosen workers; all, if none are named. Raises ValueError for a worker that is not there."""
    if max(workers, default=0) >= number:
        raise ValueError(f"there are {number} workers, numbered from 0; `workers` names {max(workers)}")
    return workers or range(number)


def _absences(sessions: Sequence[tuple[float, float]], length_ns: int) -> list[Span]:
    """Return the intervals (ns) between sessions (s; they may overlap), from 0 to the end of the record."""
    absences, until = list[Span](), 0
    for begin, end in sorted((round(begin * NANOSECONDS), round(end * NANOSECONDS)) for begin, end in sessions):
        if begin > until:
            absences.append((until, begin))
        until = max(until, end)
    return [*absences, (until, length_ns)] if until < length_ns else absences


def _read_file(path: Path, begin: date | None) -> dict[str, Any]:
    """Return the options that a file gives: `sessions`, and `length` if it has one. Raises FredError."""
    file = read_content(path)
    if file.head.lstrip().startswith("{") and ('"gap_seconds"' in file.head or '"metadata"' in file.head):
        if begin is not None:
            raise FredError(f"{path} has no dates, and the scenario counts times `from` one: leave `from` out")
        return _read_counts(file)
    try:
        return _read_sessions(path, begin)
    except FredError as error:
        if file.name.endswith(".json") and read_record(file, _KIND.name) is None:
            raise FredError(f"{error}, with member, begin and end; or expected {_COUNTS}") from None
        raise


def _read_counts(file: Content) -> dict[str, Any]:
    """Return the options that numbers of machines at equal distances give. Raises FredError."""
    path = file.path
    try:
        document = json.loads(file.data)
        gap, counts = document["metadata"]["gap_seconds"], document["data"]
        counts = [int(count) if isinstance(count, float) and count.is_integer() else count for count in counts]
        is_valid = type(gap) in (int, float) and all(type(count) is int and count >= 0 for count in counts)
        is_valid = is_valid and gap >= 1 / NANOSECONDS and gap * len(counts) <= LONGEST
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        is_valid = False
    if not is_valid:
        raise FredError(f"{path}: expected {_COUNTS}")
    if not any(counts):
        raise FredError(f"{path}: no machine is ever available")
    session_count = sum(max(0, count - previous) for previous, count in pairwise([0, *counts]))
    if session_count > _MOST_SESSIONS:  # before lists of them are built
        raise FredError(f"{path}: {session_count:,} sessions; expected at most {_MOST_SESSIONS:,}: take a part of the record")
    return {"sessions": spans_of_counts(counts, gap), "length": float(gap * len(counts))}


def _read_sessions(path: Path, begin: date | None) -> dict[str, Any]:
    """Return the sessions in a table; those without an end last to the end of the record. Raises FredError."""
    table = read_table(path, _KIND, begin)
    rows, members = intervals(table, "begin", "end"), table.names["member"]
    record_end = table.length or max(max(first, last if last < math.inf else 0.0) for _, first, last in rows)
    sessions: dict[str, list[tuple[float, float]]] = {}
    for row, first, last in rows:
        if not members[row]:
            raise FredError(f"{table.file.describe_row(row)}: expected a member, by number or name; found none")
        if first >= record_end:
            raise FredError(
                f"{table.file.describe_row(row)}: the session begins with the end of the record, {record_end:g} s: give its end"
            )
        sessions.setdefault(members[row], []).append((first, min(last, record_end)))
    return {"sessions": list(sessions.values())} | ({"length": table.length} if table.length else {})
