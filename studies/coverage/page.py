"""The page, from the measurements."""

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence

import pandas as pd

from fred.base.intervals import MISSES
from studies.coverage.measure import CHOSEN_ON, EIGHT, JUDGED_ON, MOST, OF_FAMILIES, OF_TAILS, SEEDS, STUDY, TRIALS, Law
from studies.kit import effort
from studies.kit.pages import table
from studies.kit.study import Tables

_WIDTH_AT = 5  # seeds
_OF_STOPPING = ("law", "seeds needed", "that number fixed", "stopping rule", "seeds used", "looking from 5 seeds on")


def text(tables: Tables) -> str:
    """Return the page.

    Args:
        tables: shares of intervals that hold the mean; the same of a higher level; families; stopping rules.
    """
    columns = [f"{seeds} seeds" for seeds in SEEDS]
    parts = {
        "chosen_on": table(("law", "method", *columns, "width"), rows(tables[""], CHOSEN_ON)),
        "judged_on": table(("law", "method", *columns, "width"), rows(tables[""], JUDGED_ON)),
        "tails": table(("law", "method", "5 seeds", "width", "10 seeds", "width"), tail_rows(tables["tails"])),
        "families": table(
            ("values", "seeds", "comparisons", "each alone", "by Holm's method"), family_rows(tables["families"])
        ),
        "stopping": table(_OF_STOPPING, stopping_rows(tables["stopping"])),
        "effort": effort.block(
            STUDY,
            f"3 to {MOST}, {TRIALS:,} draws of each",
            {
                "share of intervals that hold the mean, points": _halves(tables[""]["holds"], TRIALS),
                "share of families with a false verdict, points": _halves(tables["families"]["together"], OF_FAMILIES),
            },
        ),
    }
    return STUDY.fill(parts | {"trials": TRIALS, "level": 100 - 100 * MISSES / EIGHT})


def _halves(shares: "pd.Series[float]", draws: int) -> list[float]:
    """Return half the width of each share's 95 % interval, in points."""
    return [100 * 1.96 * math.sqrt(share * (1 - share) / draws) for share in shares]


def rows(shares: pd.DataFrame, laws: Sequence[Law]) -> Iterator[list[object]]:
    """Yield a row for each law and method: coverage by number of seeds.

    Args:
        shares: a row for each law, number of seeds, and method.
        laws: on which.
    """
    for law in laws:
        for method, group in shares[shares["law"] == law.name].groupby("method", sort=False):
            by_seeds = group.set_index("seeds").to_dict("index")
            cells = (_cell(by_seeds[seeds]) for seeds in SEEDS)
            width = by_seeds[_WIDTH_AT]["width"]
            yield [law.name, method, *cells, "–" if math.isnan(width) else f"{width:.2f}"]


def _cell(row: Mapping[Hashable, float]) -> str:
    return f"{100 * row['holds']:.1f} ({100 * row['below']:.1f}, {100 * row['above']:.1f})"


def tail_rows(tails: pd.DataFrame) -> Iterator[list[object]]:
    """Yield a row for each law and method: coverage and median width relative to Student's.

    Args:
        tails: a row for each law, number of seeds, and method.
    """
    for (law, method), group in tails.groupby(["law", "method"], sort=False):
        by_seeds = group.set_index("seeds").to_dict("index")
        cells = ((f"{100 * by_seeds[seeds]['holds']:.1f}", f"{by_seeds[seeds]['width']:.2f}") for seeds in OF_TAILS)
        yield [law, method, *(cell for pair in cells for cell in pair)]


def family_rows(families: pd.DataFrame) -> Iterator[list[object]]:
    """Yield a row for each law and size of a family.

    Args:
        families: shares of families with a false verdict.
    """
    for row in families.to_dict("records"):
        yield [row["law"], row["seeds"], row["comparisons"], f"{100 * row['alone']:.1f}", f"{100 * row['together']:.1f}"]


def stopping_rows(stopping: pd.DataFrame) -> Iterator[list[object]]:
    """Yield a row for each law and number of seeds needed: coverage with that number fixed, and with the stopping rule.

    Args:
        stopping: shares of intervals that hold the mean.
    """
    for row in stopping.to_dict("records"):
        shares = {name: f"{100 * row[name]:.1f}" for name in ("fixed", "stopping", "early")}
        yield [row["law"], row["needed"], shares["fixed"], shares["stopping"], f"{row['seeds']:.0f}", shares["early"]]
