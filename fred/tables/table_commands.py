"""Commands of the shell that write a table so that FRED can read it, for messages. FRED tries them before it names them."""

import ast
import itertools
import json
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fred.base.errors import FredError
from fred.tables.content import Content
from fred.tables.text_layout import SPACES, Layout, find_layout

_BY_HAND = "by hand, because pandas cannot read the file as it is"
_SHELL_MARKS = re.compile(r"[\"$`\\!\n]")  # the shell replaces them in double quotes
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(,\d{3})+")
_METHODS = {
    *("read_csv", "read_table", "read_parquet", "json_normalize", "load", "loads", "to_datetime"),
    *("drop", "rename", "assign", "replace", "fillna", "dropna", "apply", "set_axis"),
    *("astype", "isin", "median", "groupby", "diff", "cumcount", "name", "reset_index", "pivot_table", "dt", "total_seconds"),
}


def drop_columns_command(source: Content, names: Sequence[str]) -> str:
    """Return a command that writes a table without some columns.

    Args:
        source: content of the table's file.
        names: names of the columns.
    """
    return rewrite_command(source, f".drop(columns={list(names)})")


def select_rows_command(source: Content, values: Mapping[str, str]) -> str:
    """Return a command that writes the rows of a table that have some values.

    Args:
        source: content of the table's file.
        values: the value that remains, by column.
    """
    conditions = [f"(t[{name!r}].astype(str) == {value!r})" for name, value in values.items()]
    return rewrite_command(source, f"[lambda t: {' & '.join(conditions)}]")


def clear_dates_command(source: Content, headers: Sequence[str]) -> str:
    """Return a command that writes a table with dates whose months and days are clear.

    Args:
        source: content of the table's file.
        headers: names of columns with dates.
    """
    change = f".apply(lambda c: pandas.to_datetime(c, dayfirst=True) if c.name in {list(headers)} else c)"
    return f"if days come first, {rewrite_command(source, change)}, otherwise with `dayfirst=False`"


def rewrite_command(source: Content, change: str, options: str = "") -> str:
    """Return a command that reads a table with pandas, changes it, and writes it; advice without one if it would fail.

    Args:
        source: content of the table's file.
        change: calls of methods of the table, with names from the file as Python writes them.
        options: options of pandas that replace the place of the header.
    """
    imports, reader, rows = "import pandas", "", None  # number of rows that FRED reads in a text
    if source.kind == "parquet":
        reader = f"pandas.read_parquet({str(source.path)!r})"
    elif source.head.lstrip()[:1] in ("[", "{"):
        imports, reader = "import json, pandas", _json_reader(source)
    else:
        try:
            layout = find_layout(source)
            reader = _text_reader(source, layout, options)
            rows = None if options else sum(1 for _ in layout.rows(source)) + bool(layout.units)
        except FredError:
            reader = f"pandas.read_csv({str(source.path)!r}, {options or 'sep=None'}, engine='python')"
    code = f"{imports}; {reader}{change}.to_csv({source.path.stem + '-2.csv'!r}, index=False)"
    table, changed_table = _evaluate(reader), _evaluate(reader + change)
    if _SHELL_MARKS.search(code) or table is None or changed_table is None or not len(changed_table):
        return _BY_HAND
    # pandas must see the same rows and names as FRED; other `options` of the header change both.
    if rows is not None and (len(table) != rows or [str(name).strip() for name in table.columns] != layout.names):
        return _BY_HAND
    return f'`python -c "{code}"`'


def _json_reader(source: Content) -> str:
    """Return code that reads a table in JSON: a list of objects, a list in an object, or an object in each line."""
    file = f"open({str(source.path)!r}{f', encoding={source.encoding!r}' if source.encoding else ''})"
    try:
        document, code = json.loads(source.data), f"json.load({file})"
    except ValueError:
        document, code = [], f"[json.loads(line) for line in {file}]"
    lists = [key for key, value in document.items() if isinstance(value, list)] if isinstance(document, dict) else []
    return f"pandas.json_normalize({code}{f'[{lists[0]!r}]' if lists else ''}, sep='/')"


def _text_reader(source: Content, layout: Layout, options: str) -> str:
    """Return code that reads a text with its delimiter, decimal mark, encoding and place of the header."""
    name = "read_table" if layout.delimiter == "\t" else "read_csv"
    arguments = [repr(str(source.path))]
    if layout.delimiter == SPACES:
        arguments += ["sep=' +'", "engine='python'"]
    elif layout.delimiter not in ",\t":
        arguments.append(f"sep={layout.delimiter!r}")
    arguments += [options] if options else [f"skiprows={layout.header - 1}"] if layout.header > 1 else []
    arguments += ["decimal=','"] if _has_decimal_commas(layout) else []
    arguments += [f"encoding={source.encoding!r}"] if source.encoding else []
    return f"pandas.{name}({', '.join(arguments)})"


def _has_decimal_commas(layout: Layout) -> bool:
    """Return True if commas stand before decimals; between other marks than semicolons they may also group digits by three."""
    texts = [text.strip() for text in itertools.chain(*layout.samples.values())]
    numbers = [text for text in texts if _DECIMAL_COMMA.fullmatch(text) or _THOUSANDS.fullmatch(text)]
    if layout.delimiter == "," or not numbers:
        return False
    return layout.delimiter == ";" or not all(map(_THOUSANDS.fullmatch, numbers))


def _evaluate(code: str) -> Any:
    """Return the table that code of this module gives; None if the code fails.

    Names of columns are part of the code. So only pandas' readers and the methods that change a table may be called, whatever
    a file names its columns.
    """
    import pandas  # loads only for a message

    try:
        nodes = list(ast.walk(ast.parse(code, mode="eval")))
        if any(isinstance(node, ast.Attribute) and node.attr not in _METHODS for node in nodes):
            return None
        names = {"pandas": pandas, "json": json, "open": _open_read_only, "str": str, "__builtins__": {}}
        with warnings.catch_warnings(action="ignore"):
            return eval(compile(code, "command", "eval"), names)
    except Exception:  # of any kind: the command is not named
        return None


def _open_read_only(path: str, encoding: str | None = None) -> Any:
    return Path(path).open(encoding=encoding)
