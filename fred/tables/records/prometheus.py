"""Prometheus' answer to a query of a range of `up`: a machine is down from its first 0 to its next 1.

`up` is 1 if the last scrape of an instance succeeded [prometheus.io, "Jobs and instances"]. A value holds until the next one.
"""

import itertools
import math
import re
from collections import Counter

from fred.base.errors import FredError, briefly, listed
from fred.tables.content import Content, parse_json
from fred.tables.records.record import Change, Record, record_changes

NAME = "Prometheus' `up` of machines"
KINDS = ("failures", "sessions")
_MARK = re.compile(r'\s*\{.*"resultType"\s*:', re.DOTALL)
_MACHINES = ("node", "instance", "host", "hostname", "Hostname", "nodename", "kubernetes_node", "exported_instance")
_MOST_STEPS = 3  # shortest intervals between samples without a gap
_QUERY = "`/api/v1/query_range?query=up&start=BEGIN&end=END&step=60`"


def sniff(file: Content) -> bool:
    """Return True for an answer of Prometheus.

    Args:
        file: content of the file.
    """
    return bool(_MARK.match(file.head))


def read(file: Content, kind: str) -> Record:
    """Return the failures, worker, down, up; or the sessions, member, begin, end. Raises FredError.

    Args:
        file: content of the file.
        kind: `failures` or `sessions`.
    """
    try:
        data = parse_json(file)["data"]
        series = [
            ({**answer["metric"]}, [(float(time), str(value)) for time, value in answer["values"]]) for answer in data["result"]
        ]
    except (KeyError, TypeError, ValueError):
        raise FredError(f"{file.path}: expected Prometheus' answer for a range of times, as from {_QUERY}") from None
    if not series:
        raise FredError(f"{file.path}: Prometheus' answer is empty; expected a series of each machine, as from {_QUERY}")
    shared = [label for label in _MACHINES if all(label in labels for labels, _ in series)]
    label = next((label for label in shared if len({labels[label] for labels, _ in series}) == len(series)), "")
    if not label and shared:
        (name, number), *_ = Counter(labels[shared[0]] for labels, _ in series).most_common(1)
        other_labels = sorted({label for labels, _ in series for label in labels} - {*shared, "__name__"})
        raise FredError(
            f"{file.path}: {number} series of the machine {name}, which differ in {listed(other_labels)}: expected one; "
            f'choose it in the query, as in `up{{{other_labels[0] if other_labels else "job"}="VALUE"}}`'
        )
    if not label:
        names = listed(sorted({label for labels, _ in series for label in labels}))
        raise FredError(f"{file.path}: no label names the machine; expected `instance` or `node`; it has {names}")
    changes = []
    for labels, samples in series:
        if wrong := [value for _, value in samples if value not in ("0", "1")]:
            metric = labels.get("__name__", "the query")
            raise FredError(f"{file.path}: values of {metric} such as {briefly(wrong, 2)}; expected 1 or 0, as from {_QUERY}")
        changes += [Change(labels[label], time, value == "1") for time, value in samples]
    if all(change.is_up for change in changes) and kind == "failures":
        raise FredError(f"{file.path}: all {len(series)} machines are up at all times, so there are no failures")
    record = record_changes(file, kind, changes)
    if gaps := [labels[label] for labels, samples in series if _has_gap([time for time, _ in samples], changes)]:
        record.table.notes.append(f"series with gaps, in which the last value holds: {briefly(gaps)}")
    return record


def _has_gap(times: list[float], changes: list[Change]) -> bool:
    """Return True if samples of a series are missing, within it or at the end of the record."""
    steps = [after - before for before, after in itertools.pairwise([*times, max(change.moment for change in changes)])]
    return max(steps) > _MOST_STEPS * min((step for step in steps if step > 0), default=math.inf)
