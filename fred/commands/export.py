"""`fred export`: write a run of a result in the format of another program."""

import argparse
from pathlib import Path

from fred.base import disk
from fred.base.errors import FredError
from fred.components.component import NANOSECONDS
from fred.outcomes.outcome import Outcome
from fred.results.folder import load_result
from fred.results.result import Result
from fred.views.packets import HEAD
from fred.views.perfetto import Part, trace


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the run, its part, and the output file."""
    parser.description = (
        "Write every worker's activities, every message and every update as a trace for https://ui.perfetto.dev: "
        "a timeline to zoom, search and query by SQL. The file stays on this machine: the page reads it in the browser."
    )
    parser.add_argument("folder", type=Path, help="result folder")
    parser.add_argument("--only", metavar="RUN", help="export the run of this name; needed if there are several")
    parser.add_argument("--seed", type=int, metavar="N", help="export the run with this seed; needed if there are several")
    parser.add_argument("--begin", type=float, metavar="SECONDS", help="start, in virtual time (default: the start of the run)")
    parser.add_argument("--end", type=float, metavar="SECONDS", help="end, in virtual time (default: the end of the run)")
    parser.add_argument(
        "-o", "--out", type=Path, metavar="FILE", help="output file (default: FOLDER.RUN.seed-N.pftrace, next to the folder)"
    )


def run(options: argparse.Namespace) -> int:
    """Read the result, write the trace, and print its path. Raises FredError."""
    outcome = _select_outcome(load_result(options.folder), options)
    out = options.out or _default_path(options.folder, outcome)
    disk.check_free(out, lambda beginning: beginning.startswith(HEAD))
    content = trace(_part(outcome, options))
    disk.write(out, content)
    print(f"{out}: {len(content) / 1e6:.1f} MB; open it with https://ui.perfetto.dev")
    return 0


def _default_path(folder: Path, outcome: Outcome) -> Path:
    """Return the default path of a run's trace: next to the result folder, which may hold only the result."""
    name = f"{folder.resolve().name}.{outcome.name}.seed-{outcome.seed}.pftrace"
    return folder.parent / name.replace("/", "-")


def _select_outcome(result: Result, options: argparse.Namespace) -> Outcome:
    """Return the run with the requested name and seed, or the only one. Raises FredError."""
    names = list(dict.fromkeys(outcome.name for outcome in result.outcomes))
    if options.only is None and len(names) > 1:
        raise FredError(f"{options.folder} has {len(names)} runs; choose one with --only: {', '.join(names)}")
    name = options.only or names[0]
    seeds = [outcome.seed for outcome in result.outcomes if outcome.name == name]
    if options.seed is None and len(seeds) > 1:
        raise FredError(f"run `{name}` has {len(seeds)} seeds; choose one with --seed: {', '.join(map(str, seeds))}")
    outcome = result.outcome(name, options.seed)
    if not outcome.has_clock:
        raise FredError(f"run `{name}` has no clock, so it has no timeline")
    return outcome


def _part(outcome: Outcome, options: argparse.Namespace) -> Part:
    """Return the requested part of the run. Raises FredError for an empty or invalid interval."""
    schedule = outcome.schedule
    last = schedule.end_ns / NANOSECONDS
    begin, end = options.begin or 0.0, last if options.end is None else options.end
    if not 0 <= begin < min(end, last):  # also False for NaN
        raise FredError(
            f"--begin {begin:g} --end {end:g}: expected an interval of virtual time, in s; "
            f"run `{outcome.name}` lasts from 0 to {last:g}"
        )
    times = round(begin * NANOSECONDS), min(round(min(end, last) * NANOSECONDS), schedule.end_ns)
    return Part(schedule, f"{outcome.name}, seed {outcome.seed}", outcome.run.cluster.node_of, *times)
