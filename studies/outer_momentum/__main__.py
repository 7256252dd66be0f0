"""`python -m studies.outer_momentum [--report]`: measure all cases (about an hour on two cores), and write the page."""

import argparse

from studies.outer_momentum import page
from studies.outer_momentum.measure import measure


def main() -> None:
    """Measure, unless only the page is wanted; then write it."""
    parser = argparse.ArgumentParser(prog="python -m studies.outer_momentum", description=page.QUESTION)
    parser.add_argument("--report", action="store_true", help="measure nothing: the page from the last measurements")
    if not parser.parse_args().report:
        measure()
    print(f"wrote {page.write()}")


if __name__ == "__main__":
    main()
