"""Names of runs, which are also the names of their folders in a result, and errors that name a run."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from pydantic import AfterValidator

from fred.base.disk import is_reserved
from fred.base.errors import FredError
from fred.components import own_code
from fred.components.component import own_classes
from fred.components.registry import nearest
from fred.specification.shape import Run

_VALID = re.compile(r"\w[-.\w]{0,59}")  # must not look like a command-line option
_LONGEST_NAME = 255 - len(".seed-4294967295")  # bytes: the limit of file systems, less the suffix of a work folder


def is_valid_name(name: object) -> bool:
    """Return True if a user may give a run this name. Names of sweep points may be longer and have other characters."""
    return isinstance(name, str) and bool(_VALID.fullmatch(name)) and not is_reserved(name)


def name_of_only_run(algorithm: Any) -> str:
    """Return the name of a run in a scenario without `runs`: that of its algorithm, or `run` if that is no usual name.

    Args:
        algorithm: a name, a user's class, or a mapping with either as `name`.

    >>> [name_of_only_run(algorithm) for algorithm in ("asgd", {"name": "my:Own"}, {"name": dict}, None)]
    ['asgd', 'Own', 'dict', 'run']
    """
    name = algorithm.get("name") if isinstance(algorithm, dict) else algorithm
    name = name.__name__ if isinstance(name, type) else str(name or "run").split(":")[-1]
    return name if is_valid_name(name) else "run"


def _check_name(name: str) -> str:
    """Return the name if a folder can have it. Raises ValueError."""
    if not name or "/" in name or not name.isprintable() or is_reserved(name):
        raise ValueError(
            "a run's name is also its folder in the result: expected one that is not empty, has no `/` or control characters, "
            "and is not reserved"
        )
    length = len(name.encode(errors="surrogatepass"))
    if length > _LONGEST_NAME:
        raise ValueError(
            f"this run's name would have {length} bytes, but a folder's name can have at most {_LONGEST_NAME}: give runs, keys "
            "or values shorter names, or sweep over fewer keys at once"
        )
    return name


Name = Annotated[str, AfterValidator(_check_name)]


@contextmanager
def name_run_in_errors(name: str, run: Run) -> Iterator[None]:
    """Add the run's name to a FredError, and turn other errors in a run with the user's own classes into a FredError.

    Out-of-memory errors also become a FredError. Other errors in runs without own classes are FRED's bugs and pass unchanged.
    """
    try:
        yield
    except FredError as error:
        raise FredError(f"run `{name}`: {error}") from error
    except Exception as error:
        if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):  # Python's or XLA's
            raise FredError(
                f"run `{name}`: not enough memory; use fewer workers, less data, or a smaller model or batch"
            ) from error
        user_classes = sorted(own_classes(run))
        if not user_classes:
            raise
        where = f" ({place})" if (place := own_code.line_of(error)) else ""
        classes = ", ".join(f"`{target}`" for target in user_classes)
        raise FredError(f"run `{name}`, with {classes}: {type(error).__name__}: {error}{_hint(error)}{where}") from error


def _hint(error: Exception) -> str:
    """Return a suggestion to append to the message of an error in the user's code, or an empty text."""
    if isinstance(error, AttributeError) and error.name is not None:
        return nearest(error.name, [name for name in dir(error.obj) if name[0] != "_"])
    if isinstance(error, TypeError) and "unsupported operand" in str(error) and "'dict'" in str(error):
        return "; gradients and parameters are trees of arrays: write `jax.tree.map(lambda array: 0.5 * array, grads)`"
    return ""
