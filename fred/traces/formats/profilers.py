"""Step times from profilers that write traces for Chrome: PyTorch's and XLA's.

Step times from PyTorch's profiler: the JSON files that it exports for Chrome, one for each rank.
Steps are the profiler's own annotations, `ProfilerStep#12`, from `profiler.step()`. The time of a step is the time in which
the worker's kernels ran, NCCL's excluded, or it waited for its data loader. A kernel belongs to the step that launched it.
Without kernels, operations on the CPU count. Without those, the whole annotation counts, which includes waiting for other
workers. Times are in microseconds [Trace Event Format, Google 2016; Kineto's `output_json.cpp`].

Step times from traces of XLA for JAX and TensorFlow: `trace.json.gz`, which their profilers write for each host.
Each device is a worker. Its steps are those of its line `Steps`, or else the host's `StepTraceAnnotation`s. The time of a step
is that in which the device ran operations which began in it, collectives excluded. Times are in microseconds [Trace Event
Format, Google 2016; OpenXLA, `trace_events_to_json.cc`].
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fred.base.errors import FredError, briefly
from fred.tables.columns import Labels
from fred.tables.content import Content, parse_json
from fred.tables.quantities import is_count
from fred.tables.text_layout import RECORDING_CURE
from fred.traces.cells import Cells, LogFormat
from fred.traces.operations import Operations, busy_times
from fred.traces.roles import FileOptions, is_communication

_SCHEDULE = "schedule=torch.profiler.schedule(wait=1, warmup=1, active=100, repeat=1)"
_STEP = re.compile(r"ProfilerStep\s*#\s*([0-9]{1,18})(?![0-9])")
_FILE = re.compile(r"(?P<host>.+?)_[0-9]+(\.[0-9]+)?\.pt\.trace\.json(\.gz)?")  # names from `tensorboard_trace_handler`
_WORK_CATEGORIES = {  # categories of events -> description; the first in the file is used
    ("kernel", "gpu_memcpy", "gpu_memset", "privateuse1_kernel"): "time in which kernels ran or data were loaded",
    ("cpu_op", "operator"): "time in operations on the CPU",
}
_KINETO_MARK = re.compile(r'"(traceEvents|ph|schemaVersion|distributedInfo|deviceProperties)"\s*:')
_LOADING = "enumerate(DataLoader)"  # prefix of events that wait for the next minibatch
_LAUNCHES = ("cuda_runtime", "cuda_driver", "runtime", "privateuse1_runtime")
_KINETO_PER_SECOND = 1e6
_PYTORCH_CATEGORIES = ("cpu_op", "kernel", "python_function", "user_annotation", *_LAUNCHES)  # categories of its events
_FEWEST_EVENTS = 8  # events of a thread that may be steps


class _Work(NamedTuple):
    """Intervals in which the worker computed, on the clock of the file, microseconds."""

    start: NDArray[np.float64]
    end: NDArray[np.float64]
    launch: NDArray[np.float64]  # when the CPU launched them
    description: str
    kind: Labels | None = None  # names; None for whole steps
    kernels: bool = False  # True if these are kernels of a device
    excluded: tuple[str, ...] = ()  # names of excluded operations


def sniff_kineto(file: Content) -> bool:
    """Return True for JSON that has trace events, or what Kineto writes above them.

    Args:
        file: the content of the file.
    """
    return file.head.lstrip()[:1] in ("{", "[") and _KINETO_MARK.search(file.head) is not None


def read_kineto(file: Content, options: FileOptions) -> Cells:
    """Return the step times of one worker. Raises FredError.

    Args:
        file: content of a file exported by `torch.profiler`.
        options: options from the user; of them counts the name of the file, if the file gives no rank.
    """
    path, name = file.path, options.name
    metadata, events = _events(file)
    steps = _find_spans(path, events)
    work = _find_work(events) or _step_spans(steps)
    step_of_operation = _find_steps(work.launch, steps)
    inside = step_of_operation >= 0
    seconds = busy_times(step_of_operation[inside], work.start[inside], work.end[inside], len(steps)) / _KINETO_PER_SECOND
    numbers = list(map(str, steps))
    rank = metadata.get("distributedInfo", {}).get("rank") if isinstance(metadata.get("distributedInfo"), dict) else None
    host = match["host"] if (match := _FILE.fullmatch(path.name)) else None
    rows, zeros = np.arange(len(numbers)), np.zeros(len(numbers), np.int64)
    notes = [f"steps of PyTorch's profiler: {work.description}"]
    notes += [f"left out as communication or waiting: {briefly(work.excluded)}"] if work.excluded else []
    return Cells(
        iteration=Labels(rows, numbers),
        worker=Labels(zeros, [name if rank is None else str(rank)]),
        node=Labels(zeros, [host]) if host else None,
        seconds=seconds,
        row=rows,
        describe_row=lambda row: f"{path}, ProfilerStep#{numbers[row]}",
        columns={},
        notes=tuple(notes),
        operations=_operations(work, step_of_operation),
    )


def _operations(work: _Work, step_of_operation: NDArray[np.int64]) -> Operations | None:
    """Return the operations inside steps; None if the file has only steps."""
    if work.kind is None:
        return None
    inside = step_of_operation >= 0
    start, end = (moments[inside] / _KINETO_PER_SECOND for moments in (work.start, work.end))
    kind = Labels(work.kind.codes[inside], work.kind.names)
    return Operations(step_of_operation[inside], kind, end - start, start - start.min(initial=np.inf), mixed=not work.kernels)


def _events(file: Content) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
    """Return the file's metadata, and its events that have a duration."""
    trace = parse_json(file)
    metadata = trace if isinstance(trace, dict) else {"traceEvents": trace}
    events = metadata.get("traceEvents")
    if not isinstance(events, list):
        raise FredError(f"{file.path}: expected what `torch.profiler` exports, with a list `traceEvents`")
    return metadata, [event for event in events if isinstance(event, dict) and event.get("ph") == "X" and has_duration(event)]


