"""The one error a user can cause."""

_LONGEST_LINE = 1000  # characters


class FredError(Exception):
    """Something the user asked for cannot be done; the message says what, where, what was expected and what to do.

    The command line prints the message and exits with code 2; no traceback, nothing written. What cannot be printed is escaped,
    and a line that quotes too much is shortened.
    """

    def __init__(self, message: str):
        super().__init__("\n".join(map(_printable, message.split("\n"))))


def quoted(value: object) -> str:
    """A value as a message quotes it."""
    try:
        return repr(value)
    except ValueError:  # an integer beyond what Python writes out
        return "a number with thousands of digits"


def _printable(line: str) -> str:
    if len(line) > _LONGEST_LINE:
        line = f"{line[: _LONGEST_LINE - 200]} ... {line[-150:]}"
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in line)
