"""`python -m fred` and `fred`: a program that can be interrupted from its first line on."""

import sys
from typing import NoReturn

from fred.base import process


def program() -> NoReturn:
    """Run the command line and exit with its code."""
    process.end_at_once()
    process.collect_rarely()
    from fred.commands.cli import main  # takes a moment

    code = main()
    process.disable_collection()
    sys.exit(code)


if __name__ == "__main__":  # not where another process imports what the first one ran
    program()
