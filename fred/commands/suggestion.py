"""The corrected version of a command line that was refused."""

import shlex
from collections.abc import Sequence


def command(arguments: Sequence[str], fix: Sequence[str]) -> str:
    """Return the command line with some options replaced or added.

    Args:
        arguments: the words after `fred`.
        fix: the new options, each followed by its value.

    >>> command(["fit", "my times.csv", "--unit", "s"], ["--unit", "ms", "--mend", "drop"])
    "fred fit 'my times.csv' --unit ms --mend drop"
    """
    new = fix[::2]
    kept: list[str] = []
    words = iter(arguments)
    for word in words:
        name, given, _ = word.partition("=")
        if name.startswith("--") and len(name) > 2 and any(option.startswith(name) for option in new):
            if not given:
                next(words, None)  # its value
        else:
            kept.append(word)
    return shlex.join(["fred", *kept, *fix])
