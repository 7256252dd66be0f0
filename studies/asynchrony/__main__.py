"""`python -m studies.asynchrony [--report]`: measure all cases (about an hour on one core), and write the page."""

from studies import command
from studies.asynchrony import page
from studies.asynchrony.measure import measure

if __name__ == "__main__":
    command.run("asynchrony", page.STUDY.question, measure, page.write)
