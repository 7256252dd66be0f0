"""The table that `fred cutoffs` shows at the end."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fred.prediction import comparison


def print_comparison(outcome: comparison.Comparison) -> None:
    """One line per rule, and in words what a cutoff would win."""
    console = Console(width=None if Console().is_terminal else 140)
    trace, told = outcome.trace, "found in the run-times" if outcome.found else "as told"
    table = Table(title=Text(trace.source, style="bold"), title_justify="left", caption_justify="left")
    table.caption = Text(
        f"{outcome.counted} rounds of {trace.seconds.shape[1]} workers in {outcome.groups} groups ({told}), after "
        f"{outcome.train} to train on and {outcome.warm_up} to warm up; the oracle knows each round's times"
    )
    table.add_column("rule", no_wrap=True)
    for heading in ("gradients/s", "of the oracle's", "mean cutoff", "ms per decision"):
        table.add_column(heading, justify="right")
    for name, row in outcome.rules.items():
        cells = f"{row['throughput']:,.4g}", f"{row['of_oracle']:.1%}", f"{row['cutoff']:,.1f}", f"{row['milliseconds']:.2f}"
        table.add_row(Text(name), *cells)
    console.print(table)
    for line in (*trace.repairs, outcome.verdict()):
        console.print(line, highlight=False, markup=False)
