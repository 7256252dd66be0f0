"""What the command line shows of results: tables."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fred.errors import FredError
from fred.files.contents import ASIDE, PAIRED, REPORT
from fred.files.staging import said
from fred.outcomes import sweeps
from fred.outcomes.paired import shared_seeds
from fred.results import result
from fred.results.compare import Compared
from fred.views.paired_table import ONE_SEED, paired_table

_BLOCKS_SHOWN = 16  # columns


def print_summary(outcome: result.Result, out: Path) -> None:
    """One line per run, means over the seeds, and where the files are; of a sweep, every point and the best ones' lines."""
    console = Console(width=None if Console().is_terminal else 140)
    if outcome.kept:
        print(f"{outcome.kept} of {len(outcome.outcomes)} were done before and kept (`--fresh` does them anew)")
    for line in outcome.anew:
        print(line)
    for table in tables(outcome, out):
        console.print(table)
    if outcome.chosen and shared_seeds(outcome.with_its_best()) == 1:
        console.print(ONE_SEED, style="dim", highlight=False, markup=False)
    for line in _doubts(outcome) + _without_best(outcome) + _divergences(outcome.summary) + _standstills(outcome.summary):
        console.print(line, style="bold red", highlight=False, markup=False)
    console.print(f"results: {out}", highlight=False, markup=False)
    if (out / REPORT).is_file():
        console.print(f"to look at in a browser: {out / REPORT}", highlight=False, markup=False)
    for folder in sorted(out.glob(f"{ASIDE}*")):
        console.print(f"files of yours whose names the result needs: {folder}", highlight=False, markup=False)


def tables(outcome: result.Result, out: Path) -> list[Table]:
    """What is printed of a result: of a sweep every point, then a line per run, differences, and staleness by block."""
    found = [_sweep_table(outcome)] if outcome.swept else []
    if outcome.chosen:
        best = outcome.with_its_best()
        found.append(_summary_table(best, out, outcome))
        if shared_seeds(best) > 1:
            found.append(paired_table(best.paired))
        if best.summary["staleness_by_block"].notna().any():
            found.append(_blocks_table(best.summary))
    return found


def _summary_table(outcome: result.Result, out: Path, swept: result.Result) -> Table:
    """Of the reported runs, which are chosen from what was swept if anything was."""
    seeds = len(outcome.scenario.seeds)
    title = Text(outcome.scenario.title or out.resolve().name, style="bold")  # as it is: no markup
    table = Table(title=title, title_justify="left", caption_justify="left")
    spread = f"; means over {seeds} seeds, ± half the range" if seeds > 1 else ""
    best = _chosen(swept) if swept.swept else ""
    aged = "; model age: in iterations" if outcome.summary["model_age_max"].notna().any() else ""
    table.caption = f"{best}staleness: mean / largest, in updates{aged}{spread}"
    table.add_column("run", no_wrap=True)
    table.add_column("best of", justify="right")
    learned = ("loss", "error", "perplexity", "gradient norm", "to target")
    for heading in ("updates", "gradients", "dropped", "virtual s", "staleness", "model age", *learned):
        table.add_column(heading, justify="right")
    table.add_column("ended by")
    points = {} if not swept.swept else dict(zip(swept.best["point"], swept.best["points"].map("{:,}".format), strict=True))
    several = any(len(each.run.stop.limits) > 1 for each in outcome.outcomes)  # limits
    for name, rows in outcome.summary.groupby("name", sort=False):
        table.add_row(
            str(name), points.get(str(name), "1" if points else "–"), *_cells(rows, seeds), _ended_by(rows) if several else "–"
        )
    shown = [i for i, column in enumerate(table.columns) if i == 0 or any(cell not in ("–", "– / –") for cell in column.cells)]
    table.columns = [table.columns[i] for i in shown]
    return table


