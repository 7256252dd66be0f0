"""`fred report`: a result folder's page, to look at in a browser."""

import argparse
from pathlib import Path


def add_options(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    from fred.components import registry

    parser.add_argument("folder", type=Path, help="result folder")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="where the page is written (default: report.html in the folder)"
    )
    registry.add_import_option(parser, "the result")


def run(options: argparse.Namespace) -> int:
    """Write the page, and say where it is."""
    from fred.components import registry
    from fred.results.folder import add_report

    registry.allow_import(options.imports)
    print(f"report: {add_report(options.folder, options.out)}")
    return 0
