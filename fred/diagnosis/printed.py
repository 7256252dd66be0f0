"""What `fred diagnose` prints: the sentences first, then the tables."""

from pathlib import Path

from rich.text import Text

from fred.diagnosis import finding_tables
from fred.diagnosis.findings import Diagnosis
from fred.diagnosis.ranking_tables import Answer, print_ranking, sentences
from fred.diagnosis.sentences import sections
from fred.views.table import show, terminal


def print_diagnosis(found: Diagnosis, answer: Answer | None, out: Path | None) -> None:
    """Print the answer.

    Args:
        found: the findings about a trace.
        answer: how soon remedies reach a target, if that was asked.
        out: the folder that holds all of it, if there is one.
    """
    console = terminal()
    for line in found.trace.said:
        console.print(Text(line))
    more = {"How soon": sentences(answer)} if answer else {}
    for heading, lines in {**sections(found), **more}.items():
        console.print(Text(heading, style="bold"))
        for line in lines:
            console.print(Text(line))
        console.print()
    for table in finding_tables.of(found):
        show(table, console)
    if answer is not None and answer.ranking.places:
        print_ranking(answer, console)
    where = f"Written: {out}/report.html; `fred run {out}/scenario.yaml` runs the remedies that change no machine."
    console.print(Text(where if out else "With --out DIR: a page to look at, and a scenario that runs these remedies."))
