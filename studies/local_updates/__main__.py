"""`python -m studies.local_updates [--report]`: make all experiments (about an hour on one core), and write the page."""

from studies import command
from studies.local_updates import page
from studies.local_updates.measure import measure

if __name__ == "__main__":
    command.run("local_updates", page.QUESTION, measure, page.write)
