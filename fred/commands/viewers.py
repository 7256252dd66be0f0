"""Commands that only show results: one line for content that no run writes."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fred.base.errors import FredError

_VIEWERS = ("compare", "draw", "export", "report", "show")  # they run no code of a user


@contextmanager
def foreign_content_refused(arguments: Sequence[str]) -> Iterator[None]:
    """Raise FredError, in a `with` block, if one of these commands fails because of the content of a result, or of an encoding.

    Digests tell whether a file has changed, not who signed it. So a file with the right digest can have any content.

    Args:
        arguments: the command and its arguments; other commands raise what they raise.
    """
    try:
        yield
    except UnicodeEncodeError as error:  # of any command, whose output the terminal's encoding lacks
        raise FredError(f"the output has characters that {error.encoding} lacks: set PYTHONIOENCODING=utf-8") from error
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        if arguments[0] not in _VIEWERS or sys.flags.dev_mode:
            raise
        raise FredError(
            f"`fred {shlex.join(arguments)}` found other content than `fred run` writes ({type(error).__name__}: {error}): run "
            "the scenario again with `--fresh`; if the error remains, `python -X dev -m fred` shows its place in FRED"
        ) from error
