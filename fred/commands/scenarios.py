"""`fred scenarios`: list the scenarios that come with FRED and what to look for in each, or print one."""

import argparse
import shutil
import sys
import textwrap

from fred.specification import shipped

_WIDTH = 32  # columns for the names
_AFTER = """
`fred run NAME` runs a scenario, `fred scenarios NAME` prints it, and
`fred new FILE --from NAME` copies it for you to edit. quickstart and systems/
are small. Scenarios of papers (backup-workers/, fasgd/, ...) take minutes to
hours; most of them read your copy of MNIST from $FRED_DATA/mnist."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names the scenario to print."""
    parser.add_argument("name", nargs="?", help="print this scenario")


def run(options: argparse.Namespace) -> int:
    """Print all names, or one scenario. Raises FredError for an unknown name."""
    if options.name:
        print(shipped.file_of(options.name).read_text(encoding="utf-8"), end="")
        return 0
    for name in shipped.names():
        print(entry(f"{name:<{_WIDTH}}", shipped.promise(name)))
    print(_AFTER)
    return 0


def entry(name: str, text: str) -> str:
    """Return an entry of a list: on a terminal the text is wrapped next to the name, for programs it is one line.

    Args:
        name: the name, padded to the width of its column.
        text: the description.
    """
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000
    lines = textwrap.wrap(text, max(width - len(name), 25), break_on_hyphens=False)
    return name + f"\n{'':<{len(name)}}".join(lines)
