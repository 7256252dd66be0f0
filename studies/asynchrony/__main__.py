"""`python -m studies.asynchrony [--report]`: measure all cases (about three hours on one core), and write the page."""

from studies.asynchrony.figure import draw
from studies.asynchrony.measure import STUDY, measure
from studies.asynchrony.page import text

if __name__ == "__main__":
    STUDY.run(measure, text, draw)
