"""`python -m studies.local_updates [--report]`: make all experiments (about an hour on one core), and write the page."""

import argparse

from studies.local_updates import page
from studies.local_updates.measure import measure


def main() -> None:
    """Measure, unless only the page is wanted; then write it."""
    parser = argparse.ArgumentParser(prog="python -m studies.local_updates", description=page.QUESTION)
    parser.add_argument("--report", action="store_true", help="measure nothing: the page from the last measurements")
    if not parser.parse_args().report:
        measure()
    print(f"wrote {page.write()}")


if __name__ == "__main__":
    main()