def _chosen(swept: result.Result) -> str:
    """By what, and on which seeds, the best points were chosen."""
    scenario = swept.scenario
    reported = f"reported on {_seeds(scenario.report_seeds)}" if scenario.report_seeds else "which are reported, too"
    by = f"{scenario.criterion.column} (the {scenario.criterion.way})"
    ends = [f"{key.rpartition('.')[2]} {value:g} of {run}" for run, key, value in sweeps.at_the_ends(swept.sweep, swept.best)]
    beyond = f"at an end of what was tried, so look beyond it: {', '.join(ends)}; " if ends else ""
    return f"the best of each run's sweep by {by}, chosen on {_seeds(scenario.seeds)}, {reported}; {beyond}"


def _seeds(seeds: Sequence[int]) -> str:
    """In few words.

    >>> _seeds((1, 2, 3, 7)), _seeds((4,))
    ('seeds 1-3, 7', 'seed 4')
    """
    ordered = sorted(seeds)
    starts = [seed for seed in ordered if seed - 1 not in seeds]
    ends = [seed for seed in ordered if seed + 1 not in seeds]
    return f"seed{'s' if len(seeds) > 1 else ''} " + ", ".join(
        str(first) if first == last else f"{first}-{last}" for first, last in zip(starts, ends, strict=True)
    )


def _blocks_table(summary: pd.DataFrame) -> Table:
    """Mean staleness in each block of the parameters, of runs whose servers hold a block each, over the seeds."""
    cut = summary[summary["staleness_by_block"].notna()]
    means = [
        {"run": name, **{each["block"]: each["mean"] for each in own}}
        for name, own in zip(cut["name"], cut["staleness_by_block"], strict=True)
    ]
    frame = pd.DataFrame(means).groupby("run", sort=False).mean()
    table = Table(title="staleness by block", title_justify="left", title_style="bold")
    table.add_column("run", no_wrap=True)
    for block in list(frame)[:_BLOCKS_SHOWN]:
        table.add_column(str(block), justify="right")
    for name, own in zip(frame.index, frame.to_numpy()[:, :_BLOCKS_SHOWN].tolist(), strict=True):
        table.add_row(str(name), *("–" if np.isnan(mean) else f"{mean:.1f}" for mean in own))
    return table


def _sweep_table(outcome: result.Result) -> Table:
    """A line for each combination of values, a column for each run; the best of each run in bold."""
    points, best, criterion = outcome.sweep, set(outcome.best["point"]), outcome.scenario.criterion
    keys = sweeps.keys_of(points)
    table = Table(title=f"sweep: {criterion.column}", title_justify="left", title_style="bold")
    for key in keys:
        table.add_column(key.rsplit(".", 1)[-1].replace("_", " "), justify="right")
    runs = list(dict.fromkeys(points["run"]))
    for name in runs:
        table.add_column(name, justify="right")
    for values, own in points.groupby(keys, sort=False, dropna=False):
        cells = {
            row["run"]: Text(f"{row['mean']:.4g}" if np.isfinite(row["mean"]) else "–", "bold" if row["point"] in best else "")
            for _, row in own.iterrows()
        }
        table.add_row(*sweeps.said(values), *(cells.get(name, Text("")) for name in runs))
    return table


def _doubts(outcome: result.Result) -> list[str]:
    """A line for everything that speaks against what the runs name."""
    return list(dict.fromkeys(doubt for each in outcome.outcomes for doubt in each.run.protocol.doubts()))


def _without_best(outcome: result.Result) -> list[str]:
    """A line for every run of whose points none is the best."""
    if not outcome.swept:
        return []
    column, chosen = outcome.scenario.criterion.column, set(outcome.best["run"])
    runs = [str(run) for run in dict.fromkeys(outcome.sweep["run"]) if run not in chosen]
    return [f"{run}: no point of its sweep has a finite {column} with all seeds, so none is the best" for run in runs]


