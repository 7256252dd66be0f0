"""Names of runs, which are names of folders in a result, too."""

import re
from typing import Annotated

from pydantic import AfterValidator

from fred.files.contents import is_taken

_USUAL = re.compile(r"\w[-.\w]{0,59}")  # none that a command line takes for an option
_LONGEST = 255 - len(".seed-4294967295")  # bytes: of what file systems bear, without what is added where a unit is worked on


def is_usual(name: object) -> bool:
    """Whether somebody may call a run so; points of sweeps have other characters and more of them."""
    return isinstance(name, str) and bool(_USUAL.fullmatch(name)) and not is_taken(name)


def _of_a_folder(name: str) -> str:
    if not name or "/" in name or not name.isprintable() or is_taken(name):
        raise ValueError(
            "a run's name is a folder's in the result: not empty, without `/` and control characters, and none that is taken"
        )
    length = len(name.encode(errors="surrogatepass"))
    if length > _LONGEST:
        raise ValueError(
            f"this run's name would have {length} bytes, and a folder's can have {_LONGEST}: give runs, keys or values "
            "shorter names, or sweep over fewer keys at once"
        )
    return name


Name = Annotated[str, AfterValidator(_of_a_folder)]
