"""The error about a trace with more than one possible reading, with options that make it readable."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from fred.base.errors import FredError

Options = Mapping[str, Any]  # of `fred.traces.reading.read`: columns, unit, mend
_MOST_PROBLEMS = 6  # most errors of one file that are resolved in advance
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
        return tuple(word for name, value in self.options.items() for word in (f"--{name}", _option_text(value)))


def resolve_problems(attempt: Callable[[Options], T], options: Options, doubt: Callable[[T], str]) -> T:
    """Return the result of an attempt; if it raises UnclearTraceError, raise one with options that resolve all problems.

    So a file with several unclear points gives one error, and the command in the error works: options are proposed only if they
    were tried and lead to a result without doubt.

    Args:
        attempt: function that reads with options.
        options: the user's own options.
        doubt: function that returns why a result cannot be right, or an empty text.

    Raises UnclearTraceError, also with the problems that remain after the first ones; FredError if no options are known to
    help. Other FredErrors pass unchanged.
    """
    try:
        return attempt(options)
    except UnclearTraceError as error:
        reasons: list[str] = []
        remedy = _find_remedy(attempt, error, options, _MOST_PROBLEMS, doubt, reasons)
        if remedy is None:
            raise FredError(*error.args, *reasons[:1]) from None
        problems, complete = remedy
        new = {name: value for name, value in complete.items() if options.get(name) != value}
        raise UnclearTraceError(*problems, remedies=[new], works=True) from None


def _find_remedy(
    attempt: Callable[[Options], T],
    error: UnclearTraceError,
    options: Options,
    depth: int,
    doubt: Callable[[T], str],
    reasons: list[str],
) -> tuple[tuple[str, ...], Options] | None:
    """Return all problems up to a readable trace, and the options for it; None if no remedy leads there.

    The search is depth-first. Each remedy may lead to a further unclear point, with remedies of its own; a chain longer than
    `depth` is given up. `reasons` collects why remedies fail, for the error if none helps.
    """
    for remedy in error.remedies if depth else ():
        attempted = merge_options(options, remedy)
        words = " ".join(UnclearTraceError(remedies=[remedy]).fix)
        try:
            reason = doubt(attempt(attempted))
        except UnclearTraceError as next_error:
            if solution := _find_remedy(attempt, next_error, attempted, depth - 1, doubt, reasons):
                return (*error.args, *solution[0]), solution[1]
        except FredError as failure:
            reasons.append(f"With {words}: {failure}")
        else:
            if not reason:
                return error.args, attempted
            reasons.append(f"With {words}: {reason}")
    return None


def merge_options(options: Options, overrides: Options) -> dict[str, Any]:
    """Merge options, of which the later take precedence; `columns` are merged column by column.

    >>> merge_options({"columns": {"iteration": "it"}}, {"columns": {"worker": "who"}, "unit": "ms"})
    {'columns': {'iteration': 'it', 'worker': 'who'}, 'unit': 'ms'}

    Args:
        options: options of `read`.
        overrides: options that take precedence.
    """
    merged = {**options, **overrides}
    if "columns" in options and "columns" in overrides:
        merged["columns"] = {**options["columns"], **overrides["columns"]}
    return merged


def _option_text(value: Any) -> str:
    return ",".join(f"{key}={entry}" for key, entry in value.items()) if isinstance(value, Mapping) else str(value)
