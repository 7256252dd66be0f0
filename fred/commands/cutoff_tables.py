"""The table that `fred cutoffs` shows at the end."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fred.prediction import comparison
from fred.prediction.intervals import Ratio

_NARROW = 100  # columns, below which there is room for what matters most only
_HEADINGS = ("gradients/s", "of the oracle's", "against all", "against best", "mean cutoff", "ms per decision")


def print_comparison(outcome: comparison.Comparison, notes: Sequence[str] = ()) -> None:
    """Print one line per rule, and in words what a cutoff would win.

    Args:
        outcome: what the rules came to.
        notes: how it was asked, a line each.
    """
    console = Console(width=None if Console().is_terminal else 140)
    narrow = console.width < _NARROW
    shown, between = (len(_HEADINGS) - 1, "\n") if narrow else (len(_HEADINGS), " ")
    table = Table(title=Text(outcome.trace.source, style="bold"), title_justify="left", caption_justify="left")
    table.caption, table.padding = Text(_caption(outcome)), (0, 0) if narrow else (0, 1)
    table.add_column("rule", no_wrap=True)
    for heading in _HEADINGS[:shown]:
        table.add_column(heading.replace(" ", between), justify="right", no_wrap=True)
    for name, row in outcome.rules.items():
        against = (_against(outcome, other, name).replace(" ", between) for other in ("all", "best"))
        rate, share = f"{row['throughput']:,.4g}", f"{row['of_oracle']:.1%}"
        cells = rate, share, *against, f"{row['cutoff']:,.1f}", f"{row['milliseconds']:.2f}"
        table.add_row(Text(name), *cells[:shown])
    console.print(table)
    for line in (*outcome.trace.said, *notes, *outcome.doubts, outcome.verdict()):
        console.print(line, highlight=False, markup=False)


def _caption(outcome: comparison.Comparison) -> str:
    nodes = outcome.trace.names_of_nodes
    workers = outcome.trace.seconds.shape[1]
    told = "found in the run-times" if outcome.found else f"as told: {nodes}" if nodes else "as told"
    if outcome.trained == 1:
        after = f"after {outcome.train} to train on and {outcome.warm_up} to warm up"
    else:
        after = f"after {outcome.train} to train on first, trained {outcome.trained} times"
    return (
        f"{outcome.counted} rounds of {workers} workers in {outcome.groups} groups ({told}), {after}; "
        "the round-by-round oracle knows each round's times; in brackets: 95% intervals, in %"
    )


def _against(outcome: comparison.Comparison, other: str, name: str) -> str:
    if other not in outcome.against or name == (outcome.best if other == "best" else other):
        return "–"
    found: Ratio = outcome.against[other][name]
    interval = f" ({100 * found.low - 100:+.1f}…{100 * found.high - 100:+.1f})" if found.known else ""
    return f"{found.value - 1:+.1%}{interval}"
