"""The table that `fred cutoffs` prints."""

from collections.abc import Sequence

from fred.base.intervals import Ratio
from fred.prediction import comparison
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
    """Return the gain of a rule over another, with its interval, in %; a dash if there is none."""
    if other not in outcome.ratios or name == (outcome.best_rule if other == "best" else other):
        return NONE
    ratio: Ratio = outcome.ratios[other][name]
    interval = f" ({100 * ratio.low - 100:+.1f} to {100 * ratio.high - 100:+.1f})" if ratio.has_interval else ""
    return f"{ratio.value - 1:+.1%}{interval}"
