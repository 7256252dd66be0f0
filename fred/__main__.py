"""`python -m fred` and `fred`: a program that can be interrupted from its first line on."""

import sys
from typing import NoReturn

from fred.base import garbage, signals


def program() -> NoReturn:
    """Run the command line and exit with its code."""
    signals.end_at_once()
    garbage.collect_rarely()
    from fred.commands.cli import main  # takes a moment

    code = main()
    garbage.disable_collection()
    sys.exit(code)


if __name__ == "__main__":  # not where another process imports what the first one ran
    program()
