"""`python -m studies.failures [--report]`: measure all systems, and write the page."""

from studies.failures.page import draw, text
from studies.failures.setup import STUDY, measure

if __name__ == "__main__":
    STUDY.run(measure, text, draw)
