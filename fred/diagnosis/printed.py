"""The output of `fred diagnose`: on a terminal, first screen, sentences and tables; and files with which to go on.

The page has the same tables. Their numbers are those of the JSON, rounded.
"""

import csv
import io
import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from fred.base.errors import percent
from fred.diagnosis.findings import Diagnosis, Gain
from fred.diagnosis.ranking_tables import Answer, print_ranking, sentences
from fred.diagnosis.remedies import Remedy
from fred.diagnosis.sentences import SCREEN, sections, wrapped
from fred.specification.text import written
from fred.traces.trace import Trace
from fred.views.table import NONE, Table, show, terminal

TRACE, SCENARIO, CLUSTER, NUMBERS, PAGE = "trace.csv", "scenario.yaml", "cluster.yaml", "diagnosis.json", "report.html"
MARK = "Written by `fred diagnose"  # begins files that a later `fred diagnose` may overwrite
_RATE = 0.1  # learning rate, which does not affect timing


def trace_text(trace: Trace) -> str:
    """Return the trace as FRED's long table, including all repairs.

    Args:
        trace: trace to write.

    >>> print(trace_text(Trace(np.array([[1.0, 2.5]]), ("a", "b"))), end="")
    iteration,worker,seconds
    0,a,1.0
    0,b,2.5
    """
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    node_heading = [] if trace.node_of is None else ["node"]
    node_names = None if trace.node_of is None else [_node(trace, int(number)) for number in trace.node_of]
    rows.writerow(["iteration", "worker", "seconds", *node_heading])
    for iteration, times in enumerate(trace.seconds.tolist()):
        for worker, (name, seconds) in enumerate(zip(trace.workers, times, strict=True)):
            node = [] if node_names is None else [node_names[worker]]
            rows.writerow([iteration, name, repr(seconds), *node])
    return text.getvalue()


def cluster(trace: Trace, file: str = TRACE) -> dict[str, Any]:
    """Return a cluster, as a scenario has it, that repeats the trace iteration by iteration.

    Args:
        trace: trace of the cluster.
        file: file of the trace; by default the one next to the scenario.

    >>> cluster(Trace(np.ones((1, 3)), tuple("abc"), node_of=np.array([0, 0, 1])))["nodes"]
    [2, 1]
    """
    compute = {"name": "trace", "file": file, "rows": "cycled"}
    sizes: dict[str, Sequence[int]] = {}
    if trace.node_of is not None and (np.diff(trace.node_of) >= 0).all():  # sizes are of nodes of successive workers
        sizes = {"nodes": np.unique(trace.node_of, return_counts=True)[1].tolist()}
    return {"workers": len(trace.workers), **sizes, "compute": compute}


def cluster_text(diagnosis: Diagnosis) -> str:
    """Return the text of the cluster's file.

    Args:
        diagnosis: findings about the trace.
    """
    trace = diagnosis.trace
    return written(
        {"cluster": cluster(trace)},
        f"{MARK} {trace.source}`: the trace itself, its {trace.iterations:,} iterations in order, repeated.",
        "`fred fit` makes a similar cluster with random times.",
    )


