"""`python -m studies.low_communication [--report]`: measure all cases (about ten minutes on one core), and write the page."""

from studies.low_communication.measure import STUDY, measure
from studies.low_communication.page import draw, text

if __name__ == "__main__":
    STUDY.run(measure, text, draw)
