"""`python -m studies.failures [--report]`: measure all systems, and write the page."""

from studies import command
from studies.failures import page
from studies.failures.measure import measure

if __name__ == "__main__":
    command.run("failures", page.QUESTION, measure, page.write)
