"""The command of a study, `python -m studies.NAME [--report]`."""

import argparse
from collections.abc import Callable


def run(name: str, question: str, measure: Callable[[], object], write: Callable[[], str]) -> None:
    """Measure, unless only the page is wanted; then write it.

    Args:
        name: name of the study's folder.
        question: what the study asks, for the help.
        measure: makes all measurements.
        write: writes the page, and returns its path.
    """
    parser = argparse.ArgumentParser(prog=f"python -m studies.{name}", description=question)
    parser.add_argument("--report", action="store_true", help="measure nothing: the page from the last measurements")
    if not parser.parse_args().report:
        measure()
    print(f"wrote {write()}")
