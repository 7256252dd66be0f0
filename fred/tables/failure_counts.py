"""Tables that count failures, by cause or machine, without their times: no record, but rates."""

from fred.tables import quantities
from fred.tables.columns import File
from fred.tables.named_units import to_snake_case

_COUNTS = {"count", "counts", "number", "occurrences", "failures", "interruptions", "incidents", "crashes", "n", "num", "total"}
_MACHINES, _DAYS = 1000, 30  # of the example, to be replaced


def count_cure(file: File) -> str:
    """Return how counts become causes of failures, with a command; an empty text for a table that has dates or no counts.

    Args:
        file: the table.
    """
    cells = {header: [text for text in file.texts(header) if text] for header in file.header}
    if any(quantities.is_date(text) for texts in cells.values() for text in texts):
        return ""
    columns = [
        header
        for header, texts in cells.items()
        if {*to_snake_case(header).split("_")} & _COUNTS and texts and all(map(quantities.is_count, texts))
    ]
    counts = [int(text) for text in cells[columns[0]] if int(text)] if columns else []
    if not counts:
        return ""
    first, seconds = counts[0], _DAYS * 86400
    causes = f"print('causes:', [dict(mean_up=machines * days * 86400 / n) for n in {counts}])"
    return (
        f"`{columns[0]}` counts failures, and counts have no times: give `causes` in place of `file`. The mean time of each "
        f"machine is machines x seconds / count; for {first} failures of {_MACHINES:,} machines in {_DAYS} days, "
        f"{_MACHINES} x {seconds} / {first} is `mean_up: {_MACHINES * seconds / first:.0f}`. With your numbers of machines and "
        f'days: `python -c "machines, days = {_MACHINES}, {_DAYS}; {causes}"`'
    )
