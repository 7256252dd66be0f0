"""Step times from the events of collective operations: Horovod's timeline, and PyTorch's NCCL flight recorder.

Ready times of each rank from the timeline of Horovod: a list of JSON events, which is never closed, for all ranks.
Horovod's coordinator notes when each rank is ready to reduce a tensor, as a tick in the tensor's NEGOTIATE phase. The own time
of a rank in a step lasts from the end of the step before, when its last tensor was reduced, to the rank's last tick. The k-th
reduction of each tensor belongs to step k. Times are in microseconds [Horovod, `timeline.cc` and `docs/timeline.rst`].

Durations of collectives from PyTorch's NCCL flight recorder, as JSON: a dump for each rank.
They are no compute times: a rank that arrives early waits in the collective. FRED reads them to name who arrives last.
Dumps have `duration_ms` with TORCH_NCCL_ENABLE_TIMING=1 only [PyTorch, "Flight Recorder for Debugging Stuck Jobs"].
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fred.base.errors import FredError, briefly
from fred.tables.columns import Labels
from fred.tables.content import Content, parse_json
from fred.tables.quantities import is_count
from fred.tables.text_layout import RECORDING_CURE
from fred.traces.cells import Cells, LogFormat, sort_labels
from fred.traces.roles import FileOptions

_HOROVOD_NAME = "Horovod timeline"
_HOROVOD_MARK = re.compile(r'"name"\s*:\s*"NEGOTIATE_|"name"\s*:\s*"CYCLE_START"')
_REDUCES = re.compile(r"NEGOTIATE_(ALLREDUCE|ADASUM|REDUCESCATTER|GROUP\w*)")
_PER_SECOND = 1e6
_FEWEST_STEPS = 2  # a time begins with the end of the step before
_EARLY = 0.05  # share of a step by which a negotiation precedes the first tick if it begins with the step


@dataclass
class _Reduction:
    """One reduction of a tensor: its begin, the ready time of each rank, and its end, in microseconds."""

    begin: float
    ready_times: dict[str, float] = field(default_factory=dict)
    end: float = 0.0


def sniff_horovod(file: Content) -> bool:
    """Return True for a timeline of Horovod.

    Args:
        file: the content of the file.
    """
    return file.head.lstrip()[:1] == "[" and _HOROVOD_MARK.search(file.head) is not None


def read_horovod(file: Content, options: FileOptions) -> Cells:
    """Return the time of each rank from the end of a step to its readiness for the next. Raises FredError.

    Args:
        file: the content of a timeline.
        options: options from the user, none of which counts.
    """
    path = file.path
    tensors = _reductions(file)
    counts = Counter(len(reductions) for reductions in tensors.values() if len(reductions) > 1)
    too_few = FredError(
        f"{path}: Horovod's timeline has no ready times of ranks in two steps or more; its cache of responses leaves them "
        "out after the first step: run with HOROVOD_CACHE_CAPACITY=0 and HOROVOD_TIMELINE=timeline.json"
    )
    if not counts:
        raise too_few
    usual_number = max(counts, key=lambda number: (counts[number], number))  # of reductions, one in each step
    reduced = [  # the tensors that are reduced in each step; the last reduction of some may be cut off
        reductions for reductions in tensors.values() if 0 <= usual_number - len(reductions) <= 1 and len(reductions) > 1
    ]
    steps = min(map(len, reduced))
    ranks = sorted({rank for reductions in reduced for reduction in reductions for rank in reduction.ready_times}, key=int)
    ready_table = np.full((steps, len(ranks)), np.nan)  # time of each rank's last tick, in microseconds
    for step in range(steps):
        for i, rank in enumerate(ranks):
            ready_table[step, i] = np.max([reductions[step].ready_times.get(rank, np.nan) for reductions in reduced])
    if np.isnan(ready_table[-1]).any() and not np.isnan(ready_table[:-1]).any():
        steps -= 1  # the file is cut off within its last step
    if steps < _FEWEST_STEPS:
        raise too_few
    ready_table = ready_table[:steps]
    begins = np.array([min(reductions[step].begin for reductions in reduced) for step in range(steps)])
    ends = np.array([max(reductions[step].end for reductions in reduced) for step in range(steps)])
    first_ticks = np.array([min(min(reductions[step].ready_times.values()) for reductions in reduced) for step in range(steps)])
    # Usually a negotiation begins with its first tick, which is that of the fastest rank: then a step begins with the end of
    # the step before. A negotiation that begins long before the first tick begins with the step.
    if np.median(first_ticks[1:] - begins[1:]) > _EARLY * np.median(first_ticks[1:] - ends[:-1]):
        microseconds, step_numbers, origin = ready_table - begins[:, None], range(steps), "the begin of its negotiation"
    else:
        microseconds, step_numbers, origin = ready_table[1:] - ends[:-1, None], range(1, steps), "the end of the step before"
    seconds = microseconds / _PER_SECOND
    rows = np.arange(seconds.size)
    tensor = "tensor" if len(reduced) == 1 else f"{len(reduced)} tensors"
    return Cells(
        iteration=Labels(rows // len(ranks), list(map(str, step_numbers))),
        worker=sort_labels(Labels(rows % len(ranks), ranks)),
        node=None,
        seconds=seconds.ravel(),
        row=rows,
        describe_row=lambda row: f"{path}, step {step_numbers[row // len(ranks)]}",
        columns={},
        notes=(f"{_HOROVOD_NAME}: time of each rank from {origin} until it is ready to reduce the {tensor}",),
    )


def _reductions(file: Content) -> dict[str, list[_Reduction]]:
    """Return the reductions of each tensor, in order.

    The events of a tensor nest: B begins a phase, E ends it. The outermost phases alternate: NEGOTIATE_..., in which an event
    with a rank's number as its name is that rank's tick, and then the reduction itself, whose end is the last one.
    """
    tensors = defaultdict[str, list[_Reduction]](list)
    depth = defaultdict[str, int](int)  # of the open phases of each tensor
    is_negotiated = dict[str, bool]()  # True if the tensor's last negotiation was for a reduction
    for event in _events(file):
        try:
            phase, tensor, moment = event.get("ph"), f"{event.get('pid')}/{event.get('tid', '')}", float(event.get("ts", "nan"))
        except (TypeError, ValueError):
            continue
        name = str(event.get("name", ""))
        if phase == "B":
            depth[tensor] += 1
            if depth[tensor] == 1 and name.startswith("NEGOTIATE_"):
                is_negotiated[tensor] = _REDUCES.fullmatch(name) is not None
                if is_negotiated[tensor]:
                    tensors[tensor].append(_Reduction(moment))
        elif phase in ("X", "i") and is_count(name) and is_negotiated.get(tensor):
            tensors[tensor][-1].ready_times.setdefault(name, moment)
        elif phase == "E":
            depth[tensor] = max(depth[tensor] - 1, 0)
            if is_negotiated.get(tensor):
                tensors[tensor][-1].end = moment
    return {tensor: [reduction for reduction in reductions if reduction.ready_times] for tensor, reductions in tensors.items()}


def _events(file: Content) -> Iterator[dict[str, Any]]:
    """Yield the events of a list that may be cut off."""
    text, decoder = file.text, json.JSONDecoder()
    position = text.find("[") + 1
    while match := re.compile(r"[\s,]*").match(text, position):
        try:
            event, position = decoder.raw_decode(text, match.end())
        except (ValueError, RecursionError):
            return
        if isinstance(event, dict):
            yield event


HOROVOD = LogFormat(_HOROVOD_NAME, sniff_horovod, read_horovod)


_FLIGHT_RECORDER_NAME = "NCCL flight recorder"
_FLIGHT_RECORDER_MARK, _COLLECTIVE = re.compile(r'"profiling_name"\s*:'), re.compile(r'"collective_seq_id"\s*:')
_RANK = re.compile(r"rank[_-]?(\d+)", re.IGNORECASE)


def sniff_flight_recorder(file: Content) -> bool:
    """Return True for a dump of the flight recorder in JSON.

    Args:
        file: the content of the file.
    """
    head = file.head
    return head.lstrip()[:1] == "{" and _FLIGHT_RECORDER_MARK.search(head) is not None and _COLLECTIVE.search(head) is not None


def read_flight_recorder(file: Content, options: FileOptions) -> Cells:
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
        notes=(f"{_FLIGHT_RECORDER_NAME}: `duration_ms` of each collective, {names}",),
        collective=names,
    )


FLIGHT_RECORDER = LogFormat(_FLIGHT_RECORDER_NAME, sniff_flight_recorder, read_flight_recorder)