def has_duration(event: Mapping[str, Any]) -> bool:
    """Return True for an event of Chrome's format with a start and a duration.

    Args:
        event: the event.
    """
    try:
        return math.isfinite(float(event["ts"])) and 0 <= float(event["dur"]) < math.inf
    except (KeyError, TypeError, ValueError, OverflowError):
        return False


def _find_spans(path: Path, events: Sequence[Mapping[str, Any]]) -> dict[int, tuple[float, float]]:
    """Return begin and end of each step, in order."""
    spans: dict[int, tuple[float, float]] = {}
    for event in events:
        match = _STEP.match(_name(event))
        if match and not str(event.get("cat", "")).lower().startswith("gpu"):
            spans.setdefault(int(match[1]), (float(event["ts"]), float(event["ts"]) + float(event["dur"])))
    if not spans and (name := _most_regular(events)):
        raise FredError(
            f"{path}: no step is marked (`ProfilerStep#1`), so PyTorch's profiler did not write it. If `{name}` is one step of "
            f"a worker, write a table of its times: {_table_command(path, name)}; or record with `fred record`"
        )
    if not spans:
        raise FredError(
            f"{path}: no step is marked (`ProfilerStep#1`); PyTorch marks steps only with a schedule: record with "
            f"`torch.profiler.profile({_SCHEDULE})`, and call `profiler.step()` after each iteration; or give a table of times"
        )
    return dict(sorted(spans.items()))


def _most_regular(events: Sequence[Mapping[str, Any]]) -> str:
    """Return the name of the events that are most probably steps; empty if there are none, or if PyTorch wrote the file.

    They occur equally often in several processes or threads, and of such events last longest in all.
    """
    counts, lengths = defaultdict[str, Counter[tuple[Any, Any]]](Counter), defaultdict[str, float](float)
    for event in events:
        if str(event.get("cat", "")).lower() in _PYTORCH_CATEGORIES:
            return ""
        counts[_name(event)][event.get("pid"), event.get("tid")] += 1
        lengths[_name(event)] += float(event["dur"])
    regular = [name for name, threads in counts.items() if len(threads) > 1 and len({*threads.values()}) == 1]
    steps = [name for name in regular if min(counts[name].values()) >= _FEWEST_EVENTS]
    steps = [name for name in steps if re.fullmatch(r"[\w:. /#-]+", name)]  # which need no quotes in a command
    return max(steps, key=lambda name: lengths[name], default="")


