"""The output of `fred fit`: report, JSON and files."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from fred.base import disk
from fred.base.errors import finite
from fred.fitting.behaviour import Behaviour, Measure
from fred.fitting.description import Description
from fred.fitting.fitted import MARK, Candidate, Fitted
from fred.views.table import Cell, Table, say, show, terminal

FILES = ("cluster.yaml", "fit.json", "trace.svg")  # files that `save` writes
_MOST_OUTSIDE = 5  # most measures outside the intervals that the table lists


def print_report(fitted: Fitted) -> None:
    """Print the verdict and the slow workers in sentences; then tables, and the `cluster:` block."""
    console = terminal()
    say(
        console,
        (f"{fitted.verdict}.", *fitted.sentences, fitted.description.cost, *fitted.trace.remarks, *fitted.trace.warnings),
    )
    facts = _description_rows(fitted.description, fitted.trace.node_of is not None)
    for table in (
        Table(["", ""], list(facts), fitted.trace.source, words=2),
        _behaviour_table(fitted.behaviour),
        _candidates_table(fitted.candidates),
    ):
        show(table, console)
    print(fitted.block.text(), end="")  # the comments of `fitted.text` are the sentences above


def _behaviour_table(behaviour: Behaviour) -> Table:
    """Return a table of some measures of the trace and of the cluster, and those outside the trace's interval."""
    arrivals = _select(behaviour.arrivals[::-1])[::-1]  # rather the last ones
    selected = [*_select(behaviour.gains), *arrivals, *behaviour.rules]
    rows = []
    for measure in (*selected, *(measure for measure in behaviour.outside[:_MOST_OUTSIDE] if measure not in selected)):
        interval = f"{measure.text(measure.low)} to {measure.text(measure.high)}"
        cells = (measure.name.removeprefix("the "), measure.text(measure.trace), interval, measure.text(measure.cluster))
        rows.append([Cell(cell, strong=not measure.inside) for cell in cells])
    caption = (
        "gain: gradients per second, relative to waiting for all; arrivals in rounds that wait for all, s; throughput: "
        "gradients per second; intervals are 95 %, from resampled blocks of rounds; 20 % off is outside in any case"
    )
    return Table(["", "trace", "interval", "cluster"], rows, "cluster and trace compared", caption)


def _select(measures: Sequence[Measure]) -> list[Measure]:
    """Return the first two measures, and a few of the others."""
    return [measure for i, measure in enumerate(measures) if i in (0, 1, len(measures) // 2, len(measures) - 1)]


def _candidates_table(candidates: Sequence[Candidate]) -> Table:
    rows = []
    for candidate in candidates:
        outside, count = candidate.behaviour.outside, len(candidate.behaviour.measures)
        furthest = f"{outside[0].name.removeprefix('the ')}: {outside[0].excess:.1%}" if outside else ""
        rows.append([Cell(cell, strong=not outside) for cell in (candidate.name, f"{len(outside)} of {count}", furthest)])
    headings = ["compute times and slowdowns", "outside the intervals", "furthest outside"]
    return Table(headings, rows, "clusters tried, in this order", words=3)


def as_json(fitted: Fitted) -> str:
    """Return the report as JSON; numbers that are not finite are null."""
    report = {
        "verdict": fitted.verdict,
        "sentences": fitted.sentences,
        "source": fitted.trace.source,
        "digest": fitted.trace.digest,
        "notes": [*fitted.trace.notes, *fitted.trace.warnings],
        "repairs": list(fitted.trace.repairs),
        "workers": list(fitted.trace.workers),
        "nodes": list(fitted.trace.nodes),
        "description": asdict(fitted.description),
        "node_of": fitted.group_of.tolist(),
        "candidates": [
            {"name": candidate.name, "outside": [str(measure) for measure in candidate.behaviour.outside]}
            for candidate in fitted.candidates
        ],
        "chosen": fitted.choice.name,
        "behaviour": [asdict(measure) | {"inside": measure.inside} for measure in fitted.behaviour.measures],
        "cluster": fitted.block.options,
        "order": fitted.block.order.tolist(),
    }
    return json.dumps(finite(report), indent=2, allow_nan=False)


def check_free(out: Path) -> None:
    """Raise FredError for a folder that is not writable, or has other files of these names."""
    block, *other_files = (out / name for name in FILES)
    disk.check_together(block, other_files, MARK)


def save(fitted: Fitted, out: Path) -> None:
    """Write `cluster.yaml`, `fit.json` and `trace.svg` to a folder, which is created if necessary."""
    from fred.fitting.fit_figure import picture
    from fred.views.figures import save_or_note

    cluster, numbers, drawing = (out / name for name in FILES)
    report = as_json(fitted)
    disk.write(cluster, fitted.text.encode())  # first, as it identifies the other files
    disk.write(numbers, f"{report}\n".encode())
    save_or_note(partial(picture, fitted), drawing)


def _description_rows(description: Description, nodes_given: bool) -> Iterator[tuple[str, str]]:
    yield "size", f"{description.iterations:,} iterations x {description.workers:,} workers"
    yield "compute times", f"mean {description.mean:.4g} s, deviation {description.deviation:.4g} s"
    yield "quantiles", ", ".join(f"{share:.0%}: {seconds:.4g} s" for share, seconds in description.quantiles.items())
    median = description.quantiles[0.5]
    yield (
        "tail",
        (
            f"99%: {description.quantiles[0.99] / median:.3g} times the median, "
            f"longest: {description.longest / median:.3g} times; "
            f"beyond 98% like a power law of exponent {description.tail_exponent:.1f}"
        ),
    )
    yield "workers", f"standard deviation of their mean log times: {description.spread_of_workers:.3f}"
    origin, correlation = "given" if nodes_given else "found", _share(description.within_groups)
    if description.groups > 1:
        yield (
            "groups",
            f"{description.groups} {origin}; correlation within {correlation}, between {_share(description.between_groups)}",
        )
    else:
        yield "groups", f"none {origin}; correlation of two workers {correlation}"
    yield "persistence", f"of workers relative to their group: {_lags(description.worker_persistence)}"
    yield "", f"of {'groups' if description.groups > 1 else 'the whole cluster'}: {_lags(description.group_persistence)}"


def _share(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"


def _lags(persistence: dict[int, float]) -> str:
    return ", ".join(f"lag {lag}: {_share(value)}" for lag, value in persistence.items())
