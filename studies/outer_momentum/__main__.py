"""`python -m studies.outer_momentum [--report]`: measure all cases (about an hour on two cores), and write the page."""

from studies import command
from studies.outer_momentum import page
from studies.outer_momentum.measure import measure

if __name__ == "__main__":
    command.run("outer_momentum", page.QUESTION, measure, page.write)