def _table_command(path: Path, name: str) -> str:
    """Return a command that writes the times of events as a table, in which the k-th of a worker is its iteration k."""
    rows = f"sorted((x['ts'], '%s/%s' % (x['pid'], x['tid']), x['dur']) for x in e if x.get('name') == '{name}')"
    return (
        f"`python -c \"import json, pandas; e = json.load(open('{path}')); e = e['traceEvents'] if isinstance(e, dict) else e; "
        f"t = pandas.DataFrame({rows}, columns=['ts', 'worker', 'duration_us']).drop(columns='ts'); "
        f"t.insert(0, 'iteration', t.groupby('worker').cumcount()); t.to_csv('{path.stem}.csv', index=False)\"`"
    )


def _find_work(events: Sequence[Mapping[str, Any]]) -> _Work | None:
    """Return the intervals in which the worker computed; None if the file has none."""
    groups = ((description, _select_categories(events, categories)) for categories, description in _WORK_CATEGORIES.items())
    # A group without events, or with communication alone, does not count.
    computing = (group for group in groups if not all(is_communication(_name(event)) for event in group[1]))
    description, selected = next(computing, ("", []))
    if not selected:
        return None
    excluded = {name for name in map(_name, selected) if is_communication(name)}
    # A kernel may run after the next step has begun on the CPU. It belongs to the step that launched it, so the call with the
    # same correlation number decides. Operations without such a call count by their own start.
    launch_times = {
        number: float(event["ts"])
        for event in _select_categories(events, _LAUNCHES)
        if (number := _correlation(event)) is not None
    }
    loading = [event for event in events if _name(event).startswith(_LOADING)]
    work = [*(event for event in selected if _name(event) not in excluded), *loading]
    start, length = (np.array([float(event[name]) for event in work]) for name in ("ts", "dur"))
    launches = [launch_times.get(_correlation(event), float(event["ts"])) for event in work]
    names, codes = np.unique([_name(event) for event in work], return_inverse=True)
    return _Work(
        start=start,
        end=start + length,
        launch=np.array(launches),
        description=description,
        kind=Labels(codes, names.tolist()),
        kernels=description == next(iter(_WORK_CATEGORIES.values())),  # the first group is of kernels
        excluded=tuple(sorted(excluded)),
    )


def _step_spans(steps: Mapping[int, tuple[float, float]]) -> _Work:
    """Return the annotations themselves as intervals."""
    start, end = np.array([*steps.values()]).T
    return _Work(start, end, start, "whole steps, waiting for others included, because no operations were recorded")


def _select_categories(events: Sequence[Mapping[str, Any]], categories: Sequence[str]) -> list[Mapping[str, Any]]:
    return [event for event in events if str(event.get("cat", "")).lower() in categories]


def _name(event: Mapping[str, Any]) -> str:
    return str(event.get("name"))


def _correlation(event: Mapping[str, Any]) -> Any:
    """Return the number that links a kernel to the call that launched it, if there is one."""
    number = event["args"].get("correlation") if isinstance(event.get("args"), dict) else None
    return number if isinstance(number, int | str) else None


def _find_steps(moments: NDArray[np.float64], steps: Mapping[int, tuple[float, float]]) -> NDArray[np.int64]:
    """Return the number, from 0, of the step that contains each moment; -1 for none."""
    start, end = np.array([*steps.values()]).T
    position = np.searchsorted(start, moments, side="right") - 1
    return np.where((position >= 0) & (moments <= end[position]), position, -1)


KINETO = LogFormat("PyTorch profiler", sniff_kineto, read_kineto)


_XLA_NAME = "XLA trace"
_XLA_MARK = re.compile(r'"/(?:device|host):(?:TPU|GPU|CPU|CUSTOM)|"XLA (?:Ops|Modules)"|"highres-ticks"')
_DEVICE = re.compile(r"/device:(.+)")
_OPERATIONS = re.compile(r"XLA Ops|(?:Stream|stream) ?#?.*")
_XLA_PER_SECOND = 1e6


