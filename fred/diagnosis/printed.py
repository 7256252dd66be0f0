"""The output of `fred diagnose`: first sentences, then tables."""

from pathlib import Path

from rich.text import Text

from fred.diagnosis import finding_tables
from fred.diagnosis.findings import Diagnosis
from fred.diagnosis.ranking_tables import Answer, print_ranking, sentences
from fred.diagnosis.sentences import sections
from fred.views.table import show, terminal


def print_diagnosis(found: Diagnosis, answer: Answer | None, out: Path | None) -> None:
    """Print the diagnosis.

    Args:
        found: findings about a trace.
        answer: time to a target with each remedy, if that was asked for.
        out: folder with all files, if there is one.
    """
    console = terminal()
    if found.doubt:
        for line in (*(line for lines in sections(found).values() for line in lines), *found.trace.said):
            console.print(Text(line))
        return
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
    console.print(Text(where if out else "Add --out DIR for an HTML page and a scenario that runs these remedies."))
