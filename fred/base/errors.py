"""FredError, the error for everything that a user can correct; words and numbers in messages, titles and tables.

Lists of names, lines that do not break between a number and its noun, numbers that JSON can represent, and ratios in per cent.
"""

import math
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
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
    """Return text as one line, shortened in the middle, with escapes for characters that cannot be printed."""
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


def listed(names: Sequence[str]) -> str:
    """Return all names, separated by commas.

    Args:
        names: names, such as those of columns.

    >>> listed(["step", "rank"]), listed([])
    ('step, rank', 'none')
    """
    return ", ".join(names) or "none"


def briefly(names: Sequence[str], most: int = 4, separator: str = ", ", number: int = 0) -> str:
    """Return the first names, and the number of the others.

    Args:
        names: names, such as those of operations, or longer texts.
        most: maximum number of names shown.
        separator: text between two names.
        number: number of all names, if `names` has only the first ones.

    >>> briefly(["a", "b", "c"], most=2), briefly(["a = 1", "b = 2"], most=2, separator="; ", number=7)
    ('a, b and 1 more', 'a = 1; b = 2; and 5 more')
    """
    excess = max(len(names), number) - most
    suffix = f"{separator.rstrip(', ')} and {excess:,} more" if excess > 0 else ""
    return separator.join(names[:most]) + suffix


def unbroken(text: str) -> str:
    """Return text whose lines break before a number, not between the number and its noun.

    Args:
        text: such as a title.

    >>> unbroken("16 workers, 4 of them slow").replace("\\N{NO-BREAK SPACE}", "_")
    '16_workers, 4_of_them slow'
    """
    return re.sub(r"\b(\d[\d,.]*) (of )?(?=\w)", lambda match: match[0].replace(" ", "\N{NO-BREAK SPACE}"), text)


def finite(value: Any) -> Any:
    """Return the value with None in place of every number that is not finite.

    Args:
        value: mappings, lists and values that JSON knows.

    >>> finite({"a": [1.0, math.inf], "b": math.nan})
    {'a': [1.0, None], 'b': None}
    """
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def percent(times: float) -> str:
    """Return a ratio as a difference in per cent, with one decimal if it is small.

    Args:
        times: the ratio.
    >>> percent(1.25), percent(0.996), percent(1.0)
    ('+25', '-0.4', '+0')
    """
    difference = 100 * (times - 1)
    # No difference is `+0`: `+ 0.0` turns -0.0 into 0.0, and a small loss is rounded to `-0`.
    return f"{difference:+.1f}" if 0.05 <= abs(difference) < 10 else f"{difference + 0.0:+,.0f}".replace("-0", "+0")
