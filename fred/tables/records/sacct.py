"""Jobs of Slurm, from `sacct -P --format=JobID,State,NodeList,Start,End`: failed ones are failures of their machines.

A job that ends in a failure takes its machines down until the next job begins on them; after the last one they stay down.
Steps of jobs (`12.batch`) do not count. States are those of Slurm's page `sacct`, JOB STATE CODES.
"""

import re
from collections import Counter, defaultdict

import numpy as np

from fred.base.errors import FredError
from fred.tables import quantities
from fred.tables.content import Content
from fred.tables.opening import open_table
from fred.tables.records.record import Record, rows_table

NAME = "Slurm's sacct"
KINDS = ("failures",)
_FAILED = ("NODE_FAIL", "FAILED", "BOOT_FAIL")
_COMMAND = "`sacct -P --format=JobID,State,NodeList,Start,End > failures.txt`"
_JSON = re.compile(r'\s*\{\s*"(jobs|meta)"')
_LIST = re.compile(r"([^,\[]+)(?:\[([^\]]+)\])?([^,\[]*)")


def sniff(file: Content) -> bool:
    """Return True for a table with the columns `JobID` and `State`, and for the JSON of jobs.

    Args:
        file: content of the file.
    """
    first = file.head.lstrip().partition("\n")[0].lower()
    return (first.startswith("jobid") and "state" in first) or bool(_JSON.match(file.head) and '"job_id"' in file.head)


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
    for begin, numbers, end in _LIST.findall(names):
        for part in numbers.split(",") if numbers else [""]:
            first, _, last = part.partition("-")
            numbers_between = range(int(first), int(last) + 1) if last else ()
            nodes += [f"{begin}{number:0{len(first)}d}{end}" for number in numbers_between] or [f"{begin}{part}{end}"]
    return nodes


def read(file: Content, kind: str) -> Record:
    """Return the failures: worker, down, up. Raises FredError.

    Args:
        file: content of the file.
        kind: `failures`.
    """
    head = file.head.lstrip()
    if _JSON.match(head):
        raise FredError(f"{file.path}: sacct's JSON has other fields in each version of Slurm; write it with bars: {_COMMAND}")
    if "|" not in head.partition("\n")[0] and "," not in head.partition("\n")[0]:
        raise FredError(f"{file.path}: the output of sacct cuts long names; write it with bars: {_COMMAND}")
    table = open_table(file, "JobID|State|NodeList|Start|End")
    names = {name.lower(): name for name in table.header}
    if missing := [name for name in ("JobID", "State", "NodeList", "Start", "End") if name.lower() not in names]:
        raise FredError(f"{file.path}: sacct's output has no {', '.join(missing)}; write it with {_COMMAND}")
    cells = [table.texts(names[name]) for name in ("jobid", "state", "nodelist", "start", "end")]
    jobs = [(row, job) for row, job in enumerate(zip(*cells, strict=True)) if "." not in job[0]]
    unknown = {text for _, job in jobs for text in job[3:] if text and not quantities.is_moment(text)} - {"Unknown", "None"}
    if unknown:
        raise FredError(f"{file.path}: expected times such as 2026-02-01T00:11:40; found {min(unknown)}")
    dates = ([text if quantities.is_moment(text) else None for text in column] for column in cells[3:])
    starts, ends = map(quantities.parse_moments, dates)
    begins = defaultdict[str, list[float]](list)
    for row, (_, _, node_list, *_) in jobs:
        for node in expand_nodes(node_list):
            begins[node] += [] if np.isnan(starts[row]) else [starts[row]]
    rows, lines, states = [], [], Counter[str]()
    for row, (_, state, node_list, *_) in jobs:
        if not state.startswith(_FAILED) or np.isnan(ends[row]):
            continue
        states[state.split()[0]] += 1
        for node in expand_nodes(node_list):
            next_begins = [begin for begin in begins[node] if begin > ends[row]]
            rows.append((node, ends[row], min(next_begins, default=None)))
            lines.append(row)
    if not rows:
        raise FredError(f"{file.path}: no job ended as {', '.join(_FAILED)}, so there are no failures")
    record = rows_table(file, ("worker", "down", "up"), rows, lambda row: table.describe_row(lines[row]))
    failed = ", ".join(f"{number} {state}" for state, number in states.items())
    record.notes.append(f"{failed} of {len(jobs)} jobs; a machine is down until the next job begins on it")
    return Record(record, first=min(starts[~np.isnan(starts)].tolist(), default=None))
