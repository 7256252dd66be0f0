"""The tables of a diagnosis for the terminal and the page: the numbers of its JSON, rounded."""

import math
import textwrap
from collections.abc import Iterator

from fred.base.numbers import percent
from fred.diagnosis.findings import Diagnosis, Gain
from fred.views.table import NONE, Table

_NAME = 28  # letters of a line of a remedy's name


def of(found: Diagnosis) -> Iterator[Table]:
    """Yield the tables: slow workers and nodes, if there are any, and all remedies.

    Args:
        found: findings about a trace.
    """
    if found.slowness.slow:
        yield _slow(found)
    yield _remedies(found)


def _slow(found: Diagnosis) -> Table:
    rows: list[tuple[str, ...]] = [
        (
            _wrapped(each.name),
            each.pattern,
            f"{each.times:.2f}",
            _share(each.share),
            str(len(each.spells)) if each.spells else NONE,
            f"{each.alone:.2f}",
            _share(each.lost),
        )
        for each in found.slowness.slow
    ]
    lost = found.slowness
    some = any(each.spells for each in lost.slow)
    number = NONE if some and not lost.spells else str(len(lost.spells))  # named ones are slow in turn: a round costs the same
    rows.append(("all workers", "", "", "", number, f"{lost.slowdown:.2f}", "100 %"))
    return Table(
        ("who", "when", "times", "of the time", "spells", "slowdown", "of the loss"),
        rows,
        "Who is slow",
        "times: slower than the others; slowdown: of all rounds, if only these were slow; of the loss: part that goes if only "
        "these are repaired, which may add up to more or less than 100 %",
        words=2,
    )


def _remedies(found: Diagnosis) -> Table:
    rows = [_row(each, found) for each in found.gains]
    bound = found.bound
    rows.append((_wrapped(bound.remedy.name), _gain(bound), _interval(bound), "", ""))
    return Table(
        ("remedy", "gain", "95 % interval", "dropped", "data of"),
        rows,
        "What helps",
        f"gain: gradients per second, relative to waiting for all ({found.every.played.throughput():,.4g}), in the same "
        f"{found.rounds} rounds; data of: effective number of workers whose data are used, and how many are excluded: fewer "
        "than 5 % of their gradients are used",
    )


def _row(each: Gain, found: Diagnosis) -> tuple[str, ...]:
    fair = each.fairness
    excluded = f", {len(fair.excluded)} excluded" if fair.excluded else ""
    return _wrapped(each.remedy.name), _gain(each), _interval(each), _share(fair.dropped), f"{fair.effective:.1f}{excluded}"


def _wrapped(name: str) -> str:
    """Return a name in lines that leave room for the other columns in a terminal of 80."""
    return "\n".join(textwrap.wrap(name, _NAME))


def _gain(each: Gain) -> str:
    return f"{percent(each.ratio.value)} %"


def _interval(each: Gain) -> str:
    return f"{percent(each.ratio.low)} to {percent(each.ratio.high)} %" if each.ratio.known else NONE


def _share(share: float) -> str:
    return NONE if math.isnan(share) else f"{100 * share:.3g} %"
