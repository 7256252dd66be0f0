"""The table that `fred plan` shows."""

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fred.diagnosis.backup_workers import Plan

_SHOWN = 20  # plans beside those around the best one


def print_plan(found: Plan, source: str) -> None:
    """Some plans, those around the best one among them, and in words what that would win; `source`: of the arrivals."""
    console = Console(width=None if Console().is_terminal else 140)
    best, last = found.best, len(found.waited_for) - 1
    table = Table(title=Text(source, style="bold"), title_justify="left", caption_justify="left")
    for heading in ("N", "b", "iterations", "mean time of the N-th, s", "to the target, s", "of the best"):
        table.add_column(heading, justify="right")
    shown = {*np.linspace(0, last, min(_SHOWN, last + 1)).round().astype(int).tolist(), *range(max(0, best - 2), best + 3)}
    for i in sorted(shown & set(range(last + 1))):
        count, share = int(found.waited_for[i]), found.seconds[i] / found.seconds[best]
        numbers = [f"{column[i]:,.4g}" for column in (found.iterations, found.arrival, found.seconds)]
        style = "bold" if i == best else None
        table.add_row(str(count), str(found.workers - count), *numbers, "best" if i == best else f"{share:.3f}", style=style)
    console.print(table)
    count = found.waited_for[best]
    every = (
        f", {found.seconds[last] / found.seconds[best]:.2f} times as fast as N = {found.waited_for[last]}"
        if best < last
        else ""
    )
    console.print(f"N = {count}, b = {found.workers - count} converges first{every}.", highlight=False)
