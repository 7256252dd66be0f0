"""`fred plan`: from the times of arrivals, and iterations to a target, to how many workers to wait for; or which protocol."""

import argparse
from collections import Counter
from pathlib import Path

from fred.commands import plan_for, trace_options
from fred.commands.plan_table import print_beside, print_plan
from fred.components import registry
from fred.errors import FredError
from fred.files.places import check_free
from fred.outcomes.rounds import iterations_of, rounds_of
from fred.prediction.comparison import chosen_anew
from fred.prediction.planning import mean_arrivals, plan
from fred.process.progress import bars
from fred.results.folder import load_result
from fred.views.plan_figure import picture

_MOST = 1 << 31  # gradients that are averaged


def add_options(parser: argparse.ArgumentParser) -> None:
    """Where the times and the iterations are from."""
    trace_options.add_options(parser)
    parser.description = (
        "The time to a target is iterations to it, when N gradients are averaged, x mean time of the N-th arrival. Give a "
        "trace and --iterations; or the folder of a result with synchronous runs: one without backup workers, whose rounds "
        "are timed, and some with a target, whose updates are counted. With --for TASK, or a scenario: which protocol to take."
    )
    parser.add_argument("--iterations", metavar="N=COUNT,...", help="iterations to the target when N gradients are averaged")
    parser.add_argument(
        "--curve",
        choices=("linear", "fitted"),
        default="linear",
        help="at other N: interpolated, or least + noise / N fitted (default: linear)",
    )
    parser.add_argument("--workers", type=int, metavar="N+B", help="plan for so many of the workers (default: all)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="draw it: .svg, .png, .pdf; with --for a folder for all runs")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    registry.add_import_option(parser, "the result")
    plan_for.add_options(parser)


def run(options: argparse.Namespace) -> int:
    """Read, plan, draw, print, and say what a number chosen anew in each round would win. Raises FredError."""
    registry.allow_import(options.imports)
    if plan_for.asked(options):
        return plan_for.run(options)
    if options.out:
        check_free(options.out)
        if options.out.suffix not in (".svg", ".png", ".pdf"):
            raise FredError(
                f"--out {options.out}: expected a name that ends with .svg, .png or .pdf; or --for TASK, with a folder"
            )
    first: Path = options.trace[0]
    result = load_result(trace_options.single(options)) if first.is_dir() else None
    if options.iterations is None and result is None:
        raise FredError(
            "how many iterations does it take? Give --iterations N=COUNT,..., or a result's folder instead of a trace; or a "
            f"task to try: fred plan {' '.join(map(str, options.trace))} --for digits"
        )
    trace = None if result else trace_options.from_options(options)
    seconds = trace.seconds if trace else rounds_of(result.outcomes if result else ())
    table = _pairs(options.iterations) if options.iterations else iterations_of(result.outcomes) if result else {}
    try:
        found = plan(mean_arrivals(seconds, options.workers), table, options.curve)
    except ValueError as error:
        raise FredError(f"{first}: {error}") from error
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        picture(found).save(options.out)
    if options.json:
        print(found.json())
    else:
        print_plan(found, trace.source if trace else str(first))
        print("\n".join(trace.said if trace else ()), end="\n" if trace and trace.said else "")
        if found.workers == seconds.shape[1]:
            count = int(found.waited_for[found.best])
            with bars() as show:
                won = chosen_anew(seconds, count, show)
            print_beside(won, count)
    return 0


def _pairs(text: str) -> dict[int, float]:
    try:
        pairs = [(int(count), float(iterations)) for count, _, iterations in (pair.partition("=") for pair in text.split(","))]
        twice = [count for count, number in Counter(count for count, _ in pairs).items() if number > 1]
        if twice:
            raise FredError(f"--iterations {text}: N = {twice[0]} is there twice")
        if max(abs(count) for count, _ in pairs) > _MOST:
            raise ValueError
        return dict(pairs)
    except ValueError:
        raise FredError(f"--iterations {text}: expected N=COUNT, separated by commas, such as 50=137500,100=76200") from None
