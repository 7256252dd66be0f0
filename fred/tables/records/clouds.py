"""Records of clouds: prices of spot machines, and machines that are taken away.

Prices of spot machines from `aws ec2 describe-spot-price-history`: JSON, text or CSV, newest first.
Names of the fields are those of the AWS CLI's reference. Text has the columns in the order of their names.

Prices at equal distances, `{"metadata": {"gap_seconds": 300}, "prices": [...]}`, as in skypilot-org/spot-traces.

Evicted and restarted machines of Azure, from answers of its Scheduled Events service, one or many, as a script wrote them.
An event is repeated in each answer until it has passed. Its machines are down from `NotBefore` on; the service does not tell
when they are up again, unless the event has a duration [learn.microsoft.com, "Scheduled Events for Linux VMs"].

Preempted machines of Google's cloud, from `gcloud compute operations list --format=json`.
Operations `compute.instances.preempted` take a machine down, until `insert` or `start` of it.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from fred.base.errors import FredError, briefly, listed
from fred.tables import quantities
from fred.tables.content import Content, parse_json
from fred.tables.opening import open_table
from fred.tables.quantities import to_snake_case
from fred.tables.records.record import Record, RecordFormat, drop_missing, rows_table
from fred.tables.table_commands import select_rows_command

_TEXT = "SPOTPRICEHISTORY"
_SERIES = {  # field -> option of the command that chooses one
    "availability_zone": "--availability-zone",
    "instance_type": "--instance-types",
    "product_description": "--product-descriptions",
}


def sniff_aws_prices(file: Content) -> bool:
    """Return True for `SpotPrice` in the names, or the mark of the text format.

    Args:
        file: content of the file.
    """
    return file.head.startswith(_TEXT) or "SpotPrice" in file.head


def read_aws_prices(file: Content, kind: str) -> Record:
    """Return the steps of the price: begin, per_hour. Raises FredError, also for prices of several kinds of machines.

    Args:
        file: content of the file.
        kind: `prices`.
    """
    if file.head.startswith(_TEXT):
        lines = [(line, text.split("\t")) for line, text in enumerate(file.text.splitlines(), 1) if text.startswith(_TEXT)]
        if malformed := [line for line, cells in lines if len(cells) != 6]:
            raise FredError(f"{file.path}:{malformed[0]}: expected 6 fields with tabs between them, as from `--output text`")
        cells = [list(column) for column in zip(*(cells for _, cells in lines), strict=True)]
        names = ("", *_SERIES, "spot_price", "timestamp")  # the first one has the mark of the format
        columns = dict(zip(names, cells, strict=True))

        def place(row: int) -> str:
            return f"{file.path}:{lines[row][0]}"
    else:
        table = open_table(file, "Timestamp,SpotPrice")
        columns = {to_snake_case(name): table.texts(name) for name in table.header}
        if missing := [name for name in ("spot_price", "timestamp") if name not in columns]:
            raise FredError(f"{file.path} has no {missing[0]}; expected Timestamp and SpotPrice, as from {_command({})}")
        place = table.describe_row
    values_by_name = {name: list(dict.fromkeys(columns[name])) for name in _SERIES if name in columns}
    ambiguous = {name: values for name, values in values_by_name.items() if len(values) > 1}
    if ambiguous:
        parts = [f"{len(values)} values of {name}, {briefly(sorted(values))}" for name, values in ambiguous.items()]
        series = {name: columns[name] for name in _SERIES if name in columns}
        (most_frequent, _), *_ = Counter(zip(*series.values(), strict=True)).most_common(1)
        choice = dict(zip(series, most_frequent, strict=True))
        selection = {name: choice[name] for name in ambiguous}
        raise FredError(
            f"{file.path} has prices of {' and '.join(parts)}; expected one of each: put yours in place of "
            f"{listed([*selection.values()])}, in {_command(choice)}, or in {_selection_command(file, selection)}"
        )
    rows = list(zip(columns["timestamp"], columns["spot_price"], strict=True))
    return Record(rows_table(file, ("begin", "per_hour"), rows, place))


def _command(choice: Mapping[str, str]) -> str:
    """Return the command of AWS that lists the prices of one kind of machine."""
    options = [f" {option} {choice[name]!r}" for name, option in _SERIES.items() if choice.get(name)]
    return f"`aws ec2 describe-spot-price-history{''.join(options)}`"


def _selection_command(file: Content, choice: Mapping[str, str]) -> str:
    """Return a command that writes the prices with these values."""
    if file.head.startswith(_TEXT):
        fields = ["", *_SERIES]
        conditions = " && ".join(f'${fields.index(name) + 1} == "{value}"' for name, value in choice.items())
        return f"`awk -F '\\t' '{conditions}' {file.path} > {file.path.stem}-2.txt`"
    header = {to_snake_case(name): name for name in open_table(file, "Timestamp,SpotPrice").header}
    return select_rows_command(file, {header[name]: value for name, value in choice.items()})


AWS_PRICES = RecordFormat("spot prices of AWS", ("prices",), sniff_aws_prices, read_aws_prices)


def sniff_spot_prices(file: Content) -> bool:
    """Return True for JSON with `gap_seconds`.

    Args:
        file: content of the file.
    """
    return file.head.lstrip().startswith("{") and '"gap_seconds"' in file.head


def read_spot_prices(file: Content, kind: str) -> Record:
    """Return the steps of the price: begin, per_hour. Raises FredError.

    Args:
        file: content of the file.
        kind: `prices`.
    """
    document = parse_json(file)
    try:
        gap, prices = document["metadata"]["gap_seconds"], document["prices"]
        is_valid = all(type(number) in (int, float) for number in (gap, *prices)) and gap > 0 and prices
    except (KeyError, TypeError):
        is_valid = False
    if not is_valid:
        raise FredError(
            f'{file.path}: expected {{"metadata": {{"gap_seconds": 300}}, "prices": [1.2, 0.9]}}; a record of the number of '
            "machines has no prices: give a number as `per_hour`, and the record as `file` of the fault `sessions`"
        )
    steps = [(i * gap, price) for i, price in enumerate(prices) if not i or price != prices[i - 1]]
    return Record(rows_table(file, ("begin", "per_hour"), [(float(begin), float(price)) for begin, price in steps]))


SPOT_PRICES = RecordFormat("spot-traces", ("prices",), sniff_spot_prices, read_spot_prices)


_DOWN = ("Preempt", "Reboot", "Redeploy", "Terminate")
_MARK = re.compile(rf'"EventType"\s*:\s*"(?:{"|".join(_DOWN)}|Freeze)"')


def sniff_azure_events(file: Content) -> bool:
    """Return True for a file with such an event.

    Args:
        file: content of the file.
    """
    return _MARK.search(file.head) is not None


def read_azure_events(file: Content, kind: str) -> Record:
    """Return the failures: worker, down, up. Raises FredError.

    Args:
        file: content of the file.
        kind: `failures`.
    """
    rows: dict[tuple[str, str], tuple[str, float, float | None]] = {}
    for event in _events(list(_answers(file.text))):
        if event.get("EventType") in _DOWN and (text := str(event.get("NotBefore") or "")):
            down, length = _parse_moment(file, text), event.get("DurationInSeconds")
            up = down + length if isinstance(length, int) and length > 0 else None
            for machine in event.get("Resources") or ():  # the first of repeated events counts
                rows.setdefault((str(event.get("EventId", text)), str(machine)), (str(machine), down, up))
    record = rows_table(file, ("worker", "down", "up"), list(rows.values()))
    record.notes.append("a machine is down for the event's duration; without one, to the end")
    return Record(record)


def _answers(text: str) -> Iterator[Any]:
    """Yield the documents of JSON in a text, with or without other text between them."""
    decoder, position = json.JSONDecoder(), 0
    while (position := text.find("{", position)) >= 0:
        try:
            answer, position = decoder.raw_decode(text, position)
            yield answer
        except (ValueError, RecursionError):
            position += 1


def _events(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the events in a document."""
    if isinstance(value, dict) and "EventType" in value:
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _events(part)


