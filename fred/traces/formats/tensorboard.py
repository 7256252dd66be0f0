"""TensorBoard: scalars exported as CSV (`Wall time,Step,Value`), or the event files themselves.

Each file is of one run, which is a worker. The tag, in the name of an exported file, says what was logged. Event files need the
package `tensorboard`, which reads them.
"""

import re
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from fred.base.errors import FredError
from fred.base.words import listed
from fred.tables.columns import of_columns
from fred.tables.content import Content
from fred.tables.opening import opened
from fred.tables.text_layout import RECORD
from fred.traces import long_tables
from fred.traces.cells import Cells
from fred.traces.refusal import UnclearTraceError
from fred.traces.roles import Says, is_rate, is_time

NAME = "TensorBoard"
_HEADER = ["Wall time", "Step", "Value"]
_FILE = re.compile(r"(?:run-)?(?P<run>.*?)[-_]tag-(?P<tag>.*)", re.DOTALL)
_EVENTS = ".tfevents."


def sniff(file: Content) -> bool:
    """Return True for an exported scalar, and for an event file.

    Args:
        file: the content of the file.
    """
    first = file.head.partition("\n")[0].strip().replace('"', "")
    return first == ",".join(_HEADER) or _EVENTS in file.path.name


def read(file: Content, says: Says) -> Cells:
    """Return the step times of one run. Raises FredError, or UnclearTraceError if options can make the file readable.

    Args:
        file: the content of the file.
        says: options from the user.
    """
    if _EVENTS in file.path.name:
        return _events(file, says)
    match = _FILE.fullmatch(says.name)
    tag = match["tag"] if match else "Value"
    if match and not (is_time(tag) or is_rate(tag) or "time" in tag.lower()):
        raise FredError(
            f"{file.path} is TensorBoard's export of the tag `{tag}`; expected that of a tag with the times of steps. "
            f"If there is none, {RECORD}"
        )
    table = opened(file)
    names = says.columns.get("time", "Value")
    labels, numbers = table.columns(["Step"], [names])
    steps = [labels["Step"].names[code] for code in labels["Step"].codes]
    columns = of_columns(file.path, {"Step": steps, tag: numbers[names]}, table.where)
    worker = match["run"] if match and match["run"] else says.name
    roles = {**says.columns, "iteration": "Step", "time": tag, "worker": says.columns.get("worker", "FILE")}
    cells = long_tables.cells_of(columns, replace(says, columns=roles, name=worker, only={}))
    return replace(cells, notes=(f"TensorBoard export: a run in each file, its times in `{tag}`", *cells.notes))


def _events(file: Content, says: Says) -> Cells:
    """Return the step times in an event file."""
    scalars = _scalars(file)
    times = [tag for tag in scalars if is_time(tag)] or [tag for tag in scalars if is_rate(tag)]
    tag = says.only.get("tag") or says.columns.get("time") or (times[0] if len(times) == 1 else "")
    if tag not in scalars:
        raise UnclearTraceError(
            f"{file.path}: which tag has the times of steps? It has {listed([*scalars])}",
            remedies=[{"only": {"tag": event}} for event in times or scalars],
        )
    steps, values = zip(*scalars[tag], strict=True)
    table = of_columns(file.path, {"Step": [str(step) for step in steps], tag: values})
    run = file.path.parent.name or says.name
    cells = long_tables.cells_of(
        table, replace(says, columns={"iteration": "Step", "time": tag, "worker": "FILE"}, name=run, only={})
    )
    return replace(cells, notes=(f"TensorBoard events: a run in each folder, its times in `{tag}`", *cells.notes))


def _scalars(file: Content) -> dict[str, list[tuple[int, float]]]:
    """Return steps and values by tag."""
    try:
        from tensorboard.backend.event_processing import event_accumulator
    except ImportError:
        raise FredError(
            f"{file.path} is an event file, which the package `tensorboard` reads: `pip install tensorboard`; or "
            "export the scalar of the step time as CSV, in TensorBoard's page, one file for each run"
        ) from None
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / file.path.name).write_bytes(file.data)
        events: Any = event_accumulator.EventAccumulator(folder, {"scalars": 0, "tensors": 0}).Reload()
        tags = events.Tags()
        scalars = {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in tags["scalars"]}
        for tag in tags["tensors"]:
            values = [(event.step, event.tensor_proto) for event in events.Tensors(tag)]
            if all(len(proto.float_val) == 1 for _, proto in values):
                scalars[tag] = [(step, proto.float_val[0]) for step, proto in values]
    return scalars