def scenario(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return a timing-only scenario whose runs are the remedies that change no machine.

    Args:
        diagnosis: findings about the trace.
    """
    candidates = [diagnosis.every, *(gain.remedy for gain in diagnosis.gains)]
    runs = {name(remedy): _complete_run(remedy.run) for remedy in candidates if remedy.run}
    gradients = len(diagnosis.trace.workers) * diagnosis.trace.iterations
    return {
        "title": f"What helps on the cluster of {diagnosis.trace.source}?",
        "cluster": cluster(diagnosis.trace),
        "stop": {"gradients": gradients},
        "runs": runs,
    }


def scenario_text(diagnosis: Diagnosis) -> str:
    """Return the text of the scenario's file.

    Args:
        diagnosis: findings about the trace.
    """
    return written(
        scenario(diagnosis),
        f"{MARK} {diagnosis.trace.source}`: the remedies that change no machine, each with the number of gradients recorded.",
        "Look for: the time for the same number of gradients (virtual s). Add a `task` to train a model.",
    )


def _node(trace: Trace, number: int) -> str:
    return trace.nodes[number] if trace.nodes else str(number)


def name(remedy: Remedy) -> str:
    """Return the run name of a remedy.

    Args:
        remedy: remedy that a scenario can express.

    >>> from fred.diagnosis.remedies import backups
    >>> name(backups(np.ones((1, 4)), 2))
    '2-backup-workers'
    """
    return re.sub("[^a-z0-9]+", "-", remedy.name.partition(" (")[0].lower()).strip("-")


def _complete_run(settings: dict[str, Any]) -> dict[str, Any]:
    return settings | {"algorithm": {**settings["algorithm"], "learning_rate": _RATE}}


_NAME_LETTERS = 28  # of a line of a name: leaves room for the other columns in a terminal of 80
_COMMANDS = ("fred ", "python ")  # beginnings of lines that are for copying, and stay whole


def tables(diagnosis: Diagnosis) -> Iterator[Table]:
    """Yield the tables: slow workers and nodes, if there are any, and all remedies.

    Args:
        diagnosis: findings about a trace.
    """
    if diagnosis.slowness.slow:
        yield _slow_table(diagnosis)
    yield _remedy_table(diagnosis)


def _slow_table(diagnosis: Diagnosis) -> Table:
    rows: list[tuple[str, ...]] = [
        (
            _wrapped(slow.name),
            slow.pattern,
            f"{slow.times:.2f}",
            _share(slow.share),
            str(len(slow.spells)) if slow.spells else NONE,
            f"{slow.slowdown_alone:.2f}",
            _share(slow.loss_share),
        )
        for slow in diagnosis.slowness.slow
    ]
    slowness = diagnosis.slowness
    # If workers are slow in turn, without a gap, every round costs the same, and there are no spells of the cluster to count.
    in_turn = any(slow.spells for slow in slowness.slow) and not slowness.spells
    spell_count = NONE if in_turn else str(len(slowness.spells))
    rows.append(("all workers", "", "", "", spell_count, f"{slowness.slowdown:.2f}", "100 %"))
    return Table(
        ("who", "when", "times", "of the time", "spells", "slowdown", "of the loss"),
        rows,
        "Who is slow",
        "times: slower than the others; slowdown: of all rounds, if only these were slow; of the loss: part that goes if only "
        "these are repaired, which may add up to more or less than 100 %",
        words=2,
    )


def _remedy_table(diagnosis: Diagnosis) -> Table:
    rows = [_remedy_row(gain) for gain in diagnosis.gains]
    bound = diagnosis.bound
    rows.append((_wrapped(bound.remedy.name), _gain(bound), _interval(bound), "", ""))
    return Table(
        ("remedy", "gain", "95 % interval", "dropped", "data of"),
        rows,
        "What helps",
        f"gain: gradients per second, relative to waiting for all ({diagnosis.every.played.throughput():,.4g}), in the same "
        f"{diagnosis.rounds} rounds; data of: effective number of workers whose data are used, and how many are excluded: "
        "fewer than 5 % of their gradients are used",
    )


def _remedy_row(gain: Gain) -> tuple[str, ...]:
    fair = gain.fairness
    excluded = f", {len(fair.excluded)} excluded" if fair.excluded else ""
    return _wrapped(gain.remedy.name), _gain(gain), _interval(gain), _share(fair.dropped), f"{fair.effective:.1f}{excluded}"


def _wrapped(name: str) -> str:
    return "\n".join(textwrap.wrap(name, _NAME_LETTERS))


def _gain(gain: Gain) -> str:
    return f"{percent(gain.ratio.value)} %"


def _interval(gain: Gain) -> str:
    return f"{percent(gain.ratio.low)} to {percent(gain.ratio.high)} %" if gain.ratio.has_interval else NONE


def _share(share: float) -> str:
    return NONE if math.isnan(share) else f"{100 * share:.3g} %"


def print_diagnosis(diagnosis: Diagnosis, answer: Answer | None, out: Path | None) -> None:
    """Print the diagnosis.

    Args:
        diagnosis: findings about a trace.
        answer: time to a target with each remedy, if that was asked for.
        out: folder with all files, if there is one.
    """
    console = terminal()
    parts = sections(diagnosis)
    remarks = [Text(line) for line in diagnosis.trace.remarks]  # how the trace was read; below a doubt, which is more urgent
    if not diagnosis.doubt:
        console.print(*remarks, sep="\n", end="\n" if remarks else "")
    for heading in SCREEN:
        _print_part(heading, parts.pop(heading), console)
    console.print()
    if diagnosis.doubt:
        console.print(*remarks, sep="\n")
        return
    more_sections = {"How soon": sentences(answer)} if answer else {}
    for heading, lines in {**parts, **more_sections}.items():
        console.print(Text(heading, style="bold"))
        for line in lines:
            console.print(Text("\n".join(wrapped(line, console.width))))
        console.print()
    for table in tables(diagnosis):
        show(table, console)
    if answer is not None and answer.ranking.places:
        print_ranking(answer, console)
    where = f"Written: {out}/report.html; `fred run {out}/scenario.yaml` runs the remedies that change no machine."
    console.print(Text(where if out else "Add --out DIR for an HTML page and a scenario that runs these remedies."))


def _print_part(heading: str, lines: Sequence[str], console: Console) -> None:
    """Print a part of the first screen, with its heading in a column on the left."""
    label_width = max(map(len, SCREEN)) + 2
    for number, line in enumerate(lines):
        label = Text((heading if number == 0 else "").ljust(label_width), style="bold")
        if line.startswith(_COMMANDS):
            console.print(label + Text(line, style="not bold"), soft_wrap=True)
            continue
        for row, text in enumerate(wrapped(line, console.width - label_width)):
            console.print((label if row == 0 else Text(" " * label_width)) + Text(text, style="not bold"))
