"""`python -m studies.low_communication [--report]`: measure all cases (about half an hour on two cores), and write the page."""

import argparse

from studies.low_communication import page
from studies.low_communication.measure import measure


def main() -> None:
    """Measure, unless only the page is wanted; then write it."""
    parser = argparse.ArgumentParser(prog="python -m studies.low_communication", description=page.QUESTION)
    parser.add_argument("--report", action="store_true", help="measure nothing: the page from the last measurements")
    if not parser.parse_args().report:
        measure()
    print(f"wrote {page.write()}")


if __name__ == "__main__":
    main()
