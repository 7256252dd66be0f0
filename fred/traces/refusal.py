"""The refusal of a trace that can be read in more ways than one, with the options that would make it readable."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from fred.errors import FredError

Options = Mapping[str, Any]  # of `fred.traces.reading.read`: columns, unit, mend
_MOST = 6  # refusals of one file that are answered in advance
T = TypeVar("T")


class UnclearTraceError(FredError):
    """A trace that cannot be read until somebody says how.

    Args:
        problems: what is unclear, a sentence each.
        remedies: the options of `read` that would do, the most probable first.
        works: whether the first remedy was tried and leads to a trace.

    `options` is the first remedy, `fix` the same as words of a command line. The program prints the whole command.

    >>> UnclearTraceError("which unit?", remedies=[{"columns": {"iteration": "it"}, "unit": "ms"}]).fix
    ('--columns', 'iteration=it', '--unit', 'ms')
    """

    def __init__(self, *problems: str, remedies: Sequence[Options], works: bool = False):
        super().__init__(*problems)
        self.remedies, self.works = remedies, works

    @property
    def options(self) -> Options:
        """Return the options of `read` that would make it readable."""
        return self.remedies[0]

    @property
    def fix(self) -> tuple[str, ...]:
        """Return the same as words of a command line."""
        return tuple(word for name, value in self.options.items() for word in (f"--{name}", _text(value)))


def answered(attempt: Callable[[Options], T], given: Options) -> T:
    """Return what an attempt returns; where it is refused, refuse once, with options by which it would not be.

    So a file in which several things are unclear is refused once, and the command that the refusal names works.

    Args:
        attempt: reads with the options that it is given.
        given: the user's own options.

    Raises UnclearTraceError, with the problems that are left when the first ones are answered; other FredErrors as they come.
    """
    try:
        return attempt(given)
    except UnclearTraceError as error:
        found = _way(attempt, error, given, _MOST)
        problems, options = found or (error.args, merged(given, error.options))
        new = {name: value for name, value in options.items() if given.get(name) != value}
        raise UnclearTraceError(*problems, remedies=[new], works=found is not None) from None


def _way(
    attempt: Callable[[Options], Any], error: UnclearTraceError, given: Options, left: int
) -> tuple[tuple[str, ...], Options] | None:
    """Return all problems until the trace can be read, and the options by which it can; None where no remedy leads there."""
    for remedy in error.remedies if left else ():
        options = merged(given, remedy)
        try:
            attempt(options)
        except UnclearTraceError as later:
            if found := _way(attempt, later, options, left - 1):
                return (*error.args, *found[0]), found[1]
        except FredError:
            continue
        else:
            return error.args, options
    return None


def merged(given: Options, more: Options) -> dict[str, Any]:
    """Return options with others put over them; of `columns`, column by column.

    >>> merged({"columns": {"iteration": "it"}}, {"columns": {"worker": "who"}, "unit": "ms"})
    {'columns': {'iteration': 'it', 'worker': 'who'}, 'unit': 'ms'}

    Args:
        given: options of `read`.
        more: options that take precedence.
    """
    both = {**given, **more}
    if "columns" in given and "columns" in more:
        both["columns"] = {**given["columns"], **more["columns"]}
    return both


def _text(value: Any) -> str:
    return ",".join(f"{ours}={theirs}" for ours, theirs in value.items()) if isinstance(value, Mapping) else str(value)
