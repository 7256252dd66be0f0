"""`fred cutoffs`: compare cutoff rules on a recorded trace."""

import argparse

from fred.base.progress import bars
from fred.commands import command_options, cutoff_tables, trace_options
from fred.components import registry
from fred.prediction.closed_loop import WARM_UP
from fred.prediction.comparison import RULES, compare, rolling


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the trace, its training part, and the rules to compare."""
    trace_options.add_options(parser)
    parser.add_argument(
        "--train",
        type=int,
        metavar="N",
        help="train on the first N iterations and run on the rest (default: two thirds of all iterations)",
    )
    parser.add_argument(
        "--rules",
        default=",".join(RULES),
        metavar="RULE,...",
        help="names from `fred list cutoffs`, without options; count:N and deadline:SECONDS set a fixed count or deadline "
        f"(default: {','.join(RULES)})",
    )
    parser.add_argument(
        "--warm-up",
        type=int,
        metavar="N",
        help="warm-up iterations, which wait for all workers and do not count "
        f"(default: {WARM_UP}, but at most a fifth of the iterations after training)",
    )
    parser.add_argument(
        "--rolling",
        type=int,
        metavar="N",
        help="train again after every N iterations, on all earlier ones; so all iterations after the first --train count",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    command_options.add_quiet(parser, writes=False)
    registry.add_import_option(parser, "`--rules`")


def run(options: argparse.Namespace) -> int:
    """Train and run the rules, then print their results. Raises FredError."""
    registry.allow_import(options.imports)
    trace = trace_options.read_trace(options)
    names = options.rules.split(",")
    train = max(1, trace.iterations * 2 // 3) if options.train is None else options.train
    rest = max(0, trace.iterations - train)
    warm_up = min(WARM_UP, rest // 5) if options.warm_up is None else options.warm_up
    with bars(quiet=options.quiet) as progress:
        if options.rolling is None:
            outcome = compare(trace, train, names, warm_up, progress)
        else:
            outcome = rolling(trace, train, options.rolling, names, warm_up, progress)
    if options.json:
        print(outcome.json())
    else:
        note = f"rules were trained on the first {train}, two thirds of {trace.iterations} iterations; --train N changes this"
        cutoff_tables.print_comparison(outcome, [note] if options.train is None else [])
    return 0
