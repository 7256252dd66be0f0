"""`python -m studies.asked [--report]`: measure all systems, and write the page."""

from studies.asked.page import draw, text
from studies.asked.setup import COMPARISON, STUDY

if __name__ == "__main__":
    STUDY.run(COMPARISON.measure, text, draw)
