"""`fred diagnose TRACE --for TASK`: how soon each remedy reaches a target, on the recorded times."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fred.base import places
from fred.cluster.cluster import Cluster
from fred.commands import plan_for
from fred.diagnosis import next_steps, question
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


def run(options: argparse.Namespace, found: Diagnosis, out: Path) -> Answer:
    """Return the ranking of remedies by time to the target. Raises FredError.

    Each remedy is tuned over the same number of learning rates.

    Args:
        options: options of the command line.
        found: the findings about the trace.
        out: folder that holds the trace; the scenario and the runs are written there.
    """
    own = str((out / next_steps.TRACE).resolve())
    cluster = Cluster.model_validate(next_steps.cluster(found.trace, own))
    asking = plan_for.asked(options, cluster, plan_for.NOTHING_GIVEN, None)
    tried = _tried(found)
    document = _document(asking, tried, found)
    about = f"{next_steps.FIRST} {found.trace.source}`: {asking.aim} within {asking.budget:g} s, on the recorded times."
    file = out / next_steps.SCENARIO
    places.write(file, written(document, about, "`fred run` runs it, `fred show` prints it again.").encode())
    result = plan_for.made(load(file), out, file, options)
    ranking = ranked(result, [Candidate(next_steps.name(each), "") for each in tried], asking.measure)
    said = [*doubts(ranking, asking.budget / question.LOOKS, asking.budget), _NO_NETWORK]
    return Answer(found.trace.source, asking, ranking, said)


def _tried(found: Diagnosis) -> list[Remedy]:
    """Return the baseline, waiting for all, and the best remedy of each kind that needs no hardware change."""
    best = [
        max(own, key=lambda each: each.ratio.value).remedy
        for kind in _KINDS
        if (own := [each for each in found.gains if each.remedy.kind == kind])
    ]
    return [found.every, *best]


def _document(asking: Question, tried: Sequence[Remedy], found: Diagnosis) -> dict[str, Any]:
    """Return the scenario whose runs compare the remedies."""
    title = f"Which remedy reaches {asking.aim} first on the cluster of {found.trace.source}?"
    runs = {next_steps.name(each): _swept(each, asking, len(found.trace.workers)) for each in tried}
    return {"title": title, **asking.parts, "cluster": next_steps.cluster(found.trace), "runs": runs}


def _swept(remedy: Remedy, asking: Question, workers: int) -> dict[str, Any]:
    """Return a remedy's run, swept over learning rates around the usual one.

    With asynchronous workers every gradient is an update, so their usual rate is divided by the number of workers.
    """
    centre = asking.rate / (workers if remedy.kind == "asynchronous" else 1)
    rates = {"first": float(f"{centre / _SPAN:.3g}"), "last": float(f"{centre * _SPAN:.3g}"), "number": POINTS}
    return {**(remedy.run or {}), "sweep": {"over": {RATE: rates}, "best": "seconds"}}
