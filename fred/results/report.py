"""What the command line shows: progress while runs go on, and a table at the end."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fred.progress import bars
from fred.results import result


@contextmanager
def progress() -> Iterator[result.Progress]:
    """A bar for each run and seed on the terminal; silent where there is none."""
    with bars() as show:
        yield lambda run, seed, done: show(f"{run}, seed {seed}", done)


def print_summary(outcome: result.Result, out: Path) -> None:
    """One line per run, means over the seeds, and where the files are."""
    console = Console(width=None if Console().is_terminal else 140)
    seeds = len(outcome.scenario.seeds)
    title = Text(outcome.scenario.title or out.resolve().name, style="bold")  # as it is: no markup
    table = Table(title=title, title_justify="left", caption_justify="left")
    spread = f"; means over {seeds} seeds, ± half the range" if seeds > 1 else ""
    table.caption = f"staleness: mean / largest, in updates{spread}"
    table.add_column("run", no_wrap=True)
    for heading in ("updates", "gradients", "dropped", "virtual s", "staleness", "loss", "error", "to target"):
        table.add_column(heading, justify="right")
    for name, rows in outcome.summary.groupby("name", sort=False):
        table.add_row(str(name), *_cells(rows, seeds))
    shown = [i for i, column in enumerate(table.columns) if i == 0 or any(cell not in ("–", "– / –") for cell in column.cells)]
    table.columns = [table.columns[i] for i in shown]
    console.print(table)
    for line in _divergences(outcome.summary):
        console.print(line, style="bold red", highlight=False, markup=False)
    console.print(f"results: {out}", highlight=False, markup=False)


def _divergences(summary: pd.DataFrame) -> list[str]:
    """A warning for every run whose loss did not stay finite."""
    lost = summary[summary["diverged"].notna()]
    return [
        f"{name} diverged: with {len(rows)} of {(summary['name'] == name).sum()} seeds its loss is no longer a finite number, "
        f"first seen after {rows['diverged'].min():,.0f} updates; try a smaller learning rate"
        for name, rows in lost.groupby("name", sort=False)
    ]


def _cells(rows: pd.DataFrame, seeds: int) -> list[str]:
    def mean(column: str, form: str) -> str:
        values = rows[column].astype(float) if column in rows else pd.Series([np.nan])
        return "–" if values.isna().any() else format(values.mean(), form)

    def spread(column: str, form: str) -> str:
        if rows["diverged"].notna().any():
            return "diverged"
        values = rows[column].astype(float)
        half = (values.max() - values.min()) / 2
        return mean(column, form) + (f" ± {half:{form}}" if seeds > 1 and not values.isna().any() else "")

    return [
        mean("updates", ",.0f"),
        mean("gradients_applied", ",.0f"),
        mean("gradients_dropped", ",.0f"),
        mean("virtual_seconds", ",.1f"),
        mean("staleness_mean", ".1f") + " / " + mean("staleness_max", ",.0f"),
        spread("loss", ".3f"),
        spread("error", ".3f"),
        _to_target(rows),
    ]


def _to_target(rows: pd.DataFrame) -> str:
    """Virtual time (updates, where there is no clock) until the target was reached, in how many of the seeds."""
    if "target_updates" not in rows:
        return "–"
    reached = rows[rows["target_updates"].notna()]
    if reached.empty:
        return "never"
    clocked = reached["target_seconds"].notna().all()
    value = f"{reached['target_seconds'].mean():,.1f} s" if clocked else f"{reached['target_updates'].mean():,.0f} updates"
    return value if len(reached) == len(rows) else f"{value} ({len(reached)} of {len(rows)})"
