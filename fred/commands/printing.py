"""The tables that the command line prints of results."""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from fred.base.disk import PAIRED, REPORT
from fred.base.errors import FredError
from fred.base.staging import convert_errors
from fred.outcomes.comparisons import shared_seeds, why_stopped
from fred.results import result
from fred.results.compare import Compared
from fred.results.result import choice, objections
from fred.views.page_tables import ONE_SEED, marked, number, paired_table, summary_table, sweep_table
from fred.views.table import NONE, Table, say, show, terminal

_BLOCKS_SHOWN = 16  # columns


def print_summary(outcome: result.Result, out: Path, quiet: bool = False) -> None:
    """Print the tables of a result, its warnings, and where its files are.

    The summary has one line per run, with means over the seeds. A sweep adds a table of all points.

    Args:
        outcome: the result.
        out: its folder.
        quiet: True to print only the folder, and warnings to stderr.
    """
    console = terminal()
    warnings = objections(outcome)
    if quiet:
        for line in warnings:
            print(f"fred: {line}", file=sys.stderr)
        print(out)
        return
    if outcome.reused:
        print(f"{outcome.reused} of {len(outcome.outcomes)} runs were finished before and reused (`--fresh` runs them again)")
    for line in outcome.recomputed:
        print(line)
    for table in tables(outcome, out):
        show(table, console)
    if outcome.reported_outcomes and shared_seeds(outcome.with_its_best()) == 1:
        say(console, [ONE_SEED], style="dim")
    say(console, [f"{line}." for line in why_stopped(outcome)])
    say(console, warnings, style="bold red")
    report = [f"report for a browser: {out / REPORT}"] if (out / REPORT).is_file() else []
    say(console, [f"results: {out}", *report], soft_wrap=True)


def tables(outcome: result.Result, out: Path) -> list[Table]:
    """Return the tables of a result.

    They are: all points of a sweep, one line per run, paired differences, and staleness by block. Only those that apply are
    returned.

    Args:
        outcome: the result.
        out: its folder; the folder's name is the title if the scenario has none.
    """
    result_tables = [sweep_table(outcome)] if outcome.swept else []
    if outcome.reported_outcomes:
        best = outcome.with_its_best()
        result_tables.append(_runs_table(outcome, best, out))
        if shared_seeds(best) > 1:
            result_tables.append(paired_table(best.paired))
        if best.summary["staleness_by_block"].notna().any():
            result_tables.append(_blocks_table(best.summary))
    return result_tables


def _runs_table(outcome: result.Result, reported: result.Result, out: Path) -> Table:
    """Return the table of the reported runs: of a sweep, its best points.

    Args:
        outcome: the result with all points of its sweeps.
        reported: the result with the reported runs alone.
        out: folder of the result.
    """
    table = summary_table(reported.summary, printed=True)
    if any(len(unit.run.stop.limits) > 1 for unit in reported.outcomes):
        limits = {str(name): _limits(rows) for name, rows in reported.summary.groupby("name", sort=False)}
        table = marked(table, "ended by", limits)
    caption = table.caption
    if outcome.swept:
        best_points, counts = outcome.best["point"].astype(str), outcome.best["points"].map("{:,}".format)
        count_of_point = dict(zip(best_points, counts, strict=True))
        names = [row[0].text for row in table.cells]
        table = marked(table, "best of", {name: count_of_point.get(name, "1") for name in names})  # 1: a run without a sweep
        caption = f"{choice(outcome)} {caption}"
    return replace(table, title=reported.scenario.title or out.resolve().name, caption=caption)


def _blocks_table(summary: pd.DataFrame) -> Table:
    """Return a table of mean staleness in each block of the parameters, for runs with parameter blocks on several servers."""
    summaries = summary[summary["staleness_by_block"].notna()]
    means = [
        {"run": name, **{entry["block"]: entry["mean"] for entry in entries}}
        for name, entries in zip(summaries["name"], summaries["staleness_by_block"], strict=True)
    ]
    frame = pd.DataFrame(means).groupby("run", sort=False).mean()
    blocks = list(frame)[:_BLOCKS_SHOWN]
    rows = [
        [str(name), *(NONE if np.isnan(mean) else f"{mean:.1f}" for mean in entries)]
        for name, entries in zip(frame.index, frame[blocks].to_numpy().tolist(), strict=True)
    ]
    return Table(["run", *map(str, blocks)], rows, "staleness by block")


def _limits(rows: pd.DataFrame) -> str:
    """Return the limit that ended a run; if seeds differ, every limit with its number of seeds."""
    counts = rows["ended_by"].str.replace("_", " ").value_counts(sort=False)
    return str(counts.index[0]) if len(counts) == 1 else ", ".join(f"{limit} ({times})" for limit, times in counts.items())


def print_comparison(comparison: Compared) -> None:
    """Print one line per run and folder, the paired differences, and which digests agree."""
    console, frame = terminal(), comparison.table()
    rows: list[list[str]] = []
    previous_name = None  # a run's name is printed once, in the first of its rows
    for values in frame.itertuples(index=False):
        cells = [number(value) if isinstance(value, float) else str(value) for value in values]
        rows.append(["" if values[0] == previous_name else cells[0], *(NONE if cell == "nan" else cell for cell in cells[1:])])
        previous_name = values[0]
    show(Table([str(column).replace("_", " ") for column in frame], rows, words=2), console)
    say(console, comparison.settings(), style="bold red")
    if len(pairs := _pairs_by_run(comparison)):
        show(paired_table(pairs), console)
    say(console, comparison.agreement())


def save_comparison(comparison: Compared, out: Path) -> None:
    """Write the tables and the figures of all runs together into a new or empty folder. Raises FredError."""
    if out.exists() and any(out.iterdir()):
        raise FredError(f"{out} is not empty; choose another folder with --out, or empty it")
    from fred.views.figures import save_or_note

    pictures = comparison.together().pictures()
    pictures.pop("paired", None)  # replaced below by the one that compares folders
    if len(pairs := _pairs_by_run(comparison)):
        from fred.views import comparison_figures

        pictures["paired"] = partial(comparison_figures.paired, pairs, comparison.together().scenario.title)
    with convert_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".fred-", dir=out) as path:  # after an error, no file is left in `out`
            folder = Path(path)
            comparison.table().to_csv(folder / "comparison.csv", index=False)
            if len(pairs):
                comparison.paired().to_csv(folder / PAIRED, index=False)
            for name, draw in pictures.items():
                save_or_note(draw, folder / f"{name}.svg")
            for file in sorted(folder.iterdir()):
                file.rename(out / file.name)


def _pairs_by_run(comparison: Compared) -> pd.DataFrame:
    """Return paired differences named by run; with more than two folders, the name also has the folder."""
    pairs = comparison.paired()
    return pairs.assign(run=pairs["of"] + (": " + pairs["run"] if len(comparison.results) > 2 else "")) if len(pairs) else pairs
