"""`fred export`: a run of a result in the format of another program."""

import argparse
from pathlib import Path

from fred.cluster.durations import NANOSECONDS
from fred.components import registry
from fred.errors import FredError
from fred.files import places
from fred.outcomes.outcome import Outcome
from fred.results.folder import load_result
from fred.results.result import Result
from fred.views.packets import HEAD
from fred.views.perfetto import Part, trace


def add_options(parser: argparse.ArgumentParser) -> None:
    """Which run, which part of it, and where to."""
    parser.description = (
        "Write what every worker did when, and every message and update, as a trace that https://ui.perfetto.dev opens: "
        "a timeline to zoom, search and query by SQL. The file stays on this machine: the page reads it in the browser."
    )
    parser.add_argument("folder", type=Path, help="result folder")
    parser.add_argument("--perfetto", action="store_true", required=True, help="the format, the only one so far")
    parser.add_argument("--run", dest="name", metavar="NAME", help="which run, where there are several")
    parser.add_argument("--seed", type=int, metavar="N", help="with which seed, where there are several")
    parser.add_argument("--begin", type=float, metavar="SECONDS", help="from when on, in virtual time (default: the start)")
    parser.add_argument("--end", type=float, metavar="SECONDS", help="until when (default: the end of the run)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: FOLDER.RUN.seed-N.pftrace, beside the folder")
    registry.add_import_option(parser, "the result")


def run(options: argparse.Namespace) -> int:
    """Read, convert, write, say where. Raises FredError."""
    registry.allow_import(options.imports)
    outcome = _chosen(load_result(options.folder), options)
    out = options.out or _beside(options.folder, outcome)
    places.check_free(out, lambda beginning: beginning.startswith(HEAD))
    content = trace(_part(outcome, options))
    places.write(out, content)
    print(f"{out}: {len(content) / 1e6:.1f} MB; open it with https://ui.perfetto.dev")
    return 0


def _beside(folder: Path, outcome: Outcome) -> Path:
    """Where the trace of a run goes if nobody says it: not into the folder, which is the result's own."""
    name = f"{folder.resolve().name}.{outcome.name}.seed-{outcome.seed}.pftrace"
    return folder.parent / name.replace("/", "-")


def _chosen(result: Result, options: argparse.Namespace) -> Outcome:
    """The run with the seed that was asked for, or the only one."""
    names = list(dict.fromkeys(each.name for each in result.outcomes))
    if options.name is None and len(names) > 1:
        raise FredError(f"{options.folder} has {len(names)} runs; choose one with --run: {', '.join(names)}")
    name = options.name or names[0]
    seeds = [each.seed for each in result.outcomes if each.name == name]
    if options.seed is None and len(seeds) > 1:
        raise FredError(f"run `{name}` has {len(seeds)} seeds; choose one with --seed: {', '.join(map(str, seeds))}")
    outcome = result.outcome(name, options.seed)
    if not outcome.run.protocol.has_clock:
        raise FredError(f"run `{name}` has no clock, so it has no timeline")
    return outcome


def _part(outcome: Outcome, options: argparse.Namespace) -> Part:
    """What is asked for of the run."""
    schedule = outcome.schedule
    last = schedule.end_ns / NANOSECONDS
    begin, end = options.begin or 0.0, last if options.end is None else options.end
    if not 0 <= begin < min(end, last):  # nor NaN
        raise FredError(
            f"--begin {begin:g} --end {end:g}: expected a stretch of virtual time, in s; "
            f"run `{outcome.name}` goes from 0 to {last:g}"
        )
    times = round(begin * NANOSECONDS), min(round(min(end, last) * NANOSECONDS), schedule.end_ns)
    return Part(schedule, f"{outcome.name}, seed {outcome.seed}", outcome.run.cluster.node_of, *times)
