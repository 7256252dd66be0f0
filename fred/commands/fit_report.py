"""What `fred fit` shows and writes."""

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from fred.files import places
from fred.fitting import ranking
from fred.fitting.description import Description
from fred.fitting.fit import Fitted
from fred.fitting.judging import Agreement

FILES = ("cluster.yaml", "fit.json", "trace.svg")  # what `save` writes
_FIRST = "# fitted to "  # by which the block is known: `Fitted.comments`


def print_report(fitted: Fitted) -> None:
    """What the trace looks like, how well each candidate predicts it, and the block."""
    console = Console(width=None if Console().is_terminal else 140)
    for line in fitted.trace.said:
        console.print(line, highlight=False, markup=False)
    look = Table(title=fitted.trace.source, title_justify="left", title_style="bold", show_header=False)
    for name, value in _lines(fitted.description, fitted.trace.node_of is not None):
        look.add_row(name, value)
    console.print(look)
    table = Table(title="candidates", title_justify="left", title_style="bold", caption_justify="left")
    table.caption = (
        f"log-likelihood per run-time, nats; held out: the last {ranking.HELD_OUT:.0%}, each iteration given those before;\n"
        "first those that are behind the best by no more than a standard error, the simplest on top"
    )
    table.add_column("model")
    for heading in ("parameters", "fitted part", "held out", "behind the best"):
        table.add_column(heading, justify="right")
    for each in fitted.ranking:
        behind = f"{each.behind:.4f} ± {each.error:.4f}" if 0 < each.behind < math.inf else ""
        style = "bold" if each is fitted.chosen else ""
        table.add_row(each.name, str(each.parameters or ""), _nats(each.seen), _nats(each.unseen), behind, style=style)
    console.print(table)
    console.print(_agreement(fitted.agreement))
    print(fitted.text, end="")


def _agreement(found: Agreement) -> Table:
    """Order statistics of the trace and of the cluster, and what the trace leaves open."""
    table = Table(title="rounds that wait for all", title_justify="left", title_style="bold", caption_justify="left")
    table.caption = (
        "means in s; the cluster simulated again, ± the standard error of the difference;\n"
        f"the trace itself tells its mean round to ± {found.uncertainty:.1%}"
    )
    if not found.holds:
        table.caption += "\nthe cluster is further off than chance explains"
    table.add_column("")
    for heading in ("trace", "cluster", "difference"):
        table.add_column(heading, justify="right")
    for c, own, again, error in zip(*_columns(found), strict=True):
        table.add_row(f"the {c} fastest are done", f"{own:.4g}", f"{again:.4g}", f"{again / own - 1:+.1%} ± {error / own:.1%}")
    return table


def as_json(fitted: Fitted) -> str:
    """The same for programs; what is not a finite number is null."""
    found = {
        "source": fitted.trace.source,
        "digest": fitted.trace.digest,
        "notes": list(fitted.trace.notes),
        "repairs": list(fitted.trace.repairs),
        "workers": list(fitted.trace.workers),
        "nodes": list(fitted.trace.nodes),
        "description": asdict(fitted.description),
        "node_of": fitted.group_of.tolist(),
        "candidates": [
            {
                "name": each.name,
                "parameters": each.parameters,
                "fitted": each.seen,
                "held_out": each.unseen,
                "behind": each.behind,
                "error": each.error,
            }
            for each in fitted.ranking
        ],
        "chosen": fitted.chosen.name,
        "order_statistics": [
            {"cutoff": int(c), "trace": own, "cluster": again, "error": error}
            for c, own, again, error in zip(*(column.tolist() for column in _columns(fitted.agreement)), strict=True)
        ],
        "cluster": fitted.block.options,
        "order": fitted.block.order.tolist(),
    }
    return json.dumps(_finite(found), indent=2, allow_nan=False)


def check_free(out: Path) -> None:
    """Refuse a folder that cannot be written, or whose files of these names are somebody's own. Raises FredError."""
    block, *others = (out / name for name in FILES)
    places.check_free(block, lambda beginning: beginning.startswith(_FIRST.encode()))
    for file in others:  # the block is written first, so where it is of `fred fit`, they are, too
        places.check_free(file, lambda _: block.exists())


def save(fitted: Fitted, out: Path) -> None:
    """`cluster.yaml`, `fit.json` and `trace.svg` in a folder, which is made if need be."""
    from fred.views.fit_figure import picture

    cluster, numbers, drawing = (out / name for name in FILES)
    drawn, counted = picture(fitted), as_json(fitted)
    places.write(cluster, fitted.text.encode())  # the first, by which the others are known
    places.write(numbers, f"{counted}\n".encode())
    drawn.save(drawing)


def _lines(look: Description, told: bool) -> Iterator[tuple[str, str]]:
    yield "size", f"{look.iterations:,} iterations x {look.workers:,} workers"
    yield "run-times", f"mean {look.mean:.4g} s, deviation {look.deviation:.4g} s"
    yield "quantiles", ", ".join(f"{share:.0%}: {seconds:.4g} s" for share, seconds in look.quantiles.items())
    median = look.quantiles[0.5]
    yield (
        "tail",
        (
            f"99%: {look.quantiles[0.99] / median:.3g} times the median, longest: {look.longest / median:.3g} times; "
            f"beyond 98% like a power law of exponent {look.tail_exponent:.1f}"
        ),
    )
    yield "workers", f"their mean logarithms deviate by {look.spread_of_workers:.3f}"
    known, within = "told" if told else "found", _share(look.within_groups)
    if look.groups > 1:
        yield "groups", f"{look.groups} {known}; correlation within {within}, between {_share(look.between_groups)}"
    else:
        yield "groups", f"none {known}; correlation of two workers {within}"
    yield "persistence", f"of workers beside their group: {_lags(look.worker_persistence)}"
    yield "", f"of {'groups' if look.groups > 1 else 'the whole cluster'}: {_lags(look.group_persistence)}"
    yield "waiting", f"{look.lost_waiting:.1%} of the time is lost if all are waited for"
    yield (
        "cutoff",
        (
            f"always c = {look.best_static}: {look.static_speedup:.2f} times the throughput of waiting for all; "
            f"the best c of each round: {look.oracle_speedup:.2f} times"
        ),
    )


def _columns(found: Agreement) -> tuple[NDArray[Any], ...]:
    return found.cutoffs, found.trace, found.cluster, found.error


def _share(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"


def _lags(persistence: dict[int, float]) -> str:
    return ", ".join(f"lag {lag}: {_share(value)}" for lag, value in persistence.items())


def _nats(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else "impossible"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
