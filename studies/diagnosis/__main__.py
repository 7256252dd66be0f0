"""`python -m studies.diagnosis`: measures (ten minutes on one core), and writes the page."""

import pandas as pd

from studies.diagnosis import measure, page


def main() -> None:
    """Measure, unless that is done, and write the page."""
    if not measure.FOUND.is_file():
        measure.measure().to_csv(measure.FOUND, index=False, float_format="%.5f")
    page.PAGE.write_text(page.text(pd.read_csv(measure.FOUND)), encoding="utf-8")


if __name__ == "__main__":
    main()
