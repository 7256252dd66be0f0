"""The tables of a diagnosis for the terminal and the page: the numbers of its JSON, rounded.

The output of `fred diagnose`: the first screen, then more sentences, then tables.
"""

import math
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from fred.base.words import percent
from fred.diagnosis.findings import Diagnosis, Gain
from fred.diagnosis.ranking_tables import Answer, print_ranking, sentences
from fred.diagnosis.sentences import SCREEN, sections, wrapped
from fred.views.table import NONE, Table, show, terminal

_NAME = 28  # letters of a line of a remedy's name


def of(found: Diagnosis) -> Iterator[Table]:
    """Yield the tables: slow workers and nodes, if there are any, and all remedies.

    Args:
        found: findings about a trace.
    """
    if found.slowness.slow:
        yield _slow(found)
    yield _remedies(found)


def _slow(found: Diagnosis) -> Table:
    rows: list[tuple[str, ...]] = [
        (
            _wrapped(each.name),
            each.pattern,
            f"{each.times:.2f}",
            _share(each.share),
            str(len(each.spells)) if each.spells else NONE,
            f"{each.alone:.2f}",
            _share(each.lost),
        )
        for each in found.slowness.slow
    ]
    lost = found.slowness
    some = any(each.spells for each in lost.slow)
    number = NONE if some and not lost.spells else str(len(lost.spells))  # named ones are slow in turn: a round costs the same
    rows.append(("all workers", "", "", "", number, f"{lost.slowdown:.2f}", "100 %"))
    return Table(
        ("who", "when", "times", "of the time", "spells", "slowdown", "of the loss"),
        rows,
        "Who is slow",
        "times: slower than the others; slowdown: of all rounds, if only these were slow; of the loss: part that goes if only "
        "these are repaired, which may add up to more or less than 100 %",
        words=2,
    )


def _remedies(found: Diagnosis) -> Table:
    rows = [_row(each, found) for each in found.gains]
    bound = found.bound
    rows.append((_wrapped(bound.remedy.name), _gain(bound), _interval(bound), "", ""))
    return Table(
        ("remedy", "gain", "95 % interval", "dropped", "data of"),
        rows,
        "What helps",
        f"gain: gradients per second, relative to waiting for all ({found.every.played.throughput():,.4g}), in the same "
        f"{found.rounds} rounds; data of: effective number of workers whose data are used, and how many are excluded: fewer "
        "than 5 % of their gradients are used",
    )


def _row(each: Gain, found: Diagnosis) -> tuple[str, ...]:
    fair = each.fairness
    excluded = f", {len(fair.excluded)} excluded" if fair.excluded else ""
    return _wrapped(each.remedy.name), _gain(each), _interval(each), _share(fair.dropped), f"{fair.effective:.1f}{excluded}"


def _wrapped(name: str) -> str:
    """Return a name in lines that leave room for the other columns in a terminal of 80."""
    return "\n".join(textwrap.wrap(name, _NAME))


def _gain(each: Gain) -> str:
    return f"{percent(each.ratio.value)} %"


def _interval(each: Gain) -> str:
    return f"{percent(each.ratio.low)} to {percent(each.ratio.high)} %" if each.ratio.has_interval else NONE


def _share(share: float) -> str:
    return NONE if math.isnan(share) else f"{100 * share:.3g} %"


_COMMANDS = ("fred ", "python ")  # beginnings of lines that are for copying, and stay whole


def print_diagnosis(found: Diagnosis, answer: Answer | None, out: Path | None) -> None:
    """Print the diagnosis.

    Args:
        found: findings about a trace.
        answer: time to a target with each remedy, if that was asked for.
        out: folder with all files, if there is one.
    """
    console = terminal()
    parts = sections(found)
    readings = [Text(line) for line in found.trace.said]
    if not found.doubt:
        console.print(*readings, sep="\n", end="\n" if readings else "")
    for heading in SCREEN:
        _print_part(heading, parts.pop(heading), console)
    console.print()
    if found.doubt:
        console.print(*readings, sep="\n")
        return
    more = {"How soon": sentences(answer)} if answer else {}
    for heading, lines in {**parts, **more}.items():
        console.print(Text(heading, style="bold"))
        for line in lines:
            console.print(Text("\n".join(wrapped(line, console.width))))
        console.print()
    for table in of(found):
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
