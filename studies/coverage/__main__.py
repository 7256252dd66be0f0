"""`python -m studies.coverage [--report]`: measure (six minutes on one core), and write the page."""

import argparse

from studies.coverage import page
from studies.coverage.measure import measure


def main() -> None:
    """Measure, unless only the page is wanted; then write it."""
    parser = argparse.ArgumentParser(prog="python -m studies.coverage", description=page.QUESTION)
    parser.add_argument("--report", action="store_true", help="measure nothing: write the page from the last measurements")
    if not parser.parse_args().report:
        measure()
    print(f"wrote {page.write()}")


if __name__ == "__main__":
    main()
