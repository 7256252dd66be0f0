"""Options that several commands have."""

import argparse

from fred.base.cores import cores


def add_quiet(parser: argparse.ArgumentParser, writes: bool = True) -> None:
    """Add the option `-q`, which hides progress and, if files are written, tables.

    Args:
        parser: parser of a command.
        writes: True if the command can write files, whose place is then all that it prints.
    """
    help_ = "print no progress and, of files, only the place" if writes else "print no progress"
    parser.add_argument("-q", "--quiet", action="store_true", help=help_)


def jobs(text: str) -> int:
    """Return the number of worker processes that `--jobs` asks for.

    >>> jobs("2"), jobs("all") >= 1
    (2, True)
    """
    if text == "all":
        return cores()
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"found {text!r}; expected a number of processes, or `all`")
    return int(text)
