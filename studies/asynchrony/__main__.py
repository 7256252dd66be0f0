"""`python -m studies.asynchrony [--report]`: measure all cases (an hour or so on two cores), and write the page."""

import argparse

from studies.asynchrony import page
from studies.asynchrony.measure import measure


def main() -> None:
    """Measure, unless only the page is wanted; then write it."""
    parser = argparse.ArgumentParser(prog="python -m studies.asynchrony", description=page.QUESTION)
    parser.add_argument("--report", action="store_true", help="measure nothing: the page from the last measurements")
    if not parser.parse_args().report:
        measure()
    print(f"wrote {page.write()}")


if __name__ == "__main__":
    main()
