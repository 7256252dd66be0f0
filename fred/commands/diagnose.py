"""`fred diagnose`: report from a trace how much slow workers cost, and what helps; with `--for TASK`, how soon to a target."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fred.base import disk
from fred.base.errors import FredError, finite
from fred.base.progress import bars
from fred.cluster.cluster import Cluster
from fred.commands import command_options, plan_for, trace_options
from fred.diagnosis import printed
from fred.diagnosis.findings import Diagnosis, diagnose
from fred.diagnosis.printed import print_diagnosis
from fred.diagnosis.question import RATE, Candidate, Question
from fred.diagnosis.ranking import doubts, ranked
from fred.diagnosis.ranking_tables import Answer, ranking_json, ranking_table, sentences
from fred.diagnosis.remedies import Remedy
from fred.specification.loading import load
from fred.specification.text import written
from fred.traces.doubts import refuse_doubtful

POINTS = 6  # learning rates of each system
_SPAN = 5.0  # learning rates range from 1/5 of the usual one to 5 times it
_KINDS = ("backup", "deadline", "rule", "local", "asynchronous")
_NO_NETWORK = "the trace has no network: messages take no time here"


def rank_remedies(options: argparse.Namespace, diagnosis: Diagnosis, out: Path) -> Answer:
    """Simulate the remedies on the trace until they reach the target, and return their ranking. Raises FredError.

    Each remedy is tuned over the same number of learning rates.

    Args:
        options: options of the command line.
        diagnosis: the findings about the trace.
        out: folder that holds the trace; the scenario and the runs are written there.
    """
    trace_file = str((out / printed.TRACE).resolve())  # absolute; in the scenario that is written, it is a neighbour
    cluster = Cluster.model_validate(printed.cluster(diagnosis.trace, trace_file))
    # A trace has neither a task nor a budget, so the command line must give the task.
    question = plan_for.build_question(options, cluster, default=plan_for.NO_AIM, budget=None)
    remedies = _select_remedies(diagnosis)
    file = _write_scenario(question, remedies, diagnosis, out)
    result = plan_for.run_scenario(load(file), out, file, options)
    candidates = [Candidate(printed.name(remedy), algorithm="") for remedy in remedies]
    ranking = ranked(result, candidates, question.measure)
    notes = [*doubts(ranking, question.evaluation_interval, question.budget), _NO_NETWORK]
    return Answer(diagnosis.trace.source, question, ranking, notes)


def _select_remedies(diagnosis: Diagnosis) -> list[Remedy]:
    """Return the baseline, waiting for all, and the best remedy of each kind that needs no hardware change."""
    best = [
        max(gains, key=lambda gain: gain.ratio.value).remedy
        for kind in _KINDS
        if (gains := [gain for gain in diagnosis.gains if gain.remedy.kind == kind])
    ]
    return [diagnosis.every, *best]


def _write_scenario(question: Question, remedies: Sequence[Remedy], diagnosis: Diagnosis, out: Path) -> Path:
    """Write the scenario whose runs compare the remedies, and return its file."""
    source = diagnosis.trace.source
    title = f"Which remedy reaches {question.aim} first on the cluster of {source}?"
    runs = {printed.name(remedy): _sweep(remedy, question.rate, len(diagnosis.trace.workers)) for remedy in remedies}
    document = {"title": title, **question.parts, "cluster": printed.cluster(diagnosis.trace), "runs": runs}
    heading = f"{printed.MARK} {source}`: {question.aim} within {question.budget:g} s, on the recorded times."
    file = out / printed.SCENARIO
    disk.write(file, written(document, heading, "`fred run` runs it, `fred show` prints it again.").encode())
    return file


def _sweep(remedy: Remedy, rate: float, workers: int) -> dict[str, Any]:
    """Return a remedy's run, swept over learning rates around the usual one.

    With asynchronous workers every gradient is an update, so their usual rate is divided by the number of workers.

    Args:
        remedy: the remedy.
        rate: learning rate of synchronous SGD.
        workers: number of workers.
    """
    usual_rate = rate / (workers if remedy.kind == "asynchronous" else 1)
    rates = {"first": float(f"{usual_rate / _SPAN:.3g}"), "last": float(f"{usual_rate * _SPAN:.3g}"), "number": POINTS}
    return {**(remedy.run or {}), "sweep": {"over": {RATE: rates}, "best": "seconds"}}


_FILES = (printed.SCENARIO, printed.CLUSTER, printed.TRACE, printed.NUMBERS, printed.PAGE)
_OUT = Path("results") / "diagnosis"
_RANKING_OPTIONS = ("target_error", "target_loss", "seeds", "budget", "learning_rate", "jobs")  # options that need --for


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the trace, the output, and the runs to a target."""
    trace_options.add_options(parser)
    parser.description = (
        "Report how much throughput a cluster loses to its slowest workers, which workers these are, what would help, "
        "what that costs, and how certain this is. With --for TASK, also report how soon each remedy reaches a target."
    )
    parser.add_argument(
        "-o",
        "--out",
        type=Path,
        metavar="DIR",
        help=f"folder for the report and for files to run: {', '.join(_FILES)} (default with --for: {_OUT})",
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON instead of sentences and tables")
    command_options.add_quiet(parser)
    plan_for.add_options(parser)


def run(options: argparse.Namespace) -> int:
    """Read the trace, diagnose it, run remedies if a task is given, then write and print. Raises FredError."""
    out = _check(options)
    trace = trace_options.read_trace(options)
    if options.task is not None:
        refuse_doubtful(trace)
    with bars(quiet=options.quiet) as show:
        diagnosis = diagnose(trace, show)
    answer = None
    if out:
        _write(diagnosis, out)
    if out and options.task is not None and not diagnosis.doubt:
        answer = rank_remedies(options, diagnosis, out)
    numbers = _as_json(diagnosis, answer)
    if out:
        from fred.diagnosis.answer_page import diagnosis_page

        disk.write(out / printed.NUMBERS, f"{numbers}\n".encode())
        sections = {"How soon": sentences(answer)} if answer else {}
        tables = [ranking_table(answer)] if answer and answer.ranking.places else []
        disk.write(out / printed.PAGE, diagnosis_page(diagnosis, sections, tables).encode())
    if options.json:
        print(numbers)
    elif out and options.quiet:
        print(out)
    else:
        print_diagnosis(diagnosis, answer, out)
    return 0


def _check(options: argparse.Namespace) -> Path | None:
    """Return the output folder, if any. Raises FredError for invalid options, before the trace is read."""
    plan_for.check(options)
    if options.task is None:
        misplaced = [name for name in _RANKING_OPTIONS if getattr(options, name) is not None]
        if misplaced:
            raise FredError(
                f"--{misplaced[0].replace('_', '-')} is for runs to a target: give --for TASK, such as --for digits"
            )
    else:
        plan_for.read_aim(options)  # refuses a task without a target
    out: Path | None = options.out or (_OUT if options.task is not None else None)
    if out:
        scenario, *other_files = (out / name for name in _FILES)
        disk.check_together(scenario, other_files, printed.MARK)
    return out


def _write(diagnosis: Diagnosis, out: Path) -> None:
    """Write the scenario, the cluster and the trace. Raises FredError.

    The scenario is written first: it marks the other files as FRED's, which may then be overwritten.
    """
    disk.write(out / printed.SCENARIO, printed.scenario_text(diagnosis).encode())
    disk.write(out / printed.CLUSTER, printed.cluster_text(diagnosis).encode())
    disk.write(out / printed.TRACE, printed.trace_text(diagnosis.trace).encode())


def _as_json(diagnosis: Diagnosis, answer: Answer | None) -> str:
    report = diagnosis.json() | ({"time_to_target": ranking_json(answer)} if answer else {})
    return json.dumps(finite(report), indent=2, allow_nan=False)
