"""Options that several commands have: `-q`, `--jobs`, pairs of names and values. They load no NumPy, as `--help` needs none."""

import argparse

from fred.base.errors import FredError
from fred.base.process import cores


def add_quiet(parser: argparse.ArgumentParser, writes: bool = True) -> None:
    """Add the option `-q`, which hides progress and, if files are written, tables.

    Args:
        parser: parser of a command.
        writes: True if the command can write files, whose place is then all that it prints.
    """
    help_ = "print no progress and, of files, only the place" if writes else "print no progress"
    parser.add_argument("-q", "--quiet", action="store_true", help=help_)


def parse_jobs(text: str) -> int:
    """Return the number of worker processes that `--jobs` asks for.

    >>> parse_jobs("2"), parse_jobs("all") >= 1
    (2, True)
    """
    if text == "all":
        return cores()
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"found {text!r}; expected a number of processes, or `all`")
    return int(text)


def parse_pairs(option: str, text: str, example: str) -> dict[str, str]:
    """Return the pairs of an option, by the name before the equals sign. Raises FredError.

    Args:
        option: the option, for the message.
        text: pairs, separated by commas.
        example: pairs that are valid, for the message.

    >>> parse_pairs("--values", "nodes=8, operation=allreduce", "nodes=4")
    {'nodes': '8', 'operation': 'allreduce'}
    """
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(name and value for name, _, value in pairs):
        raise FredError(f"{option} {text}: expected NAME=VALUE, separated by commas, such as {example}")
    names = [name.strip() for name, _, _ in pairs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise FredError(f"{option} {text}: `{twice[0]}` has two values; expected one, such as {example}")
    return {name.strip(): value.strip() for name, _, value in pairs}
