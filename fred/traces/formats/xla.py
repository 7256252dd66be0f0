"""Step times from traces of XLA for JAX and TensorFlow: `trace.json.gz`, which their profilers write for each host.

Each device is a worker. Its steps are those of its line `Steps`, or else the host's `StepTraceAnnotation`s. The time of a step
is that in which the device ran operations which began in it, collectives excluded. Times are in microseconds [Trace Event
Format, Google 2016; OpenXLA, `trace_events_to_json.cc`].
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fred.base.errors import FredError
from fred.base.words import briefly
from fred.tables.columns import Labels
from fred.tables.content import Content, document
from fred.tables.quantities import is_count
from fred.tables.text_layout import RECORD
from fred.traces.cells import Cells
from fred.traces.formats.kineto import lasts
from fred.traces.operations import busy
from fred.traces.roles import Says, is_communication

NAME = "XLA trace"
_MARK = re.compile(r'"/(?:device|host):(?:TPU|GPU|CPU|CUSTOM)|"XLA (?:Ops|Modules)"|"highres-ticks"')
_DEVICE = re.compile(r"/device:(.+)")
_OPERATIONS = re.compile(r"XLA Ops|(?:Stream|stream) ?#?.*")
_PER_SECOND = 1e6


def sniff(file: Content) -> bool:
    """Return True for a trace of Chrome's format with devices of XLA.

    Args:
        file: the content of the file.
    """
    return file.head.lstrip()[:1] == "{" and _MARK.search(file.head) is not None and '"deviceProperties"' not in file.head


def read(file: Content, says: Says) -> Cells:
    """Return the step times of the devices. Raises FredError for a trace without steps.

    Args:
        file: content of `trace.json`.
        says: options from the user; of them counts the name of the file.
    """
    trace = document(file)
    listing = trace.get("traceEvents") if isinstance(trace, dict) else None
    events = [event for event in listing if isinstance(event, dict) and _has_thread(event)] if isinstance(listing, list) else []
    names = _names(events)
    lasting = [event for event in events if event.get("ph") == "X" and lasts(event)]
    steps = defaultdict[Any, dict[int, tuple[float, float]]](dict)
    operations = defaultdict[Any, list[tuple[str, float, float]]](list)
    for event in lasting:
        pid, thread = event.get("pid"), names.get((event.get("pid"), event.get("tid")), "")
        start, end = float(event["ts"]), float(event["ts"]) + float(event["dur"])
        is_device = _DEVICE.search(names.get((event.get("pid"), None), "")) is not None
        number = str(event.get("name")) if is_device and thread == "Steps" else _annotated(event)
        if is_count(number):
            steps[pid if is_device else None].setdefault(int(number), (start, end))
        elif is_device and _OPERATIONS.fullmatch(thread):
            operations[pid].append((str(event.get("name")), start, end))
    devices = [pid for pid in operations if len(steps.get(pid) or steps.get(None) or ()) > 1]
    if not devices:
        raise FredError(
            f"{file.path} is a trace of XLA (JAX or TensorFlow) without numbered steps of devices that ran operations: wrap "
            "each step in `jax.profiler.StepTraceAnnotation('train', step_num=i)` or `tf.profiler.experimental.Trace('train', "
            f"step_num=i, _r=1)`; or {RECORD}"
        )
    return _cells(file, says, names, devices, steps, operations)


def _cells(
    file: Content,
    says: Says,
    names: Mapping[Any, str],
    devices: Sequence[Any],
    steps: Mapping[Any, dict[int, tuple[float, float]]],
    operations: Mapping[Any, list[tuple[str, float, float]]],
) -> Cells:
    iterations, workers, seconds = list[str](), list[int](), list[float]()
    left = set[str]()
    for worker, pid in enumerate(devices):
        numbers = sorted((steps.get(pid) or steps[None]).items(), key=lambda step: step[1])
        begin, end = np.array([span for _, span in numbers]).T
        left |= {re.sub(r"[.\d]+$", "", name) for name, *_ in operations[pid] if is_communication(name)}
        counted = np.array([each[1:] for each in operations[pid] if not is_communication(each[0])], np.float64).reshape(-1, 2)
        of = np.searchsorted(begin, counted[:, 0], side="right") - 1
        inside = (of >= 0) & (counted[:, 0] <= end[of])
        times = busy(of[inside], counted[inside, 0], counted[inside, 1], len(numbers)) / _PER_SECOND
        iterations += [str(number) for number, _ in numbers]
        workers += [worker] * len(numbers)
        seconds += times.tolist()
    called = [match[1] if (match := _DEVICE.search(names[pid, None])) else str(pid) for pid in devices]
    labels = [says.name] if len(devices) == 1 else [f"{says.name}/{name}" for name in called]
    places = {number: place for place, number in enumerate(dict.fromkeys(iterations))}
    rows = np.arange(len(seconds))
    notes = [f"{NAME}: time in which operations of a step ran on {briefly(called)}"]
    notes += [f"left out as communication or waiting: {briefly(sorted(left))}"] if left else []
    return Cells(
        Labels(np.array([places[number] for number in iterations]), list(places)),
        Labels(np.array(workers), labels),
        Labels(np.zeros(len(rows), np.int64), [says.name]) if len(devices) > 1 else None,
        np.array(seconds),
        rows,
        lambda row: f"{file.path}, step {iterations[row]} on {called[workers[row]]}",
        {},
        tuple(notes),
    )


def _names(events: Sequence[Mapping[str, Any]]) -> dict[Any, str]:
    """Return names of processes, by process and None, and of threads, by process and thread."""
    names = dict[Any, str]()
    for event in events:
        if event.get("ph") == "M" and isinstance(event.get("args"), dict):
            if event.get("name") == "process_name":
                names[event.get("pid"), None] = str(event["args"].get("name"))
            elif event.get("name") == "thread_name":
                names[event.get("pid"), event.get("tid")] = str(event["args"].get("name"))
    return names


def _annotated(event: Mapping[str, Any]) -> str:
    """Return the number of a step that a host's event names."""
    about = event.get("args")
    return str(about.get("step_num", about.get("group_id", ""))) if isinstance(about, dict) and "step_num" in about else ""


def _has_thread(event: Mapping[str, Any]) -> bool:
    return all(isinstance(event.get(name), int | str | None) for name in ("pid", "tid"))
