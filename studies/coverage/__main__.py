"""`python -m studies.coverage [--report]`: measure (six minutes on one core), and write the page."""

from studies import command
from studies.coverage import page
from studies.coverage.measure import measure

if __name__ == "__main__":
    command.run("coverage", page.QUESTION, measure, page.write)