def _divergences(summary: pd.DataFrame) -> list[str]:
    """A warning for every run whose loss did not stay finite."""
    lost = summary[summary["diverged"].notna()]
    return [
        f"{name} diverged: with {len(rows)} of {(summary['name'] == name).sum()} seeds its loss is no longer a finite number, "
        + (
            f"first seen after {rows['diverged'].min():,.0f} updates; try a smaller learning rate"
            if rows["diverged"].min()
            else "nor was it at the start: look at the model's first parameters, and at the data"
        )
        for name, rows in lost.groupby("name", sort=False)
    ]


def _standstills(summary: pd.DataFrame) -> list[str]:
    """A warning for every run in which nothing happens any more before its time is over."""
    still = summary[summary["standstill"].notna()]
    return [
        f"{name} stands still with {len(rows)} of {(summary['name'] == name).sum()} seeds: {rows['standstill'].iloc[0]}"
        for name, rows in still.groupby("name", sort=False)
    ]


def _cells(rows: pd.DataFrame, seeds: int) -> list[str]:
    def mean(column: str, form: str) -> str:
        values = rows[column].astype(float) if column in rows else pd.Series([np.nan])
        return "–" if values.isna().any() else format(values.mean(), form)

    def largest(column: str) -> str:
        values = rows[column].astype(float)
        return "–" if values.isna().any() else format(values.max(), ",.0f")

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
        mean("staleness_mean", ".1f") + " / " + largest("staleness_max"),
        mean("model_age_mean", ".1f") + " / " + largest("model_age_max"),
        spread("loss", ".3f"),
        spread("error", ".3f"),
        spread("perplexity", ".2f"),
        spread("gradient_norm", ".3g"),
        _to_target(rows),
    ]


def _ended_by(rows: pd.DataFrame) -> str:
    """Which limit ended a run, with how many seeds where they differ."""
    counts = rows["ended_by"].str.replace("_", " ").value_counts(sort=False)
    return str(counts.index[0]) if len(counts) == 1 else ", ".join(f"{limit} ({times})" for limit, times in counts.items())


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


def print_comparison(compared: Compared) -> None:
    """A line per run and folder, and whose digests agree."""
    console = Console(width=None if Console().is_terminal else 140)
    frame = compared.table()
    table = Table()
    for column in frame:
        name = str(column)
        table.add_column(
            name.replace("_", " "), justify="left" if name in ("run", "folder") else "right", no_wrap=name == "run"
        )
    previous = None
    for values in frame.itertuples(index=False):
        cells = [f"{value:,.4g}" if isinstance(value, float) else str(value) for value in values]
        table.add_row("" if values[0] == previous else cells[0], *(cell.replace("nan", "–") for cell in cells[1:]))
        previous = values[0]
    console.print(table)
    if len(pairs := _named_pairs(compared)):
        console.print(paired_table(pairs))
    for line in compared.agreement():
        console.print(line, highlight=False, markup=False)


def save_comparison(compared: Compared, out: Path) -> None:
    """Tables and the figures of all runs together, in a folder that is made if need be; nothing is replaced."""
    if out.exists() and any(out.iterdir()):
        raise FredError(f"{out} is not empty; choose another folder with --out, or empty it")
    pictures = compared.together().pictures()
    pictures.pop("paired", None)  # that of folders is another
    if len(pairs := _named_pairs(compared)):
        from fred.views import paired_figure

        pictures["paired"] = partial(paired_figure.paired, pairs, compared.together().scenario.title)
    with said(out):
        out.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".fred-", dir=out) as folder:
            new = Path(folder)
            compared.table().to_csv(new / "comparison.csv", index=False)
            if len(pairs):
                compared.paired().to_csv(new / PAIRED, index=False)
            for name, draw in pictures.items():
                draw().save(new / f"{name}.svg")
            for file in sorted(new.iterdir()):
                file.rename(out / file.name)


def _named_pairs(compared: Compared) -> pd.DataFrame:
    """Return paired differences under the runs' names, and the folders' where there are more than two."""
    pairs = compared.paired()
    return pairs.assign(run=pairs["of"] + (": " + pairs["run"] if len(compared.results) > 2 else "")) if len(pairs) else pairs
