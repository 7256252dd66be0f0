"""The one error a user can cause."""

_LONGEST_LINE = 1000  # characters


class FredError(Exception):
    """Something the user asked for cannot be done; the message says what, where, what was expected and what to do.

    One line for each thing that is wrong. The command line prints them and exits with code 2; no traceback, nothing written.
    What cannot be printed is escaped, and a line that quotes too much is shortened.
    """

    def __init__(self, *problems: str):
        super().__init__(*map(_printable, problems))

    def __str__(self) -> str:
        return "\n".join(map(str, self.args))


def quoted(value: object) -> str:
    """A value as a message quotes it."""
    try:
        return repr(value)
    except ValueError:  # an integer beyond what Python writes out
        return "a number with thousands of digits"


def _printable(text: str) -> str:
    line = " ".join(filter(None, map(str.strip, text.splitlines())))  # other libraries' errors may have several
    if len(line) > _LONGEST_LINE:
        line = f"{line[: _LONGEST_LINE - 200]} ... {line[-150:]}"
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in line)
