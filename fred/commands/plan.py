"""`fred plan`: from the times of arrivals, and iterations to a target, to how many workers to wait for."""

import argparse
import json
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fred.cluster.durations import NANOSECONDS
from fred.commands import trace_options as trace_options
from fred.components import registry
from fred.errors import FredError
from fred.files.places import check_places
from fred.prediction.planning import Plan, mean_arrivals, plan
from fred.protocols.synchronous import Synchronous
from fred.results.folder import load_result
from fred.results.result import Result
from fred.schedule.schedule import Schedule, Verb
from fred.views import figures

_MOST = 1 << 31  # gradients that are averaged
_SHOWN = 20  # lines of the table beside those around the best one


def add_options(parser: argparse.ArgumentParser) -> None:
    """Where the times and the iterations are from."""
    trace_options.add_options(parser)
    parser.description = (
        "The time to a target is iterations to it, when N gradients are averaged, x mean time of the N-th arrival. Give a "
        "trace and --iterations; or the folder of a result with synchronous runs: one without backup workers, whose rounds "
        "are timed, and some with a target, whose updates are counted."
    )
    parser.add_argument("--iterations", metavar="N=COUNT,...", help="iterations to the target when N gradients are averaged")
    parser.add_argument(
        "--curve",
        choices=("linear", "fitted"),
        default="linear",
        help="at other N: interpolated, or least + noise / N fitted (default: linear)",
    )
    parser.add_argument("--workers", type=int, metavar="N+B", help="plan for so many of the workers (default: all)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="draw it, in the format that the name ends with: .svg, .png")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    registry.add_import_option(parser, "the result")


def run(options: argparse.Namespace) -> int:
    """Read, plan, draw, print. Raises FredError."""
    registry.allow_import(options.imports)
    if options.out:
        check_places(options.out)
        if options.out.suffix not in (".svg", ".png", ".pdf"):
            raise FredError(f"--out {options.out}: expected a name that ends with .svg, .png or .pdf")
    result = load_result(options.trace) if options.trace.is_dir() else None
    if options.iterations is None and result is None:
        raise FredError(
            "how many iterations does it take? Give --iterations N=COUNT,..., or a result's folder instead of a trace"
        )
    seconds = rounds_of(result) if result else trace_options.from_options(options).seconds
    table = _pairs(options.iterations) if options.iterations else iterations_of(result) if result else {}
    try:
        found = plan(mean_arrivals(seconds, options.workers), table, options.curve)
    except ValueError as error:
        raise FredError(f"{options.trace}: {error}") from error
    if options.out:
        picture(found).save(options.out)
    print(_json(found)) if options.json else _print(found, str(options.trace))
    return 0


def arrivals(schedule: Schedule) -> NDArray[np.float64]:
    """When each round's first to last gradient arrived, s after the round before was complete [rounds, gradients].

    Of the first block, and of complete rounds. Raises ValueError if there is none, or if they differ in size.
    """
    first = schedule["block"] == 0
    adds, commits = (np.flatnonzero(first & (schedule["verb"] == verb)) for verb in (Verb.ADD, Verb.COMMIT))
    round_of = np.searchsorted(commits, adds)
    sizes = np.bincount(round_of, minlength=len(commits))[: len(commits)]
    if len(set(sizes.tolist())) != 1:
        raise ValueError("expected complete rounds of as many gradients each")
    began = np.concatenate(([0], schedule["time_ns"][commits[:-1]]))
    arrived = schedule["time_ns"][adds[round_of < len(commits)]].reshape(len(commits), -1)
    return (arrived - began[:, None]) / NANOSECONDS


def rounds_of(result: Result) -> NDArray[np.float64]:
    """When gradients arrived in the runs that wait for all of most workers, s [rounds, workers]. Raises FredError."""
    waiting = [each for each in result.outcomes if each.run.protocol == Synchronous()]
    if not waiting:
        raise FredError("no run of the protocol `synchronous` without backup workers here, whose arrivals could be timed")
    most = max(each.run.cluster.size for each in waiting)
    try:
        return np.concatenate([arrivals(each.schedule) for each in waiting if each.run.cluster.size == most])
    except ValueError as error:
        raise FredError(f"the runs that wait for all {most} workers: {error}") from error


def iterations_of(result: Result) -> dict[int, float]:
    """Updates to the target by how many gradients each averages, mean over runs and seeds. Raises FredError."""
    counted: dict[int, list[int]] = defaultdict(list)
    for each in result.outcomes:
        protocol, target = each.run.protocol, each.summary["target"]
        if not isinstance(protocol, Synchronous) or target is None:
            continue
        if target["updates"] is None:
            raise FredError(f"run {each.name}, seed {each.seed}, did not reach its target: let it go on for longer")
        counted[each.run.cluster.size - protocol.backup_workers].append(target["updates"])
    if not counted:
        raise FredError("no run of the protocol `synchronous` with a target here; give --iterations, or `evaluate.target_loss`")
    return {count: float(np.mean(updates)) for count, updates in counted.items()}


def picture(found: Plan) -> figures.Picture:
    """Iterations, time of the N-th arrival, and their product, against N; a star at the best."""
    best = found.best
    panels = (("iterations to the target", found.iterations), ("mean time of the N-th, s", found.arrival))
    with figures.style():
        drawn = figures.Picture(figsize=(9.6, 2.8), layout="constrained")
        axes = drawn.subplots(1, 3)
        for axis, (label, values) in zip(axes, (*panels, ("time to the target, s", found.seconds)), strict=True):
            axis.plot(found.waited_for, values, color=figures.COLOURS[0])
            axis.set(xlabel=f"N, of {found.workers} workers", ylabel=label)
        axes[2].plot(found.waited_for[best], found.seconds[best], "*", color=figures.COLOURS[1], markersize=12)
        axes[2].set_title(f"N = {found.waited_for[best]}, b = {found.workers - found.waited_for[best]}")
    return drawn


def _pairs(text: str) -> dict[int, float]:
    try:
        pairs = [(int(count), float(iterations)) for count, _, iterations in (pair.partition("=") for pair in text.split(","))]
        twice = [count for count, number in Counter(count for count, _ in pairs).items() if number > 1]
        if twice:
            raise FredError(f"--iterations {text}: N = {twice[0]} is there twice")
        if max(abs(count) for count, _ in pairs) > _MOST:
            raise ValueError
        return dict(pairs)
    except ValueError:
        raise FredError(f"--iterations {text}: expected N=COUNT, separated by commas, such as 50=137500,100=76200") from None


def _json(found: Plan) -> str:
    rows = zip(found.waited_for.tolist(), *(each.tolist() for each in _columns(found)), strict=True)
    names = ("waited_for", "iterations", "arrival", "seconds")
    plans = [dict(zip(names, row, strict=True)) for row in rows]
    return json.dumps({"workers": found.workers, "best": plans[found.best], "plans": plans}, indent=2)


def _columns(found: Plan) -> tuple[NDArray[np.float64], ...]:
    return found.iterations, found.arrival, found.seconds


def _print(found: Plan, source: str) -> None:
    console = Console(width=None if Console().is_terminal else 140)
    best, last = found.best, len(found.waited_for) - 1
    table = Table(title=Text(source, style="bold"), title_justify="left", caption_justify="left")
    for heading in ("N", "b", "iterations", "mean time of the N-th, s", "to the target, s", "of the best"):
        table.add_column(heading, justify="right")
    shown = {*np.linspace(0, last, min(_SHOWN, last + 1)).round().astype(int).tolist(), *range(max(0, best - 2), best + 3)}
    for i in sorted(shown & set(range(last + 1))):
        count, share = int(found.waited_for[i]), found.seconds[i] / found.seconds[best]
        numbers = [f"{column[i]:,.4g}" for column in _columns(found)]
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
