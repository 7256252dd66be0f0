"""Error messages that name the run that failed and, if the user's own classes take part in it, the class and the line."""

from collections.abc import Iterator
from contextlib import contextmanager

from fred.base.errors import FredError
from fred.components import own_code
from fred.components.component import own_classes
from fred.components.registry import nearest
from fred.specification.shape import Run


@contextmanager
def blamed(name: str, run: Run) -> Iterator[None]:
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
        own = sorted(own_classes(run))
        if not own:
            raise
        where = f" ({place})" if (place := own_code.line_of(error)) else ""
        classes = ", ".join(f"`{target}`" for target in own)
        raise FredError(f"run `{name}`, with {classes}: {type(error).__name__}: {error}{_hint(error)}{where}") from error


def _hint(error: Exception) -> str:
    """Return a suggestion to append to the message of an error in the user's code, or an empty text."""
    if isinstance(error, AttributeError) and error.name is not None:
        return nearest(error.name, [name for name in dir(error.obj) if name[0] != "_"])
    if isinstance(error, TypeError) and "unsupported operand" in str(error) and "'dict'" in str(error):
        return "; gradients and parameters are trees of arrays: write `jax.tree.map(lambda array: 0.5 * array, grads)`"
    return ""
