"""`fred cutoffs`: compare cutoff rules on a recorded trace."""

import argparse
from collections.abc import Sequence

from fred.base.intervals import Ratio
from fred.base.progress import bars
from fred.commands import command_options, trace_options
from fred.components import registry
from fred.prediction import comparison
from fred.prediction.closed_loop import WARM_UP
from fred.prediction.comparison import RULES, compare, rolling
from fred.views.table import NONE, Table, say, show, terminal

_HEADINGS = ("gradients/s", "of the oracle's", "against all", "against best", "mean cutoff", "ms per decision")


def print_comparison(outcome: comparison.Comparison, notes: Sequence[str] = ()) -> None:
    """Print a table with one line per rule, and a sentence on how much a cutoff would gain.

    Args:
        outcome: the results of the rules.
        notes: further lines to print, such as the defaults that were used.
    """
    console = terminal()
    rows = []
    for name, row in outcome.rules.items():
        gains = (_gain(outcome, other, name) for other in ("all", "best"))
        rate, share = f"{row['throughput']:,.4g}", f"{row['of_oracle']:.1%}"
        rows.append([name, rate, share, *gains, f"{row['cutoff']:,.1f}", f"{row['milliseconds']:.2f}"])
    show(Table(["rule", *_HEADINGS], rows, outcome.trace.source, _caption(outcome)), console)
    say(console, (*outcome.trace.remarks, *notes, *outcome.doubts, outcome.verdict(), *outcome.trace.warnings))


def _caption(outcome: comparison.Comparison) -> str:
    nodes = outcome.trace.node_names
    workers = outcome.trace.seconds.shape[1]
    origin = "found in the compute times" if outcome.groups_inferred else f"as given: {nodes}" if nodes else "as given"
    if outcome.trained == 1:
        training = f"after {outcome.train} to train on and {outcome.warm_up} to warm up"
    else:
        training = f"after {outcome.train} to train on first, trained {outcome.trained} times"
    return (
        f"{outcome.counted_rounds} rounds of {workers} workers in {outcome.groups} groups ({origin}), {training}; "
        "the round-by-round oracle knows each round's times; in brackets: 95% intervals, in %"
    )


def _gain(outcome: comparison.Comparison, other: str, name: str) -> str:
    """Return the gain of rule `name` over `all` or the `best` rule, with its interval, in %; a dash if there is none."""
    compared_rule = outcome.best_rule if other == "best" else other
    if other not in outcome.ratios or name == compared_rule:
        return NONE
    ratio: Ratio = outcome.ratios[other][name]
    interval = f" ({100 * ratio.low - 100:+.1f} to {100 * ratio.high - 100:+.1f})" if ratio.has_interval else ""
    return f"{ratio.value - 1:+.1%}{interval}"


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
    iterations_after = max(0, trace.iterations - train)
    warm_up = min(WARM_UP, iterations_after // 5) if options.warm_up is None else options.warm_up
    with bars(quiet=options.quiet) as progress:
        if options.rolling is None:
            outcome = compare(trace, train, names, warm_up, progress)
        else:
            outcome = rolling(trace, train, options.rolling, names, warm_up, progress)
    if options.json:
        print(outcome.json())
    else:
        note = f"rules were trained on the first {train}, two thirds of {trace.iterations} iterations; --train N changes this"
        print_comparison(outcome, [note] if options.train is None else [])
    return 0
