"""`python -m studies.low_communication [--report]`: measure all cases (about an hour on two cores), and write the page."""

from studies import command
from studies.low_communication import page
from studies.low_communication.measure import measure

if __name__ == "__main__":
    command.run("low_communication", page.QUESTION, measure, page.write)
