"""`python -m fred`, and what `fred` is: a program that can be interrupted from its first line on."""

import os
import sys
from typing import NoReturn

from fred import interruption


def program() -> NoReturn:
    """The command line as a program, which says its exit code; after an interruption it ends at once.

    An import that was interrupted half-way can crash when Python tidies up at its end.
    """
    interruption.at_once()
    from fred.cli import main  # takes a moment

    code = main()
    if code in interruption.EXIT_CODES:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":  # not where another process imports what the first one ran
    program()
