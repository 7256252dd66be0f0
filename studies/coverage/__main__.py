"""`python -m studies.coverage [--report]`: measure (six minutes on one core), and write the page."""

from studies.coverage.measure import STUDY, measure
from studies.coverage.page import text

if __name__ == "__main__":
    STUDY.run(measure, text)
