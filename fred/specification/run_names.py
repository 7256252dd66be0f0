"""Names of runs, which are also the names of their folders in a result."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator

from fred.base.contents import is_taken

_USUAL = re.compile(r"\w[-.\w]{0,59}")  # must not look like a command-line option
_LONGEST = 255 - len(".seed-4294967295")  # bytes: the limit of file systems, less the suffix of a work folder


def is_usual(name: object) -> bool:
    """Return True if a user may give a run this name. Names of sweep points may be longer and have other characters."""
    return isinstance(name, str) and bool(_USUAL.fullmatch(name)) and not is_taken(name)


def name_of_only_run(algorithm: Any) -> str:
    """Return the name of a run in a scenario without `runs`: that of its algorithm, or `run` if that is no usual name.

    Args:
        algorithm: a name, a user's class, or a mapping with either as `name`.

    >>> [name_of_only_run(algorithm) for algorithm in ("asgd", {"name": "my:Own"}, {"name": dict}, None)]
    ['asgd', 'Own', 'dict', 'run']
    """
    name = algorithm.get("name") if isinstance(algorithm, dict) else algorithm
    name = name.__name__ if isinstance(name, type) else str(name or "run").split(":")[-1]
    return name if is_usual(name) else "run"


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
