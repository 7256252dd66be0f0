"""`python -m studies.outer_momentum [--report]`: measure all cases (about an hour on two cores), and write the page."""

from studies.outer_momentum.measure import STUDY, measure
from studies.outer_momentum.page import draw, text

if __name__ == "__main__":
    STUDY.run(measure, text, draw)
