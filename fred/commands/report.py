"""`fred report`: write the HTML report of a result folder."""

import argparse
from pathlib import Path


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("folder", type=Path, help="result folder")
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help="output file (default: report.html in the folder)")


def run(options: argparse.Namespace) -> int:
    """Write the report and print its path. Raises FredError."""
    from fred.results.folder import add_report

    print(f"report: {add_report(options.folder, options.out)}")
    return 0
