"""Durations of collectives from PyTorch's NCCL flight recorder, as JSON: a dump for each rank.

They are no compute times: a rank that arrives early waits in the collective. FRED reads them to name who arrives last.
Dumps have `duration_ms` with TORCH_NCCL_ENABLE_TIMING=1 only [PyTorch, "Flight Recorder for Debugging Stuck Jobs"].
"""

import re
from collections import Counter

import numpy as np

from fred.base.errors import FredError, briefly
from fred.tables.columns import Labels
from fred.tables.content import Content, parse_json
from fred.tables.text_layout import RECORDING_CURE
from fred.traces.cells import Cells, sort_labels
from fred.traces.roles import FileOptions

NAME = "NCCL flight recorder"
_MARK, _COLLECTIVE = re.compile(r'"profiling_name"\s*:'), re.compile(r'"collective_seq_id"\s*:')
_RANK = re.compile(r"rank[_-]?(\d+)", re.IGNORECASE)


def sniff(file: Content) -> bool:
    """Return True for a dump of the flight recorder in JSON.

    Args:
        file: the content of the file.
    """
    head = file.head
    return head.lstrip()[:1] == "{" and _MARK.search(head) is not None and _COLLECTIVE.search(head) is not None


def read(file: Content, options: FileOptions) -> Cells:
    """Return the duration of each collective of the most frequent process group. Raises FredError.

    Args:
        file: the content of a dump.
        options: options from the user, of which only the file's name counts.
    """
    path, document = file.path, parse_json(file)
    entries = [entry for entry in document.get("entries") or [] if not entry.get("is_p2p")]
    groups = Counter(str(entry.get("process_group")) for entry in entries)
    largest_group = max(groups, key=groups.__getitem__, default="")
    timed = {
        int(entry["collective_seq_id"]): entry
        for entry in entries
        if isinstance(entry.get("duration_ms"), int | float) and str(entry.get("process_group")) == largest_group
    }
    if not timed:
        raise FredError(
            f"{path} is a dump of NCCL's flight recorder without durations. Even with TORCH_NCCL_ENABLE_TIMING=1 it has only "
            f"those of collectives, in which quick ranks wait for slow ones; {RECORDING_CURE}"
        )
    steps = sorted(timed)
    rows = np.arange(len(steps))
    rank = _RANK.search(options.name)
    names = briefly(list(dict.fromkeys(str(timed[step].get("profiling_name")) for step in steps)))
    return Cells(
        iteration=Labels(rows, list(map(str, steps))),
        worker=sort_labels(Labels(np.zeros(len(steps), np.int64), [rank[1] if rank else options.name])),
        node=None,
        seconds=np.array([timed[step]["duration_ms"] for step in steps]) / 1e3,
        row=rows,
        describe_row=lambda row: f"{path}, collective_seq_id {steps[row]}",
        columns={},
        notes=(f"{NAME}: `duration_ms` of each collective, {names}",),
        collective=names,
    )
