"""`fred scenarios`: list the scenarios that come with FRED and what to look for in each, or print one."""

import argparse
import shutil
import sys
import textwrap

from fred.specification import shipped

_WIDTH = 32  # columns for the names
_AFTER = """
`fred run NAME` runs a scenario, `fred scenarios NAME` prints it, `fred new FILE --from NAME` copies it for you to edit.
quickstart and the scenarios in systems/ are small. Those of papers (backup-workers/, fasgd/, ...) take minutes to hours, and
most of them read your copy of MNIST from $FRED_DATA/mnist."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names the scenario to print."""
    parser.add_argument("name", nargs="?", help="print this scenario")


def run(options: argparse.Namespace) -> int:
    """Print all names, or one scenario. Raises FredError for an unknown name."""
    if options.name:
        print(shipped.file_of(options.name).read_text(encoding="utf-8"), end="")
        return 0
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000  # for programs, one line per scenario
    for name in shipped.names():
        text = textwrap.wrap(shipped.promise(name), max(width - _WIDTH, 40))
        print(f"{name:<{_WIDTH}}" + f"\n{'':<{_WIDTH}}".join(text))
    print(_AFTER)
    return 0