def sniff_xla(file: Content) -> bool:
    """Return True for a trace of Chrome's format with devices of XLA.

    Args:
        file: the content of the file.
    """
    return file.head.lstrip()[:1] == "{" and _XLA_MARK.search(file.head) is not None and '"deviceProperties"' not in file.head


def read_xla(file: Content, options: FileOptions) -> Cells:
    """Return the step times of the devices. Raises FredError for a trace without steps.

    Args:
        file: content of `trace.json`.
        options: options from the user; of them counts the name of the file.
    """
    trace = parse_json(file)
    listing = trace.get("traceEvents") if isinstance(trace, dict) else None
    events = [event for event in listing if isinstance(event, dict) and _has_thread(event)] if isinstance(listing, list) else []
    names = _names(events)
    durations = [event for event in events if event.get("ph") == "X" and has_duration(event)]
    steps = defaultdict[Any, dict[int, tuple[float, float]]](dict)  # begin and end, by device, or None for the host; by number
    operations = defaultdict[Any, list[tuple[str, float, float]]](list)  # name, begin and end, by device
    for event in durations:
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
    return _xla_cells(file, options, names, devices, steps, operations)


def _xla_cells(
    file: Content,
    options: FileOptions,
    names: Mapping[Any, str],
    devices: Sequence[Any],
    steps: Mapping[Any, dict[int, tuple[float, float]]],
    operations: Mapping[Any, list[tuple[str, float, float]]],
) -> Cells:
    """Return the times in which operations of each step ran on each device, from the tables of `read_xla`."""
    iterations, workers, seconds = list[str](), list[int](), list[float]()
    excluded = set[str]()
    for worker, pid in enumerate(devices):
        numbered_spans = sorted((steps.get(pid) or steps[None]).items(), key=lambda step: step[1])
        begin, end = np.array([span for _, span in numbered_spans]).T
        # `all-reduce.12` is an instance of `all-reduce`
        excluded |= {re.sub(r"[.\d]+$", "", name) for name, *_ in operations[pid] if is_communication(name)}
        computing = [span for name, *span in operations[pid] if not is_communication(name)]
        spans = np.array(computing, np.float64).reshape(-1, 2)
        step_of = np.searchsorted(begin, spans[:, 0], side="right") - 1
        inside = (step_of >= 0) & (spans[:, 0] <= end[step_of])
        times = busy_times(step_of[inside], spans[inside, 0], spans[inside, 1], len(begin)) / _XLA_PER_SECOND
        iterations += [str(number) for number, _ in numbered_spans]
        workers += [worker] * len(begin)
        seconds += times.tolist()
    device_names = [match[1] if (match := _DEVICE.search(names[pid, None])) else str(pid) for pid in devices]
    worker_names = [options.name] if len(devices) == 1 else [f"{options.name}/{name}" for name in device_names]
    codes = {number: code for code, number in enumerate(dict.fromkeys(iterations))}
    rows = np.arange(len(seconds))
    notes = [f"{_XLA_NAME}: time in which operations of a step ran on {briefly(device_names)}"]
    notes += [f"left out as communication or waiting: {briefly(sorted(excluded))}"] if excluded else []
    return Cells(
        iteration=Labels(np.array([codes[number] for number in iterations]), list(codes)),
        worker=Labels(np.array(workers), worker_names),
        node=Labels(np.zeros(len(rows), np.int64), [options.name]) if len(devices) > 1 else None,
        seconds=np.array(seconds),
        row=rows,
        describe_row=lambda row: f"{file.path}, step {iterations[row]} on {device_names[workers[row]]}",
        columns={},
        notes=tuple(notes),
    )


def _names(events: Sequence[Mapping[str, Any]]) -> dict[Any, str]:
    """Return names of processes, by process and None, and of threads, by process and thread; events "M" hold them."""
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


XLA = LogFormat(_XLA_NAME, sniff_xla, read_xla)