def _parse_moment(file: Content, text: str) -> float:
    """Return a date in s since 1970. Raises FredError."""
    try:
        if quantities.is_moment(text):
            return float(quantities.parse_moments([text])[0])
        return parsedate_to_datetime(text).timestamp()
    except ValueError:
        raise FredError(
            f"{file.path}: `NotBefore` is {text!r}; expected a date such as Tue, 09 Aug 2022 17:07:32 GMT"
        ) from None


AZURE_EVENTS = RecordFormat("Azure's scheduled events", ("failures",), sniff_azure_events, read_azure_events)


_PREEMPTED = "compute.instances.preempted"
_BEGINS = ("insert", "start", "compute.instances.insert", "compute.instances.start")
_COMMAND = "`gcloud compute operations list --format=json > preempted.json`"


def sniff_preemptions(file: Content) -> bool:
    """Return True for a file with such an operation.

    Args:
        file: content of the file.
    """
    return _PREEMPTED in file.head


def read_preemptions(file: Content, kind: str) -> Record:
    """Return the failures: worker, down, up. Raises FredError.

    Args:
        file: content of the file.
        kind: `failures`.
    """
    if not file.head.lstrip().startswith(("[", "{")):
        raise FredError(f"{file.path}: expected JSON: {_COMMAND}")
    table = open_table(file, "operationType,targetLink,insertTime")
    if missing := [name for name in ("operationType", "targetLink", "insertTime") if name not in table.header]:
        raise FredError(f"{file.path} has no {missing[0]}; expected operations as from {_COMMAND}")
    kinds, targets = (table.texts(name) for name in ("operationType", "targetLink"))
    machines = [target.rpartition("/")[2] for target in targets]
    moments = table.columns([], ["insertTime"])[1]["insertTime"]
    rows = []
    for i in [i for i, kind in enumerate(kinds) if kind == _PREEMPTED]:
        restarts = [j for j, machine in enumerate(machines) if machine == machines[i] and kinds[j] in _BEGINS]
        restart_times = [float(moments[j]) for j in restarts if moments[j] > moments[i]]
        rows.append((machines[i], float(moments[i]), min(restart_times, default=None)))
    record = rows_table(file, ("worker", "down", "up"), rows)
    record.notes.append("a machine is down until it is inserted or started again")
    return Record(record, first=min(drop_missing(moments.tolist()), default=None))


PREEMPTIONS = RecordFormat("preemptions by gcloud", ("failures",), sniff_preemptions, read_preemptions)
