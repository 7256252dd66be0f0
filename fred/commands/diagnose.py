"""`fred diagnose`: from a trace to one answer: what is lost, through whom, what helps, what that costs, how surely."""

import argparse
import json
from pathlib import Path
from typing import Any

from fred.commands import trace_options
from fred.commands.diagnosis_tables import print_diagnosis
from fred.diagnosis import files
from fred.diagnosis.answer import Diagnosis, diagnose
from fred.files import places
from fred.files.numbers import finite
from fred.process.progress import bars

FILES = ("scenario.yaml", "cluster.yaml", files.TRACE, "diagnosis.json", "report.html")  # what is written


def add_options(parser: argparse.ArgumentParser) -> None:
    """The trace, and what becomes of the answer."""
    trace_options.add_options(parser)
    parser.description = (
        "Say what a cluster loses to its slowest workers, who they are, what would help, what that costs, and how surely the "
        "trace tells it."
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help=f"folder for the answer, and for files that run: {', '.join(FILES)}"
    )
    parser.add_argument("--json", action="store_true", help="print all of it as JSON instead of sentences and tables")


def run(options: argparse.Namespace) -> int:
    """Read, diagnose, write, print. Raises FredError."""
    if options.out:
        _check_free(options.out)
    trace = trace_options.from_options(options)
    with bars() as show:
        found = diagnose(trace, show)
    if options.out:
        save(found, options.out)
    if options.json:
        print(_as_json(found))
    else:
        print_diagnosis(found, options.out)
    return 0


def save(found: Diagnosis, out: Path) -> None:
    """Write all files into a folder, which is made if need be. Raises FredError.

    Args:
        found: what a trace was found to say.
        out: the folder.
    """
    from fred.report.diagnosis import page

    texts = (files.scenario_text(found), files.cluster_text(found), files.trace_text(found.trace), _as_json(found) + "\n")
    for name, text in zip(FILES, (*texts, page(found)), strict=True):  # the scenario first, by which the others are known
        places.write(out / name, text.encode())


def _check_free(out: Path) -> None:
    """Refuse a folder that cannot be written, or whose files of these names are somebody's own. Raises FredError."""
    scenario, *others = (out / name for name in FILES)
    places.check_free(scenario, lambda beginning: beginning.startswith(f"# {files.FIRST}".encode()))
    for file in others:
        places.check_free(file, lambda _: scenario.exists())


def _as_json(found: Diagnosis) -> str:
    told: dict[str, Any] = found.json()
    return json.dumps(finite(told), indent=2, allow_nan=False)
