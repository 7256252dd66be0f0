"""Whose fault an error is: the run, and if classes of the user's own take part in it, the class and the line."""

from collections.abc import Iterator
from contextlib import contextmanager

from fred.components import own_code
from fred.components.component import own_classes
from fred.errors import FredError
from fred.specification.shape import Run


@contextmanager
def blamed(name: str, run: Run) -> Iterator[None]:
    """Name the run in FredErrors, and turn any other error in a run with classes of the user's own into one.

    FRED's own faults stay as they are.
    """
    try:
        yield
    except FredError as error:
        raise FredError(f"run `{name}`: {error}") from error
    except Exception as error:
        if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):  # Python's or XLA's
            raise FredError(f"run `{name}`: not enough memory; take fewer workers, or smaller data, model or batch") from error
        own = sorted(own_classes(run))
        if not own:
            raise
        where = f" ({place})" if (place := own_code.line_of(error)) else ""
        classes = ", ".join(f"`{target}`" for target in own)
        raise FredError(f"run `{name}`, with {classes}: {type(error).__name__}: {error}{where}") from error
