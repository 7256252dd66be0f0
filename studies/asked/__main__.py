"""`python -m studies.asked [--report]`: measure all systems, and write the page."""

from studies import command
from studies.asked import page
from studies.asked.measure import measure

if __name__ == "__main__":
    command.run("asked", page.QUESTION, measure, page.write)
