"""The output of `fred diagnose`: the first screen, then more sentences, then tables."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from fred.diagnosis import finding_tables
from fred.diagnosis.findings import Diagnosis
from fred.diagnosis.ranking_tables import Answer, print_ranking, sentences
from fred.diagnosis.sentences import SCREEN, sections, wrapped
from fred.views.table import show, terminal

_COMMANDS = ("fred ", "python ")  # beginnings of lines that are for copying, and stay whole


def print_diagnosis(found: Diagnosis, answer: Answer | None, out: Path | None) -> None:
    """Print the diagnosis.

    Args:
        found: findings about a trace.
        answer: time to a target with each remedy, if that was asked for.
        out: folder with all files, if there is one.
    """
    console = terminal()
    for line in found.trace.said:
        console.print(Text(line))
    parts = sections(found)
    for heading in SCREEN:
        _print_part(heading, parts.pop(heading), console)
    if found.doubt:
        return
    console.print()
    more = {"How soon": sentences(answer)} if answer else {}
    for heading, lines in {**parts, **more}.items():
        console.print(Text(heading, style="bold"))
        for line in lines:
            console.print(Text("\n".join(wrapped(line, console.width))))
        console.print()
    for table in finding_tables.of(found):
        show(table, console)
    if answer is not None and answer.ranking.places:
        print_ranking(answer, console)
    where = f"Written: {out}/report.html; `fred run {out}/scenario.yaml` runs the remedies that change no machine."
    console.print(Text(where if out else "Add --out DIR for an HTML page and a scenario that runs these remedies."))


def _print_part(heading: str, lines: Sequence[str], console: Console) -> None:
    """Print a part of the first screen, with its heading in a column on the left."""
    left = max(map(len, SCREEN)) + 2
    for number, line in enumerate(lines):
        label = Text((heading if number == 0 else "").ljust(left), style="bold")
        if line.startswith(_COMMANDS):
            console.print(label + Text(line, style="not bold"), soft_wrap=True)
            continue
        for row, text in enumerate(wrapped(line, console.width - left)):
            console.print((label if row == 0 else Text(" " * left)) + Text(text, style="not bold"))
