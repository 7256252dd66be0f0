"""The files of a diagnosis: the trace, its cluster, and the remedies as a scenario."""

import csv
import io
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from fred.diagnosis.findings import Diagnosis
from fred.diagnosis.remedies import Remedy
from fred.specification.text import written
from fred.traces.trace import Trace

TRACE, SCENARIO, CLUSTER, NUMBERS, PAGE = "trace.csv", "scenario.yaml", "cluster.yaml", "diagnosis.json", "report.html"
FIRST = "Written by `fred diagnose"  # identifies FRED's own files
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
    nodes = [] if trace.node_of is None else ["node"]
    names = None if trace.node_of is None else [_node(trace, int(number)) for number in trace.node_of]
    rows.writerow(["iteration", "worker", "seconds", *nodes])
    for iteration, times in enumerate(trace.seconds.tolist()):
        for worker, (name, seconds) in enumerate(zip(trace.workers, times, strict=True)):
            node = [] if names is None else [names[worker]]
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
    if trace.node_of is not None and (np.diff(trace.node_of) >= 0).all():
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
        f"{FIRST} {trace.source}`: the trace itself, its {trace.iterations:,} iterations in order, repeated.",
        "`fred fit` makes a similar cluster with random times.",
    )


def scenario(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return a timing-only scenario whose runs are the remedies that change no machine.

    Args:
        diagnosis: findings about the trace.
    """
    candidates = [diagnosis.every, *(gain.remedy for gain in diagnosis.gains)]
    runs = {name(remedy): _run(remedy.run) for remedy in candidates if remedy.run}
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
        f"{FIRST} {diagnosis.trace.source}`: the remedies that change no machine, each with the number of gradients recorded.",
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


def _run(settings: dict[str, Any]) -> dict[str, Any]:
    return settings | {"algorithm": {**settings["algorithm"], "learning_rate": _RATE}}
