"""FredError, the error for everything that a user can correct."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_LONGEST_LINE = 1000  # characters


class FredError(Exception):
    """A request that FRED cannot fulfil. The message gives the problem, its place, the expected value and a remedy.

    Each problem is one line. The command line prints the lines without a traceback, writes nothing, and exits with code 2.
    Characters that cannot be printed are escaped, and very long lines are shortened.

    Args:
        problems: a sentence for each problem; `str` of the error has a line for each.

    >>> import fred
    >>> try:
    ...     fred.scenario(algorithm={"name": "asgd", "learning_rate": 0.1}, cluster={"workers": 0}, stop={"updats": 4})
    ... except fred.FredError as error:
    ...     print(error)
    cluster.workers: found 0; expected greater than or equal to 1
    stop.updats: unknown key `updats`; did you mean `updates`?; expected updates, ...
    """

    def __init__(self, *problems: str):
        super().__init__(*map(_printable, problems))

    def __str__(self) -> str:
        return "\n".join(map(str, self.args))

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows instead of a traceback: the message alone; `%xmode Verbose` asks for more."""
        shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
        if shell is not None and shell.InteractiveTB.mode == "Verbose":
            return list(shell.InteractiveTB.structured_traceback(type(self), self, self.__traceback__))
        return [f"FredError: {self}", *getattr(self, "__notes__", ())]


def quoted(value: object) -> str:
    """Return a value as messages quote it: its `repr`, or a description if Python cannot make one.

    >>> quoted("four")
    "'four'"
    >>> quoted(10**10_000)
    'a number with thousands of digits'
    """
    try:
        return repr(value)
    except ValueError:  # an integer too long for Python to print
        return "a number with thousands of digits"


def _printable(text: str) -> str:
    line = " ".join(filter(None, map(str.strip, text.splitlines())))  # messages of other libraries may have several lines
    if len(line) > _LONGEST_LINE:
        line = f"{line[: _LONGEST_LINE - 200]} ... {line[-150:]}"
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in line)


FredError.__module__ = "fred"  # users import it from `fred`, and tracebacks show that name


def lacks_memory(error: BaseException) -> bool:
    """Return True if an error means that there is not enough memory, as libraries and threads that cannot start say it."""
    return isinstance(error, MemoryError) or any(
        words in str(error) for words in ("failed to map segment", "can't start new thread")
    )


@contextmanager
def warnings_in_one_line() -> Iterator[None]:
    """Print FRED's warnings without the place in its code."""
    show = warnings.showwarning

    def show_line(message: Warning | str, category: type[Warning], *place: Any, **options: Any) -> None:
        if category is UserWarning:
            print(f"fred: {message}", file=sys.stderr)
        else:
            show(message, category, *place, **options)

    warnings.showwarning = show_line
    try:
        yield
    finally:
        warnings.showwarning = show
