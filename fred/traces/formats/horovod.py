"""Ready times of each rank from the timeline of Horovod: a list of JSON events, which is never closed, for all ranks.

Horovod's coordinator notes when each rank is ready to reduce a tensor, as a tick in the tensor's NEGOTIATE phase. The own time
of a rank in a step lasts from the end of the step before, when its last tensor was reduced, to the rank's last tick. The k-th
reduction of each tensor belongs to step k. Times are in microseconds [Horovod, `timeline.cc` and `docs/timeline.rst`].
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fred.base.errors import FredError
from fred.tables.columns import Labels
from fred.tables.content import Content
from fred.tables.quantities import is_count
from fred.traces.cells import Cells, in_order
from fred.traces.roles import Says

NAME = "Horovod timeline"
_MARK = re.compile(r'"name"\s*:\s*"NEGOTIATE_|"name"\s*:\s*"CYCLE_START"')
_REDUCES = re.compile(r"NEGOTIATE_(ALLREDUCE|ADASUM|REDUCESCATTER|GROUP\w*)")
_PER_SECOND = 1e6
_EARLY = 0.05  # share of a step by which a negotiation precedes the first tick if it begins with the step


@dataclass
class _Reduction:
    """One reduction of a tensor: when it began, when each rank was ready, when it ended, microseconds."""

    begin: float
    ready: dict[str, float] = field(default_factory=dict)
    end: float = 0.0


def sniff(file: Content) -> bool:
    """Return True for a timeline of Horovod.

    Args:
        file: the content of the file.
    """
    return file.head.lstrip()[:1] == "[" and _MARK.search(file.head) is not None


def read(file: Content, says: Says) -> Cells:
    """Return the time of each rank from the end of a step to its readiness for the next. Raises FredError.

    Args:
        file: the content of a timeline.
        says: options from the user, none of which counts.
    """
    path = file.path
    tensors = _reductions(file)
    counts = Counter(len(reductions) for reductions in tensors.values() if len(reductions) > 1)
    if not counts:
        raise FredError(
            f"{path}: Horovod's timeline has no ready times of ranks in two steps or more; its cache of responses leaves them "
            "out after the first step: run with HOROVOD_CACHE_CAPACITY=0 and HOROVOD_TIMELINE=timeline.json"
        )
    usual = max(counts, key=lambda number: (counts[number], number))
    used = [reductions for reductions in tensors.values() if usual - 1 <= len(reductions) <= usual and len(reductions) > 1]
    steps = min(map(len, used))  # the last one may be cut off
    ranks = sorted({rank for reductions in used for each in reductions for rank in each.ready}, key=int)
    ready = np.full((steps, len(ranks)), np.nan)
    for step in range(steps):
        for i, rank in enumerate(ranks):
            ticks = [reductions[step].ready.get(rank, np.nan) for reductions in used]
            ready[step, i] = np.max(ticks)
    steps -= bool(np.isnan(ready[-1]).any() and not np.isnan(ready[:-1]).any())  # the file is cut off within its last step
    ready = ready[:steps]
    begins = np.array([min(reductions[step].begin for reductions in used) for step in range(steps)])
    ends = np.array([max(reductions[step].end for reductions in used) for step in range(steps)])
    first = np.array([min(min(reductions[step].ready.values()) for reductions in used) for step in range(steps)])
    if np.median(first[1:] - begins[1:]) > _EARLY * np.median(first[1:] - ends[:-1]):
        seconds, numbers, what = (ready - begins[:, None]) / _PER_SECOND, range(steps), "the begin of its negotiation"
    else:
        seconds, numbers, what = (ready[1:] - ends[:-1, None]) / _PER_SECOND, range(1, steps), "the end of the step before"
    rows = np.arange(seconds.size)
    tensor = "tensor" if len(used) == 1 else f"{len(used)} tensors"
    return Cells(
        Labels(rows // len(ranks), list(map(str, numbers))),
        in_order(Labels(rows % len(ranks), ranks)),
        None,
        seconds.ravel(),
        rows,
        lambda row: f"{path}, step {numbers[row // len(ranks)]}",
        {},
        (f"{NAME}: time of each rank from {what} until it is ready to reduce the {tensor}",),
    )


def _reductions(file: Content) -> dict[str, list[_Reduction]]:
    """Return the reductions of each tensor, in order."""
    tensors = defaultdict[str, list[_Reduction]](list)
    depth = defaultdict[str, int](int)
    is_negotiated = dict[str, bool]()
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
            tensors[tensor][-1].ready.setdefault(name, moment)
        elif phase == "E":
            depth[tensor] = max(depth[tensor] - 1, 0)
            if is_negotiated.get(tensor):
                tensors[tensor][-1].end = moment
    return {tensor: [each for each in reductions if each.ready] for tensor, reductions in tensors.items()}


def _events(file: Content) -> Iterator[dict[str, Any]]:
    """Yield the events of a list that may be cut off."""
    text, decoder = file.text, json.JSONDecoder()
    place = text.find("[") + 1
    while match := re.compile(r"[\s,]*").match(text, place):
        try:
            event, place = decoder.raw_decode(text, match.end())
        except (ValueError, RecursionError):
            return
        if isinstance(event, dict):
            yield event
