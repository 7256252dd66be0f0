"""Names of runs, which are also the names of their folders in a result."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator

from fred.base.contents import is_taken
from fred.components import registry
from fred.components.component import Component

_USUAL = re.compile(r"\w[-.\w]{0,59}")  # must not look like a command-line option
_NEXT_WORD = re.compile("(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")  # in a class's name
_LONGEST = 255 - len(".seed-4294967295")  # bytes: the limit of file systems, less the suffix of a work folder


def is_usual(name: object) -> bool:
    """Return True if a user may give a run this name. Names of sweep points may be longer and have other characters."""
    return isinstance(name, str) and bool(_USUAL.fullmatch(name)) and not is_taken(name)


def name_of_only_run(algorithm: Any) -> str:
    """Return the name of a run in a scenario without `runs`: that of its algorithm, or `run` if that is no usual name.

    Args:
        algorithm: as in a scenario: a name, a mapping, or an object. An object of a user's class has the class's name.

    >>> import fred
    >>> class MyServer(fred.Server):
    ...     "Does nothing."
    >>> objects = fred.ASGD(learning_rate=0.1), MyServer(learning_rate=0.1)
    >>> [name_of_only_run(algorithm) for algorithm in ("asgd", {"name": "my:Own"}, *objects, None)]
    ['asgd', 'Own', 'asgd', 'my-server', 'run']
    """
    name = algorithm.get("name") if isinstance(algorithm, dict) else algorithm
    if (
        isinstance(algorithm, Component)
        and (name := registry.name_of("algorithm", algorithm)) not in registry.REGISTRY["algorithm"]
    ):
        name = _NEXT_WORD.sub("-", type(algorithm).__name__).lower()
    name = str(name or "run").split(":")[-1]
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
