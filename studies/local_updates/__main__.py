"""`python -m studies.local_updates [--report]`: make all experiments (about half an hour on one core), and write the page."""

from studies.local_updates.measure import STUDY, measure
from studies.local_updates.page import draw, text

if __name__ == "__main__":
    STUDY.run(measure, text, draw)
