"""The one error a user can cause."""

_LONGEST_LINE = 1000  # characters


class FredError(Exception):
    """Something the user asked for cannot be done; the message says what, where, what was expected and what to do.

    One line for each thing that is wrong. The command line prints them and exits with code 2; no traceback, nothing written.
    What cannot be printed is escaped, and a line that quotes too much is shortened.

    Args:
        problems: what is wrong, a sentence each; `str` of the error has them a line each.

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


def quoted(value: object) -> str:
    """A value as a message quotes it: `repr`, or words where Python has none.

    >>> quoted("four")
    "'four'"
    >>> quoted(10**10_000)
    'a number with thousands of digits'
    """
    try:
        return repr(value)
    except ValueError:  # an integer beyond what Python writes out
        return "a number with thousands of digits"


def _printable(text: str) -> str:
    line = " ".join(filter(None, map(str.strip, text.splitlines())))  # other libraries' errors may have several
    if len(line) > _LONGEST_LINE:
        line = f"{line[: _LONGEST_LINE - 200]} ... {line[-150:]}"
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in line)


FredError.__module__ = "fred"  # where users import it from, and what tracebacks show
