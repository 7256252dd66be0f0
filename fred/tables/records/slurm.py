"""Records of Slurm: failed jobs, and nodes that are down.

Jobs of Slurm, from `sacct -P --format=JobID,State,NodeList,Start,End`: failed ones are failures of their machines.
A job that ends in a failure takes its machines down until the next job begins on them; after the last one they stay down.
Steps of jobs (`12.batch`) do not count. States are those of Slurm's page `sacct`, JOB STATE CODES.

Events of Slurm's nodes, from `sacctmgr show event -P format=NodeName,TimeStart,TimeEnd,State`: nodes that are down.
Columns are those of Slurm's page `sacctmgr`, LIST/SHOW EVENT FORMAT OPTIONS. Drained nodes finish their
jobs, so they do not count.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from fred.base.errors import FredError
from fred.tables import quantities
from fred.tables.content import Content
from fred.tables.opening import open_table
from fred.tables.quantities import MACHINES, VAGUE_NAMES, to_snake_case
from fred.tables.records.record import Record, RecordFormat, drop_missing, rows_table

_FAILED = ("NODE_FAIL", "FAILED", "BOOT_FAIL")
_FIELDS = {  # names of other records of jobs
    "jobid": ("id_job", "job_id_raw"),
    "state": ("job_state", "status"),
    "nodelist": ("nodes", "node", "node_name", "node_names", "host", "hosts", "hostname", "hostlist"),
    "start": ("start_time", "time_start", "started", "started_at"),
    "end": ("end_time", "time_end", "ended", "ended_at"),
}
_MACHINES = {*MACHINES} - {*VAGUE_NAMES}
_SACCT_COMMAND = "`sacct -P --format=JobID,State,NodeList,Start,End > failures.txt`"
_JSON = re.compile(r'\s*\{\s*"(jobs|meta)"')
_LIST = re.compile(r"([^,\[]+)(?:\[([^\]]+)\])?([^,\[]*)")


def sniff_sacct(file: Content) -> bool:
    """Return True for a table with the columns `JobID` and `State`, under any names, and for the JSON of jobs.

    Args:
        file: content of the file.
    """
    first = file.head.lstrip().partition("\n")[0]
    if first.lower().startswith("jobid") and "state" in first.lower():
        return True
    if _JSON.match(file.head) and '"job_id"' in file.head:
        return True
    header = re.split(r"[|,;\t]", first.replace('"', "").rstrip())
    names = _find_fields(header)
    if not {"jobid", "state"} <= {*names}:
        return False
    # A table of jobs without any machines counts, too, so that reading refuses it with a command.
    return {"nodelist", "start", "end"} <= {*names} or not {*map(to_snake_case, header)} & _MACHINES


def _find_fields(header: Sequence[str]) -> dict[str, str]:
    """Return the columns of jobs, by the names that sacct gives them in lower case."""
    header_of = {to_snake_case(name).replace("_", ""): name for name in reversed(header)}
    words = {field: [word.replace("_", "") for word in (field, *synonyms)] for field, synonyms in _FIELDS.items()}
    # In reverse, so that the first of several columns and the first of several synonyms overwrite the others.
    return {field: header_of[word] for field, names in words.items() for word in reversed(names) if word in header_of}


def expand_nodes(names: str) -> list[str]:
    """Return the machines in a list of Slurm.

    Args:
        names: the list.

    >>> expand_nodes("gpu-[00-02,07],login1"), expand_nodes("None assigned")
    (['gpu-00', 'gpu-01', 'gpu-02', 'gpu-07', 'login1'], [])
    """
    if names in ("", "None assigned", "(null)"):
        return []
    nodes = []
    for prefix, ranges, suffix in _LIST.findall(names):
        for part in ranges.split(",") if ranges else [""]:  # `00-02` or `07`
            first, _, last = part.partition("-")
            numbers = range(int(first), int(last) + 1) if last else ()
            nodes += [f"{prefix}{number:0{len(first)}d}{suffix}" for number in numbers] or [f"{prefix}{part}{suffix}"]
    return nodes


def read_sacct(file: Content, kind: str) -> Record:
    """Return the failures: worker, down, up. Raises FredError.

    Args:
        file: content of the file.
        kind: `failures`.
    """
    head = file.head.lstrip()
    if _JSON.match(head):
        raise FredError(
            f"{file.path}: sacct's JSON has other fields in each version of Slurm; write it with bars: {_SACCT_COMMAND}"
        )
    if "|" not in head.partition("\n")[0] and "," not in head.partition("\n")[0]:
        raise FredError(f"{file.path}: the output of sacct cuts long names; write it with bars: {_SACCT_COMMAND}")
    table = open_table(file, "JobID|State|NodeList|Start|End")
    names = _find_fields(table.header)
    if "nodelist" not in names:
        raise FredError(
            f"{file.path} is a table of jobs, without their machines; expected the columns JobID, State, NodeList, Start and "
            f"End of sacct: write it with {_SACCT_COMMAND}; or write a table worker, down, up of the failures"
        )
    if missing := [name for name in ("JobID", "State", "NodeList", "Start", "End") if name.lower() not in names]:
        raise FredError(f"{file.path}: sacct's output has no {', '.join(missing)}; write it with {_SACCT_COMMAND}")
    cells = [table.texts(names[name]) for name in ("jobid", "state", "nodelist", "start", "end")]
    jobs = [(row, job) for row, job in enumerate(zip(*cells, strict=True)) if "." not in job[0]]  # without steps of jobs
    unknown = {text for _, (*_, start, end) in jobs for text in (start, end) if text and not quantities.is_moment(text)}
    if unknown := unknown - {"Unknown", "None"}:
        raise FredError(f"{file.path}: expected times such as 2026-02-01T00:11:40; found {min(unknown)}")
    *_, start_texts, end_texts = cells
    dates = ([text if quantities.is_moment(text) else None for text in texts] for texts in (start_texts, end_texts))
    starts, ends = map(quantities.parse_moments, dates)
    begins = defaultdict[str, list[float]](list)  # of the jobs on each node
    for row, (_, _, node_list, *_) in jobs:
        for node in expand_nodes(node_list):
            begins[node] += [] if np.isnan(starts[row]) else [starts[row]]
    failures, job_rows, states = [], [], Counter[str]()
    for row, (_, state, node_list, *_) in jobs:
        if not state.upper().startswith(_FAILED) or np.isnan(ends[row]):
            continue
        states[state.split()[0]] += 1
        for node in expand_nodes(node_list):
            next_begins = [begin for begin in begins[node] if begin > ends[row]]
            failures.append((node, ends[row], min(next_begins, default=None)))
            job_rows.append(row)
    if not failures:
        raise FredError(f"{file.path}: no job ended as {', '.join(_FAILED)}, so there are no failures")
    record = rows_table(file, ("worker", "down", "up"), failures, lambda row: table.describe_row(job_rows[row]))
    failed = ", ".join(f"{count} {state}" for state, count in states.items())
    record.notes.append(f"{failed} of {len(jobs)} jobs; a machine is down until the next job begins on it")
    return Record(record, first=min(drop_missing(starts.tolist()), default=None))


SACCT = RecordFormat("Slurm's sacct", ("failures",), sniff_sacct, read_sacct)


_SLURM_EVENTS_COMMAND = "`sacctmgr show event -P format=NodeName,TimeStart,TimeEnd,State > failures.txt`"
_DOWN = ("DOWN", "FAIL", "ERROR", "NO_RESPOND", "POWER")


def sniff_slurm_events(file: Content) -> bool:
    """Return True for a table with the columns `NodeName` and `TimeStart`.

    Args:
        file: content of the file.
    """
    first = file.head.lstrip().partition("\n")[0]
    return "NodeName" in first and "TimeStart" in first


def read_slurm_events(file: Content, kind: str) -> Record:
    """Return the failures: worker, down, up. Raises FredError.

    Args:
        file: content of the file.
        kind: `failures`.
    """
    if not re.search("[|,]", file.head.lstrip().partition("\n")[0]):
        raise FredError(f"{file.path}: the output of sacctmgr cuts long names; write it with bars: {_SLURM_EVENTS_COMMAND}")
    table = open_table(file, "NodeName|TimeStart|TimeEnd|State")
    if missing := [name for name in ("NodeName", "TimeStart", "TimeEnd", "State") if name not in table.header]:
        raise FredError(f"{file.path} has no column {missing[0]}; write it with {_SLURM_EVENTS_COMMAND}")
    nodes, downs, ups, states = (table.texts(name) for name in ("NodeName", "TimeStart", "TimeEnd", "State"))
    failures = [row for row, state in enumerate(states) if nodes[row] and state.upper().startswith(_DOWN)]
    if not failures:
        raise FredError(f"{file.path}: no node is down, so there are no failures")
    rows = [(nodes[row], downs[row], ups[row] if quantities.is_moment(ups[row]) else None) for row in failures]
    record = rows_table(file, ("worker", "down", "up"), rows, lambda row: table.describe_row(failures[row]))
    record.notes.append(f"{len(failures)} of {len(states)} events are of nodes that are down")
    return Record(record)


SLURM_EVENTS = RecordFormat("Slurm's node events", ("failures",), sniff_slurm_events, read_slurm_events)
