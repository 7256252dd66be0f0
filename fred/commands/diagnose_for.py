"""`fred diagnose TRACE --for TASK`: how soon each remedy reaches a target, on the recorded times."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fred.base import disk
from fred.cluster.cluster import Cluster
from fred.commands import plan_for
from fred.diagnosis import printed, question
from fred.diagnosis.findings import Diagnosis
from fred.diagnosis.question import RATE, Candidate, Question
from fred.diagnosis.ranking import doubts, ranked
from fred.diagnosis.ranking_tables import Answer
from fred.diagnosis.remedies import Remedy
from fred.specification.loading import load
from fred.specification.text import written

POINTS = 6  # learning rates of each system
_SPAN = 5.0  # learning rates range from 1/5 of the usual one to 5 times it
_KINDS = ("backup", "deadline", "rule", "local", "asynchronous")
_NO_NETWORK = "the trace has no network: messages take no time here"


def run(options: argparse.Namespace, diagnosis: Diagnosis, out: Path) -> Answer:
    """Return the ranking of remedies by time to the target. Raises FredError.

    Each remedy is tuned over the same number of learning rates.

    Args:
        options: options of the command line.
        diagnosis: the findings about the trace.
        out: folder that holds the trace; the scenario and the runs are written there.
    """
    trace_file = str((out / printed.TRACE).resolve())
    cluster = Cluster.model_validate(printed.cluster(diagnosis.trace, trace_file))
    query = plan_for.build_question(options, cluster, plan_for.NO_AIM, None)
    remedies = _select_remedies(diagnosis)
    document = _document(query, remedies, diagnosis)
    heading = f"{printed.FIRST} {diagnosis.trace.source}`: {query.aim} within {query.budget:g} s, on the recorded times."
    file = out / printed.SCENARIO
    disk.write(file, written(document, heading, "`fred run` runs it, `fred show` prints it again.").encode())
    result = plan_for.run_scenario(load(file), out, file, options)
    ranking = ranked(result, [Candidate(printed.name(remedy), "") for remedy in remedies], query.measure)
    notes = [*doubts(ranking, query.budget / question.LOOKS, query.budget), _NO_NETWORK]
    return Answer(diagnosis.trace.source, query, ranking, notes)


def _select_remedies(diagnosis: Diagnosis) -> list[Remedy]:
    """Return the baseline, waiting for all, and the best remedy of each kind that needs no hardware change."""
    best = [
        max(gains, key=lambda gain: gain.ratio.value).remedy
        for kind in _KINDS
        if (gains := [gain for gain in diagnosis.gains if gain.remedy.kind == kind])
    ]
    return [diagnosis.every, *best]


def _document(query: Question, remedies: Sequence[Remedy], diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the scenario whose runs compare the remedies."""
    title = f"Which remedy reaches {query.aim} first on the cluster of {diagnosis.trace.source}?"
    runs = {printed.name(remedy): _sweep(remedy, query, len(diagnosis.trace.workers)) for remedy in remedies}
    return {"title": title, **query.parts, "cluster": printed.cluster(diagnosis.trace), "runs": runs}


def _sweep(remedy: Remedy, query: Question, workers: int) -> dict[str, Any]:
    """Return a remedy's run, swept over learning rates around the usual one.

    With asynchronous workers every gradient is an update, so their usual rate is divided by the number of workers.
    """
    usual_rate = query.rate / (workers if remedy.kind == "asynchronous" else 1)
    rates = {"first": float(f"{usual_rate / _SPAN:.3g}"), "last": float(f"{usual_rate * _SPAN:.3g}"), "number": POINTS}
    return {**(remedy.run or {}), "sweep": {"over": {RATE: rates}, "best": "seconds"}}
