"""The output of `fred fit`: report, JSON and files."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from fred.base import places
from fred.base.words import finite
from fred.fitting.behaviour import Behaviour, Measure
from fred.fitting.description import Description
from fred.fitting.fitted import MARK, Candidate, Fitted
from fred.views.table import Cell, Table, say, show, terminal

FILES = ("cluster.yaml", "fit.json", "trace.svg")  # files that `save` writes
_MOST_OUTSIDE = 5  # most measures outside the intervals that the table lists


def print_report(fitted: Fitted) -> None:
    """Print the verdict and the slow workers in sentences; then tables, and the `cluster:` block."""
    console = terminal()
    say(console, (f"{fitted.verdict}.", *fitted.sentences, fitted.description.cost, *fitted.trace.said, *fitted.trace.warnings))
    facts = _lines(fitted.description, fitted.trace.node_of is not None)
    for table in (
        Table(["", ""], list(facts), fitted.trace.source, words=2),
        _behaviour(fitted.behaviour),
        _tried(fitted.tried),
    ):
        show(table, console)
    print(fitted.block.text(), end="")  # the comments of `fitted.text` are the sentences above


def _behaviour(found: Behaviour) -> Table:
    """Return a table of some measures of the trace and of the cluster, and those outside the trace's interval."""
    shown = [*_some(found.gains), *_some(found.arrivals[::-1])[::-1], *found.rules]
    rows = []
    for each in (*shown, *(measure for measure in found.outside[:_MOST_OUTSIDE] if measure not in shown)):
        interval = f"{each.text(each.low)} to {each.text(each.high)}"
        cells = (each.name.removeprefix("the "), each.text(each.trace), interval, each.text(each.cluster))
        rows.append([Cell(cell, strong=not each.inside) for cell in cells])
    caption = (
        "gain: gradients per second, relative to waiting for all; arrivals in rounds that wait for all, s; throughput: "
        "gradients per second; intervals are 95 %, from resampled blocks of rounds; 20 % off is outside in any case"
    )
    return Table(["", "trace", "interval", "cluster"], rows, "cluster and trace compared", caption)


def _some(measures: Sequence[Measure]) -> list[Measure]:
    """Return the first two measures, and a few of the others."""
    return [measure for place, measure in enumerate(measures) if place in (0, 1, len(measures) // 2, len(measures) - 1)]


def _tried(tried: Sequence[Candidate]) -> Table:
    rows = []
    for each in tried:
        outside, count = each.behaviour.outside, len(each.behaviour.measures)
        furthest = f"{outside[0].name.removeprefix('the ')}: {outside[0].beyond:.1%}" if outside else ""
        rows.append([Cell(cell, strong=not outside) for cell in (each.name, f"{len(outside)} of {count}", furthest)])
    headings = ["compute times and slowdowns", "outside the intervals", "furthest outside"]
    return Table(headings, rows, "clusters tried, in this order", words=3)


def as_json(fitted: Fitted) -> str:
    """Return the report as JSON; numbers that are not finite are null."""
    found = {
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
        "candidates": [{"name": each.name, "outside": [str(one) for one in each.behaviour.outside]} for each in fitted.tried],
        "chosen": fitted.chosen.name,
        "behaviour": [asdict(each) | {"inside": each.inside} for each in fitted.behaviour.measures],
        "cluster": fitted.block.options,
        "order": fitted.block.order.tolist(),
    }
    return json.dumps(finite(found), indent=2, allow_nan=False)


def check_free(out: Path) -> None:
    """Raise FredError for a folder that is not writable, or has other files of these names."""
    block, *others = (out / name for name in FILES)
    places.check_together(block, others, MARK)


def save(fitted: Fitted, out: Path) -> None:
    """Write `cluster.yaml`, `fit.json` and `trace.svg` to a folder, which is created if necessary."""
    from fred.fitting.fit_figure import picture
    from fred.views.figures import save_or_note

    cluster, numbers, drawing = (out / name for name in FILES)
    counted = as_json(fitted)
    places.write(cluster, fitted.text.encode())  # first, as it identifies the other files
    places.write(numbers, f"{counted}\n".encode())
    save_or_note(partial(picture, fitted), drawing)


def _lines(look: Description, told: bool) -> Iterator[tuple[str, str]]:
    yield "size", f"{look.iterations:,} iterations x {look.workers:,} workers"
    yield "compute times", f"mean {look.mean:.4g} s, deviation {look.deviation:.4g} s"
    yield "quantiles", ", ".join(f"{share:.0%}: {seconds:.4g} s" for share, seconds in look.quantiles.items())
    median = look.quantiles[0.5]
    yield (
        "tail",
        (
            f"99%: {look.quantiles[0.99] / median:.3g} times the median, longest: {look.longest / median:.3g} times; "
            f"beyond 98% like a power law of exponent {look.tail_exponent:.1f}"
        ),
    )
    yield "workers", f"standard deviation of their mean log times: {look.spread_of_workers:.3f}"
    known, within = "given" if told else "found", _share(look.within_groups)
    if look.groups > 1:
        yield "groups", f"{look.groups} {known}; correlation within {within}, between {_share(look.between_groups)}"
    else:
        yield "groups", f"none {known}; correlation of two workers {within}"
    yield "persistence", f"of workers relative to their group: {_lags(look.worker_persistence)}"
    yield "", f"of {'groups' if look.groups > 1 else 'the whole cluster'}: {_lags(look.group_persistence)}"


def _share(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"


def _lags(persistence: dict[int, float]) -> str:
    return ", ".join(f"lag {lag}: {_share(value)}" for lag, value in persistence.items())
