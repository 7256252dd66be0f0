"""`fred plan`: find the best protocol for a target on a scenario's cluster, or a result's best number of workers."""

import argparse
from collections import Counter
from functools import partial
from pathlib import Path

from fred.base.disk import check_free
from fred.base.errors import FredError
from fred.commands import command_options, plan_for
from fred.components import registry
from fred.diagnosis.backup_workers import iterations_of, mean_arrivals, picture, plan, print_plan, rounds_of
from fred.diagnosis.question import CRITERIA, TIME
from fred.results.folder import load_result
from fred.views.figures import save_or_note

_MOST_GRADIENTS = 1 << 31  # upper bound on N, the number of averaged gradients


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names the scenario or result, and the options of both plans."""
    parser.add_argument("source", type=Path, metavar="SCENARIO|FOLDER", help="a scenario, or a result folder")
    parser.description = (
        "For a scenario: find the protocol that reaches its target first, or at the least cost, on its cluster. "
        "For a result with synchronous runs: find how many of N + b workers to wait for. The time to the target is the "
        "iterations to it, with N gradients averaged, x the mean time of the N-th arrival. The arrivals come from a run "
        "without backup workers, the iterations from runs with a target. For a trace, `fred diagnose TRACE` reports what "
        "helps, and with --for how soon a target is reached."
    )
    parser.add_argument("--iterations", metavar="N=COUNT,...", help="iterations to the target with N gradients averaged")
    parser.add_argument(
        "--curve",
        choices=("linear", "fitted"),
        default="linear",
        help="iterations at other N: linear interpolation, or a fit of least + noise / N (default: linear)",
    )
    parser.add_argument("--workers", type=int, metavar="N+B", help="plan for this number of workers (default: all)")
    parser.add_argument(
        "--by",
        choices=tuple(CRITERIA),
        help="for a scenario, tune and rank systems by their time, cost or energy to the target; cost and energy need "
        "`cluster.prices` (default: time)",
    )
    parser.add_argument(
        "-o",
        "--out",
        type=Path,
        metavar="PATH",
        help="for a result, file of a figure: .svg, .png or .pdf; for a scenario, folder for all runs",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    command_options.add_quiet(parser)
    registry.add_import_option(parser, "the scenario")
    plan_for.add_options(parser)


def run(options: argparse.Namespace) -> int:
    """Plan for a scenario, or for a result. Raises FredError."""
    registry.allow_import(options.imports)
    if plan_for.is_scenario(options.source):
        for name in ("iterations", "workers"):
            if getattr(options, name) is not None:
                raise FredError(f"--{name} is for a result folder; for a scenario, `fred plan` measures it by runs")
        return plan_for.run(options, CRITERIA[options.by or TIME.name])
    if not options.source.is_dir():
        target = f" --for {options.task}" if options.task else ""
        raise FredError(
            f"{options.source} is neither a scenario nor a result folder; for a trace, use "
            f"`fred diagnose {options.source}{target}`"
        )
    for option, value in (("for", options.task), ("by", options.by)):
        if value is not None:
            raise FredError(f"{options.source} is a folder: --{option} needs a scenario, such as the one that produced it")
    return _plan_result(options)


def _plan_result(options: argparse.Namespace) -> int:
    """Plan from a result folder: read, plan, draw and print. Raises FredError."""
    if options.out:
        check_free(options.out)
        if options.out.suffix not in (".svg", ".png", ".pdf"):
            raise FredError(f"--out {options.out}: expected a name that ends with .svg, .png or .pdf")
    result = load_result(options.source)
    seconds = rounds_of(result.outcomes)
    table = _parse_iterations(options.iterations) if options.iterations else iterations_of(result.outcomes)
    try:
        answer = plan(mean_arrivals(seconds, options.workers), table, options.curve)
    except ValueError as error:
        raise FredError(f"{options.source}: {error}") from error
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        save_or_note(partial(picture, answer), options.out)
    if options.json:
        print(answer.json())
    elif options.out and options.quiet:
        print(options.out)
    else:
        print_plan(answer, str(options.source))
    return 0


def _parse_iterations(text: str) -> dict[int, float]:
    """Return the iterations to the target by N, from N=COUNT,... Raises FredError."""
    try:
        pairs = [(int(count), float(iterations)) for count, _, iterations in (pair.partition("=") for pair in text.split(","))]
        duplicates = [count for count, number in Counter(count for count, _ in pairs).items() if number > 1]
        if duplicates:
            raise FredError(f"--iterations {text}: N = {duplicates[0]} is there twice")
        if max(abs(count) for count, _ in pairs) > _MOST_GRADIENTS:
            raise ValueError
        return dict(pairs)
    except ValueError:
        raise FredError(f"--iterations {text}: expected N=COUNT, separated by commas, such as 50=137500,100=76200") from None
