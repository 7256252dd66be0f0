"""`python -m reproductions [--report] [NAME ...]`: measure the named papers or all, or only report what was measured."""

import argparse
import importlib
import sys

from fred.errors import FredError

NAMES = ("psp", "wagma", "cutoff", "predictors", "fasgd")  # quick ones first


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m reproductions")
    parser.add_argument("names", nargs="*", choices=[[], *NAMES], help=f"which, of {', '.join(NAMES)} (default: all)")
    parser.add_argument("--report", action="store_true", help="write the report from the last measurements, measure nothing")
    options = parser.parse_args()
    try:
        for name in options.names or NAMES:
            module = importlib.import_module(f"reproductions.{name}")
            if not options.report:
                module.measure()
            print(f"wrote {module.report()}")
    except FredError as error:
        print(f"reproductions: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
