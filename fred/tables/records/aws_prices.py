"""Prices of spot machines from `aws ec2 describe-spot-price-history`: JSON, text or CSV, newest first.

Names of the fields are those of the AWS CLI's reference. Text has the columns in the order of their names.
"""

from collections.abc import Mapping, Sequence

from fred.base.errors import FredError
from fred.base.words import briefly
from fred.tables.content import Content
from fred.tables.named_units import to_snake_case
from fred.tables.opening import open_table
from fred.tables.records.record import Record, rows_table

NAME = "spot prices of AWS"
KINDS = ("prices",)
_TEXT = "SPOTPRICEHISTORY"
_SERIES = {  # field -> option of the command that chooses one
    "availability_zone": "--availability-zone",
    "instance_type": "--instance-types",
    "product_description": "--product-descriptions",
}


def sniff(file: Content) -> bool:
    """Return True for `SpotPrice` in the names, or the mark of the text format.

    Args:
        file: content of the file.
    """
    return file.head.startswith(_TEXT) or "SpotPrice" in file.head


def read(file: Content, kind: str) -> Record:
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
        names = ("", *_SERIES, "spot_price", "timestamp")
        columns = dict(zip(names, cells, strict=True))

        def place(row: int) -> str:
            return f"{file.path}:{lines[row][0]}"
    else:
        table = open_table(file, "Timestamp,SpotPrice")
        columns = {to_snake_case(name): table.texts(name) for name in table.header}
        if missing := [name for name in ("spot_price", "timestamp") if name not in columns]:
            raise FredError(f"{file.path} has no {missing[0]}; expected Timestamp and SpotPrice, as from {_command(columns)}")
        place = table.describe_row
    for name in _SERIES:
        if len(values := sorted(set(columns.get(name, [])))) > 1:
            problem = f"{file.path} has prices of {len(values)} values of {name}, {briefly(values)}"
            raise FredError(
                f"{problem}; expected one: choose it by {_command(columns)}, or {_selection_command(file, name, values[0])}"
            )
    rows = list(zip(columns["timestamp"], columns["spot_price"], strict=True))
    return Record(rows_table(file, ("begin", "per_hour"), rows, place))


def _command(columns: Mapping[str, Sequence[str]]) -> str:
    choices = [f"{option} {next(iter(columns[name]), '')!r}" for name, option in _SERIES.items() if name in columns]
    return f"`aws ec2 describe-spot-price-history {' '.join(choices)}`"


def _selection_command(file: Content, name: str, value: str) -> str:
    """Return a command that writes the prices with one value of a field."""
    if not file.head.lstrip().startswith(("{", "[")):
        return f"`grep -F -e SpotPrice -e '{value}' {file.path} > {file.path.stem}-2.txt`"
    key = "['SpotPriceHistory']" if '"SpotPriceHistory"' in file.head else ""
    header = name.title().replace("_", "")
    table = f"t = pandas.DataFrame(json.load(open('{file.path}')){key}); t[t['{header}'] == '{value}']"
    return f"`python -c \"import json, pandas; {table}.to_csv('{file.path.stem}-2.csv', index=False)\"`"
