"""Prices of spot machines from `aws ec2 describe-spot-price-history`: JSON, text or CSV, newest first.

Names of the fields are those of the AWS CLI's reference. Text has the columns in the order of their names.
"""

from collections import Counter
from collections.abc import Mapping

from fred.base.errors import FredError, briefly, listed
from fred.tables.content import Content
from fred.tables.named_units import to_snake_case
from fred.tables.opening import open_table
from fred.tables.records.record import Record, rows_table
from fred.tables.table_commands import select_rows_command

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
            raise FredError(f"{file.path} has no {missing[0]}; expected Timestamp and SpotPrice, as from {_command({})}")
        place = table.describe_row
    several = {name: values for name in _SERIES if len(values := list(dict.fromkeys(columns.get(name, [])))) > 1}
    if several:
        parts = [f"{len(values)} values of {name}, {briefly(sorted(values))}" for name, values in several.items()]
        series = {name: columns[name] for name in _SERIES if name in columns}
        (value, _), *_ = Counter(zip(*series.values(), strict=True)).most_common(1)
        choice = dict(zip(series, value, strict=True))
        kept = {name: choice[name] for name in several}
        raise FredError(
            f"{file.path} has prices of {' and '.join(parts)}; expected one of each: put yours in place of "
            f"{listed([*kept.values()])}, in {_command(choice)}, or in {_selection_command(file, kept)}"
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
