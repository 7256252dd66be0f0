"""Names of runs, which are also the names of their folders in a result."""

import re
from typing import Annotated

from pydantic import AfterValidator

from fred.base.contents import is_taken

_USUAL = re.compile(r"\w[-.\w]{0,59}")  # must not look like a command-line option
_LONGEST = 255 - len(".seed-4294967295")  # bytes: the limit of file systems, less the suffix of a work folder


def is_usual(name: object) -> bool:
    """Return True if a user may give a run this name. Names of sweep points may be longer and have other characters."""
    return isinstance(name, str) and bool(_USUAL.fullmatch(name)) and not is_taken(name)


def _of_a_folder(name: str) -> str:
    if not name or "/" in name or not name.isprintable() or is_taken(name):
        raise ValueError(
            "a run's name is also its folder in the result: expected one that is not empty, has no `/` or control characters, "
            "and is not reserved"
        )
    length = len(name.encode(errors="surrogatepass"))
    if length > _LONGEST:
        raise ValueError(
            f"this run's name would have {length} bytes, but a folder's name can have at most {_LONGEST}: give runs, keys or "
            "values shorter names, or sweep over fewer keys at once"
        )
    return name


Name = Annotated[str, AfterValidator(_of_a_folder)]
