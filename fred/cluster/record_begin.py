"""The option `from`: the date at which a run begins in a record with dates."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, TypeAdapter, WithJsonSchema, create_model

from fred.components.component import Component

_DATE = TypeAdapter(datetime)
_BEGIN = Field(
    default=None,
    exclude=True,  # a manifest has the times in s
    description="date at which the run begins in a file with dates, such as 2026-02-01 or 2026-02-01T10:00:00Z; absent: the "
    "first in the file",
)
_Begin = Annotated[datetime, WithJsonSchema({"type": "string"})]

if TYPE_CHECKING:

    class Dated(Component):
        """Options of which a file may have dates."""
else:  # a class statement cannot have a field `from`
    Dated = create_model("Dated", __base__=Component, __module__=__name__, **{"from": (_Begin | None, _BEGIN)})
    Dated.__doc__ = "Options of which a file may have dates."


def begin_of(options: Mapping[str, Any]) -> datetime | None:
    """Return the option `from`. Raises ValueError for a value that is not a date.

    Args:
        options: options of a part of a scenario.

    >>> begin_of({"from": "2026-02-01"}), begin_of({})
    (datetime.datetime(2026, 2, 1, 0, 0), None)
    """
    value = options.get("from")
    try:
        return None if value is None else _DATE.validate_python(value)
    except ValueError:
        raise ValueError(f"`from` is {value!r}; expected a date, such as 2026-02-01 or 2026-02-01T10:00:00Z") from None


def check_has_file(options: Mapping[str, Any], key: str) -> None:
    """Raise ValueError for a `from` without a file whose dates it refers to.

    Args:
        options: options of a part of a scenario.
        key: option that names the file.

    >>> check_has_file({"from": "2026-02-01", "file": "failures.csv"}, "file")
    """
    if options.get("from") is not None and not isinstance(options.get(key), str | Path):
        raise ValueError(f"`from` is the date at which the run begins in a file; give the file as `{key}`, or leave `from` out")
