"""TensorBoard: scalars exported as CSV (`Wall time,Step,Value`), or the event files themselves.

Each file is of one run, which is a worker. The tag of the metric is in the name of an exported file. Event files hold
messages that github.com/tensorflow/tensorboard defines in tensorboard/compat/proto (event, summary, tensor).
"""

import re
import struct
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from fred.base.errors import FredError, listed
from fred.tables.columns import table_from_columns
from fred.tables.content import Content
from fred.tables.opening import open_table
from fred.tables.text_layout import RECORDING_CURE
from fred.traces import long_tables
from fred.traces.cells import Cells
from fred.traces.refusal import UnclearTraceError
from fred.traces.roles import FileOptions, is_rate, is_time

NAME = "TensorBoard"
_HEADER = ["Wall time", "Step", "Value"]
_FILE = re.compile(r"(?:run-)?(?P<run>.*?)[-_]tag-(?P<tag>.*)", re.DOTALL)
_EVENTS = ".tfevents."
_STEP, _SUMMARY = 2, 5  # fields of an event
_TAG, _SIMPLE, _TENSOR = 1, 2, 8  # fields of a summary's value
_KIND, _CONTENT = 1, 4  # fields of a tensor
_ELEMENTS: dict[int | bytes, tuple[str, int]] = {1: ("<f", 5), 2: ("<d", 6)}  # by kind: form, and another field of numbers

Value = int | bytes
Fields = dict[int, Value]


def sniff(file: Content) -> bool:
    """Return True for an exported scalar, and for an event file.

    Args:
        file: the content of the file.
    """
    first = file.head.partition("\n")[0].strip().replace('"', "")
    return first == ",".join(_HEADER) or _EVENTS in file.path.name


def read(file: Content, options: FileOptions) -> Cells:
    """Return the step times of one run. Raises FredError, or UnclearTraceError if options can make the file readable.

    Args:
        file: the content of the file.
        options: options from the user.
    """
    if _EVENTS in file.path.name:
        return _events(file, options)
    match = _FILE.fullmatch(options.name)
    tag = match["tag"] if match else "Value"
    if match and not (is_time(tag) or is_rate(tag) or "time" in tag.lower()):
        raise FredError(
            f"{file.path} is TensorBoard's export of the tag `{tag}`; expected that of a tag with the times of steps. "
            f"If there is none, {RECORDING_CURE}"
        )
    table = open_table(file)
    value_column = options.columns.get("time", "Value")
    labels, numbers = table.columns(["Step"], [value_column])
    steps = [labels["Step"].names[code] for code in labels["Step"].codes]
    columns = table_from_columns(file.path, {"Step": steps, tag: numbers[value_column]}, table.describe_row)
    worker = match["run"] if match and match["run"] else options.name
    roles = {**options.columns, "iteration": "Step", "time": tag, "worker": options.columns.get("worker", "FILE")}
    cells = long_tables.read_cells(columns, replace(options, columns=roles, name=worker, only={}))
    return replace(cells, notes=(f"TensorBoard export: a run in each file, its times in `{tag}`", *cells.notes))


def _events(file: Content, options: FileOptions) -> Cells:
    """Return the step times in an event file."""
    scalars = _scalars(file)
    if not scalars:
        raise FredError(f"{file.path} is an event file without scalars; expected one with the time of each step")
    times = [tag for tag in scalars if is_time(tag)] or [tag for tag in scalars if is_rate(tag)]
    tag = options.only.get("tag") or options.columns.get("time") or (times[0] if len(times) == 1 else "")
    if tag not in scalars:
        raise UnclearTraceError(
            f"{file.path}: which tag has the times of steps? It has {listed([*scalars])}",
            remedies=[{"only": {"tag": event}} for event in times or scalars],
        )
    steps, values = zip(*scalars[tag], strict=True)
    table = table_from_columns(file.path, {"Step": [str(step) for step in steps], tag: values})
    run = file.path.parent.name or options.name
    cells = long_tables.read_cells(
        table, replace(options, columns={"iteration": "Step", "time": tag, "worker": "FILE"}, name=run, only={})
    )
    return replace(cells, notes=(f"TensorBoard events: a run in each folder, its times in `{tag}`", *cells.notes))


def _scalars(file: Content) -> dict[str, list[tuple[int, float]]]:
    """Return steps and values by tag; a record that is cut off ends the file, as while a run writes it."""
    scalars: dict[str, list[tuple[int, float]]] = defaultdict(list)
    try:
        for record in _records(file.data):
            event = dict(_fields(record))
            summary = event.get(_SUMMARY, b"")
            for _, logged in _fields(summary if isinstance(summary, bytes) else b""):
                value = dict(_fields(logged)) if isinstance(logged, bytes) else {}
                tag, number, step = value.get(_TAG), _number(value), event.get(_STEP, 0)
                if isinstance(tag, bytes) and isinstance(step, int) and number is not None:
                    scalars[tag.decode()].append((step, number))
    except (IndexError, UnicodeDecodeError, ValueError, struct.error):
        raise FredError(f"cannot read {file.path}: it is no event file of TensorBoard, or a damaged one") from None
    return scalars


def _records(data: bytes) -> Iterator[bytes]:
    """Yield the records of a TFRecord file: length, its checksum, bytes, their checksum."""
    begin = 0
    while begin + 12 <= len(data):
        end = begin + 12 + int.from_bytes(data[begin : begin + 8], "little")
        if end + 4 > len(data):
            return
        yield data[begin + 12 : end]
        begin = end + 4


def _number(value: Fields) -> float | None:
    """Return the number of a scalar, single or as a tensor with one element; None for other summaries."""
    tensor = value.get(_TENSOR)
    parts = dict(_fields(tensor)) if isinstance(tensor, bytes) else {}
    form, place = _ELEMENTS.get(parts.get(_KIND, 1), ("<f", 0))
    for number in (value.get(_SIMPLE), parts.get(_CONTENT), parts.get(place)):
        if isinstance(number, bytes) and len(number) == struct.calcsize(form):
            return float(struct.unpack(form, number)[0])
    return None


def _fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """Yield the numbers and values of the fields of a message of protocol buffers."""
    offset = 0
    while offset < len(message):
        key, offset = _integer(message, offset)
        size, wire = 0, key & 7
        if wire == 0:
            value, offset = _integer(message, offset)
            yield key >> 3, value
            continue
        if wire == 2:
            size, offset = _integer(message, offset)
        else:
            size = {1: 8, 5: 4}.get(wire, len(message))
        if offset + size > len(message):
            raise ValueError("a field ends after its message")
        yield key >> 3, message[offset : offset + size]
        offset += size


def _integer(message: bytes, offset: int) -> tuple[int, int]:
    """Return an integer of seven bits a byte, and the place after it."""
    value = shift = 0
    while True:
        byte, offset = message[offset], offset + 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, offset
        shift += 7
