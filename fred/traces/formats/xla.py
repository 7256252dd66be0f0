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

from fred.base.errors import FredError, briefly
from fred.tables.columns import Labels
from fred.tables.content import Content, parse_json
from fred.tables.quantities import is_count
from fred.tables.text_layout import RECORDING_CURE
from fred.traces.cells import Cells
from fred.traces.formats.kineto import has_duration
from fred.traces.operations import busy_times
from fred.traces.roles import FileOptions, is_communication

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


def read(file: Content, options: FileOptions) -> Cells:
    """Return the step times of the devices. Raises FredError for a trace without steps.

    Args:
        file: content of `trace.json`.
        options: options from the user; of them counts the name of the file.
    """
    trace = parse_json(file)
    listing = trace.get("traceEvents") if isinstance(trace, dict) else None
    events = [event for event in listing if isinstance(event, dict) and _has_thread(event)] if isinstance(listing, list) else []
    names = _names(events)
    spans = [event for event in events if event.get("ph") == "X" and has_duration(event)]
    steps = defaultdict[Any, dict[int, tuple[float, float]]](dict)
    operations = defaultdict[Any, list[tuple[str, float, float]]](list)
    for event in spans:
        pid, thread = event.get("pid"), names.get((event.get("pid"), event.get("tid")), "")
        start, end = float(event["ts"]), float(event["ts"]) + float(event["dur"])
        is_device = _DEVICE.search(names.get((event.get("pid"), None), "")) is not None
        number = str(event.get("name")) if is_device and thread == "Steps" else _annotated_step(event)
        if is_count(number):
            steps[pid if is_device else None].setdefault(int(number), (start, end))
        elif is_device and _OPERATIONS.fullmatch(thread):
            operations[pid].append((str(event.get("name")), start, end))
    devices = [pid for pid in operations if len(steps.get(pid) or steps.get(None) or ()) > 1]
    if not devices:
        raise FredError(
            f"{file.path} is a trace of XLA (JAX or TensorFlow) without numbered steps of devices that ran operations: wrap "
            "each step in `jax.profiler.StepTraceAnnotation('train', step_num=i)` or `tf.profiler.experimental.Trace('train', "
            f"step_num=i, _r=1)`; or {RECORDING_CURE}"
        )
    return _cells(file, options, names, devices, steps, operations)


def _cells(
    file: Content,
    options: FileOptions,
    names: Mapping[Any, str],
    devices: Sequence[Any],
    steps: Mapping[Any, dict[int, tuple[float, float]]],
    operations: Mapping[Any, list[tuple[str, float, float]]],
) -> Cells:
    iterations, workers, seconds = list[str](), list[int](), list[float]()
    excluded = set[str]()
    for worker, pid in enumerate(devices):
        numbers = sorted((steps.get(pid) or steps[None]).items(), key=lambda step: step[1])
        begin, end = np.array([span for _, span in numbers]).T
        excluded |= {re.sub(r"[.\d]+$", "", name) for name, *_ in operations[pid] if is_communication(name)}
        computing = [span for name, *span in operations[pid] if not is_communication(name)]
        spans = np.array(computing, np.float64).reshape(-1, 2)
        step_of = np.searchsorted(begin, spans[:, 0], side="right") - 1
        inside = (step_of >= 0) & (spans[:, 0] <= end[step_of])
        times = busy_times(step_of[inside], spans[inside, 0], spans[inside, 1], len(numbers)) / _PER_SECOND
        iterations += [str(number) for number, _ in numbers]
        workers += [worker] * len(numbers)
        seconds += times.tolist()
    device_names = [match[1] if (match := _DEVICE.search(names[pid, None])) else str(pid) for pid in devices]
    labels = [options.name] if len(devices) == 1 else [f"{options.name}/{name}" for name in device_names]
    places = {number: place for place, number in enumerate(dict.fromkeys(iterations))}
    rows = np.arange(len(seconds))
    notes = [f"{NAME}: time in which operations of a step ran on {briefly(device_names)}"]
    notes += [f"left out as communication or waiting: {briefly(sorted(excluded))}"] if excluded else []
    return Cells(
        iteration=Labels(np.array([places[number] for number in iterations]), list(places)),
        worker=Labels(np.array(workers), labels),
        node=Labels(np.zeros(len(rows), np.int64), [options.name]) if len(devices) > 1 else None,
        seconds=np.array(seconds),
        row=rows,
        describe_row=lambda row: f"{file.path}, step {iterations[row]} on {device_names[workers[row]]}",
        columns={},
        notes=tuple(notes),
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


def _annotated_step(event: Mapping[str, Any]) -> str:
    """Return the number of a step that a host's event names."""
    arguments = event.get("args")
    return str(arguments["step_num"]) if isinstance(arguments, dict) and "step_num" in arguments else ""


def _has_thread(event: Mapping[str, Any]) -> bool:
    return all(isinstance(event.get(name), int | str | None) for name in ("pid", "tid"))
