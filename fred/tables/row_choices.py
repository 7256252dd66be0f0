"""Columns of text that tell which rows of a table are meant, such as states and products: no command leaves them out."""

from collections import Counter
from collections.abc import Mapping, Sequence

from fred.base.words import briefly
from fred.tables import quantities
from fred.tables.columns import File
from fred.tables.common_names import CHOICES
from fred.tables.content import Content
from fred.tables.named_units import to_snake_case
from fred.tables.records import transitions
from fred.tables.table_commands import select_rows_command
from fred.tables.table_kinds import Kind

_MOST_VALUES = 6  # values of a column in a message
Values = Mapping[str, Sequence[str]]


def find_choices(file: File, headers: Sequence[str]) -> dict[str, list[str]]:
    """Return the cells of columns of text that have several values, of which some repeat or whose names are those of choices.

    Args:
        file: the table.
        headers: names of columns that nothing reads.
    """
    choices = {}
    for header in headers:
        texts = file.texts(header)
        filled = [text for text in texts if text]
        values = {*filled}
        is_text = not any(map(quantities.is_date, filled)) and not all(map(quantities.is_number, filled))
        if len(values) > 1 and is_text and (len(values) < len(filled) or is_choice(header)):
            choices[header] = texts
    return choices


def is_choice(header: str) -> bool:
    """Return True for a name such as `state` or `skuName`, False for an identity, such as `event_id`.

    Args:
        header: name of a column.
    """
    words = to_snake_case(header.rpartition("/")[2]).split("_")
    return bool({*words} & {*CHOICES}) and words[-1] not in ("id", "time")


def choice_cure(file: File, kind: Kind, source: Content, choices: Values, prices: Mapping[str, tuple[str, float]]) -> str:
    """Return a clause that names the values of columns, with a command that keeps the rows with one.

    Args:
        file: the table.
        kind: kind of the table.
        source: content of its file.
        choices: the cells of the columns.
        prices: header and factor of each column of the kind that the table has.
    """
    values = {header: list(dict.fromkeys(text for text in texts if text)) for header, texts in choices.items()}
    parts = [f"`{header}` has the values {briefly(names, _MOST_VALUES)}" for header, names in values.items()]
    selection = _choose_product(choices) if kind.name == "prices" else _choose_rows(kind, choices)
    command = select_rows_command(source, selection)
    cure = f"column {'; '.join(parts)}: keep the rows you mean, such as those of {', '.join(selection.values())}: {command}"
    products = list(zip(*choices.values(), strict=True))
    if kind.name == "prices" and "per_hour" in prices and len({*products}) == len(products):
        header, factor = prices["per_hour"]
        numbers = file.quantities(header, {"USD": 1.0, "usd": 1.0, "EUR": 1.0, "eur": 1.0}) * factor
        examples = [
            f"`per_hour: {number:.10g}` of {', '.join(filter(None, product))}"
            for number, product in zip(numbers.tolist(), products, strict=True)
        ]
        return f"there is one price of each product: write it instead of the file, {briefly(examples, 3)}; or {cure}"
    return f"{cure}; if all rows are meant, write the table without {'these columns' if choices.keys() - selection else 'it'}"


def _choose_product(choices: Values) -> dict[str, str]:
    """Return the values that most rows have."""
    (product, _), *_ = Counter(zip(*choices.values(), strict=True)).most_common(1)
    return {header: value for header, value in zip(choices, product, strict=True) if value}


def _choose_rows(kind: Kind, choices: Values) -> dict[str, str]:
    """Return a column, rather one whose name is that of a choice, and a value: of failures one that means a machine is down."""
    header = next((header for header in choices if is_choice(header)), next(iter(choices)))
    counts = Counter(text for text in choices[header] if text)
    failed = [value for value in counts if kind.name == "failures" and transitions.is_up(value) is False]
    return {header: failed[0] if failed else counts.most_common(1)[0][0]}
