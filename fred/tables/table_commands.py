"""Commands of the shell that write a table so that FRED can read it, for messages."""

import json
from collections.abc import Sequence
from pathlib import Path

from fred.base.errors import FredError
from fred.tables.content import Content
from fred.tables.text_layout import SPACES, find_layout


def drop_columns_command(source: Content, names: Sequence[str]) -> str:
    """Return a command that writes a table without some columns.

    Args:
        source: content of the table's file.
        names: names of the columns.
    """
    return rewrite_command(source, f".drop(columns={list(names)})")


def rewrite_command(source: Content, change: str) -> str:
    """Return a command that reads a table with pandas, changes it, and writes it.

    Args:
        source: content of the table's file.
        change: calls of methods of the table.
    """
    path, imports = source.path, "import pandas"
    reader = f"pandas.read_csv('{path}', sep={separator(source)}, engine='python')"
    if source.kind == "parquet":
        reader = f"pandas.read_parquet('{path}')"
    elif source.head.lstrip()[:1] in ("[", "{"):
        imports = "import json, pandas"
        try:
            document, document_code = json.loads(source.data), f"json.load(open('{path}'))"
        except ValueError:
            document, document_code = [], f"[json.loads(line) for line in open('{path}')]"
        lists = [key for key, value in document.items() if isinstance(value, list)] if isinstance(document, dict) else []
        reader = f"pandas.json_normalize({document_code}{f'[{lists[0]!r}]' if lists else ''}, sep='/')"
    return f"`python -c \"{imports}; {reader}{change}.to_csv('{path.stem}-2.csv', index=False)\"`"


def separator(source: Content) -> str:
    """Return pandas' option for the delimiter of a text: `None`, which finds it, or spaces, which it would not find.

    Args:
        source: content of the table's file.
    """
    try:
        return "' +'" if source.kind == "text" and find_layout(source).delimiter == SPACES else "None"
    except FredError:
        return "None"


def clear_dates_command(path: Path, headers: Sequence[str]) -> str:
    """Return a command that writes a table with dates whose months and days are clear.

    Args:
        path: the table's file.
        headers: names of columns with dates.
    """
    dates = f"t[{list(headers)}] = t[{list(headers)}].apply(pandas.to_datetime, dayfirst=True)"
    read, write = f"t = pandas.read_csv('{path}', sep=None, engine='python')", f"t.to_csv('{path.stem}-2.csv', index=False)"
    return f'if days come first, `python -c "import pandas; {read}; {dates}; {write}"`, otherwise with `dayfirst=False`'
