"""The error about a trace with more than one possible reading, with options that make it readable."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from fred.base.errors import FredError

Options = Mapping[str, Any]  # of `fred.traces.reading.read`: columns, unit, mend
_MOST = 6  # most errors of one file that are resolved in advance
T = TypeVar("T")


class UnclearTraceError(FredError):
    """A trace that is unreadable without further options.

    Args:
        problems: unclear points, one sentence each.
        remedies: sets of options of `read` that would resolve them, most probable first.
        works: True if the first remedy was tried and gives a plausible trace.

    `options` is the first remedy, `fix` the same as words of a command line. The program prints the whole command.

    >>> UnclearTraceError("which unit?", remedies=[{"columns": {"iteration": "it"}, "unit": "ms"}]).fix
    ('--columns', 'iteration=it', '--unit', 'ms')
    """

    def __init__(self, *problems: str, remedies: Sequence[Options], works: bool = False):
        super().__init__(*problems)
        self.remedies, self.works = remedies, works

    @property
    def options(self) -> Options:
        """Return the options of `read` that make the trace readable."""
        return self.remedies[0]

    @property
    def fix(self) -> tuple[str, ...]:
        """Return these options as words of a command line."""
        return tuple(word for name, value in self.options.items() for word in (f"--{name}", _text(value)))


def answered(attempt: Callable[[Options], T], given: Options, doubt: Callable[[T], str]) -> T:
    """Return the result of an attempt; if it raises UnclearTraceError, raise one with options that resolve all problems.

    So a file with several unclear points gives one error, and the command in the error works. Options are proposed only if they
    have been tried and lead to a result without doubt.

    Args:
        attempt: function that reads with the given options.
        given: the user's own options.
        doubt: function that returns why a result cannot be right, or an empty text.

    Raises UnclearTraceError, also with the problems that remain after the first ones; FredError if no options are known to
    help. Other FredErrors pass unchanged.
    """
    try:
        return attempt(given)
    except UnclearTraceError as error:
        reasons: list[str] = []
        way = _way(attempt, error, given, _MOST, doubt, reasons)
        if way is None:
            raise FredError(*error.args, *reasons[:1]) from None
        new = {name: value for name, value in way[1].items() if given.get(name) != value}
        raise UnclearTraceError(*way[0], remedies=[new], works=True) from None


def _way(
    attempt: Callable[[Options], T],
    error: UnclearTraceError,
    given: Options,
    left: int,
    doubt: Callable[[T], str],
    reasons: list[str],
) -> tuple[tuple[str, ...], Options] | None:
    """Return all problems up to a readable trace, and the options for it; None if no remedy leads there.

    `reasons` gets why the others do not.
    """
    for remedy in error.remedies if left else ():
        options = merged(given, remedy)
        words = " ".join(UnclearTraceError(remedies=[remedy]).fix)
        try:
            reason = doubt(attempt(options))
        except UnclearTraceError as later:
            if way := _way(attempt, later, options, left - 1, doubt, reasons):
                return (*error.args, *way[0]), way[1]
        except FredError as later:
            reasons.append(f"With {words}: {later}")
        else:
            if not reason:
                return error.args, options
            reasons.append(f"With {words}: {reason}")
    return None


def merged(given: Options, more: Options) -> dict[str, Any]:
    """Merge options, of which the later take precedence; `columns` are merged column by column.

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
