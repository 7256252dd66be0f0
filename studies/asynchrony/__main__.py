"""`python -m studies.asynchrony [--report]`: measure all cases (about three hours on one core), and write the page."""

from studies.asynchrony.page import draw, text
from studies.asynchrony.setup import STUDY, measure

if __name__ == "__main__":
    STUDY.run(measure, text, draw)
