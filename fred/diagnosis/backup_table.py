"""The table of backup workers that `fred plan` prints."""

import numpy as np

from fred.diagnosis.backup_workers import Plan
from fred.views.table import Cell, Table, show, terminal

_SHOWN = 20  # plans shown, apart from those around the best


def print_plan(found: Plan, source: str) -> None:
    """Print plans, those around the best included, and the gain of the best in words; `source` names the arrivals."""
    best, last = found.best, len(found.waited_for) - 1
    shown = {*np.linspace(0, last, min(_SHOWN, last + 1)).round().astype(int).tolist(), *range(max(0, best - 2), best + 3)}
    rows = []
    for i in sorted(shown & set(range(last + 1))):
        count, share = int(found.waited_for[i]), found.seconds[i] / found.seconds[best]
        numbers = [f"{column[i]:,.4g}" for column in (found.iterations, found.arrival, found.seconds)]
        cells = [str(count), str(found.workers - count), *numbers, "best" if i == best else f"{share:.3f}"]
        rows.append([Cell(cell, strong=i == best) for cell in cells])
    headings = ["N", "b", "iterations", "mean time of the N-th, s", "to the target, s", "of the best"]
    console = terminal()
    show(Table(headings, rows, source), console)
    count = found.waited_for[best]
    every = (
        f", {found.seconds[last] / found.seconds[best]:.2f} times as fast as N = {found.waited_for[last]}"
        if best < last
        else ""
    )
    console.print(f"N = {count}, b = {found.workers - count} converges first{every}.", highlight=False)
