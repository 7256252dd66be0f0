"""Prices at equal distances, `{"metadata": {"gap_seconds": 300}, "prices": [...]}`, as in skypilot-org/spot-traces."""

from fred.base.errors import FredError
from fred.tables.content import Content, parse_json
from fred.tables.records.record import Record, rows_table

NAME = "spot-traces"
KINDS = ("prices",)


def sniff(file: Content) -> bool:
    """Return True for JSON with `gap_seconds`.

    Args:
        file: content of the file.
    """
    return file.head.lstrip().startswith("{") and '"gap_seconds"' in file.head


def read(file: Content, kind: str) -> Record:
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
    steps = [(place * gap, price) for place, price in enumerate(prices) if not place or price != prices[place - 1]]
    return Record(rows_table(file, ("begin", "per_hour"), [(float(begin), float(price)) for begin, price in steps]))
