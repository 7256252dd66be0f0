"""`fred diagnose`: report from a trace how much slow workers cost, and what helps."""

import argparse
import json
from pathlib import Path

from fred.base import disk
from fred.base.errors import FredError, finite
from fred.base.progress import bars
from fred.commands import command_options, plan_for, trace_options
from fred.diagnosis import printed
from fred.diagnosis.findings import Diagnosis, diagnose
from fred.diagnosis.printed import print_diagnosis
from fred.diagnosis.ranking_tables import Answer, ranking_json, ranking_table, sentences
from fred.traces.doubts import refuse_doubtful

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
        from fred.commands import diagnose_for

        answer = diagnose_for.run(options, diagnosis, out)
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
        plan_for.aim(options)
    out: Path | None = options.out or (_OUT if options.task is not None else None)
    if out:
        scenario, *other_files = (out / name for name in _FILES)
        disk.check_together(scenario, other_files, printed.FIRST)
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
