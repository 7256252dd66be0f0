"""The page, from the measurements."""

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd

from reproductions.common import table
from studies.coverage.laws import CHOSEN_ON, JUDGED_ON, Law
from studies.coverage.measure import EIGHT, FAMILIES, FOUND, OF_TAILS, SEEDS, STOPPING, TAILS, TRIALS

QUESTION = "How often do intervals over seeds hold the truth?"
PAGE = FOUND.with_suffix(".md")
_WIDTH_AT = 5  # seeds
_OF_STOPPING = ("law", "seeds needed", "that number fixed", "stopping rule", "seeds used", "looking from 5 seeds on")


def write() -> str:
    """Write the page; return its path."""
    PAGE.write_text(text(*map(pd.read_csv, (FOUND, TAILS, FAMILIES, STOPPING))), encoding="utf-8")
    return str(PAGE.relative_to(FOUND.parents[2]))


def text(found: pd.DataFrame, tails: pd.DataFrame, families: pd.DataFrame, stopping: pd.DataFrame) -> str:
    """Return the page.

    Args:
        found: a row for each law, number of seeds, and method.
        tails: the same for intervals of a higher level.
        families: a row for each law, number of seeds, and size of a family.
        stopping: a row for each law and number of seeds needed.
    """
    columns = [f"{seeds} seeds" for seeds in SEEDS]
    tables = {
        "chosen_on": table(("law", "method", *columns, "width"), rows(found, CHOSEN_ON)),
        "judged_on": table(("law", "method", *columns, "width"), rows(found, JUDGED_ON)),
        "tails": table(("law", "method", "5 seeds", "width", "10 seeds", "width"), tail_rows(tails)),
        "families": table(("values", "seeds", "comparisons", "each alone", "by Holm's method"), family_rows(families)),
        "stopping": table(_OF_STOPPING, stopping_rows(stopping)),
    }
    words = Path(__file__).with_name("page.md").read_text(encoding="utf-8")
    return words.format(**tables, trials=TRIALS, level=100 - 5 / EIGHT)


def rows(found: pd.DataFrame, laws: Sequence[Law]) -> Iterator[list[object]]:
    """Yield a row for each law and method: coverage by number of seeds.

    Args:
        found: a row for each law, number of seeds, and method.
        laws: on which.
    """
    for law in laws:
        for method, own in found[found["law"] == law.name].groupby("method", sort=False):
            by_seeds = own.set_index("seeds").to_dict("index")
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
    for (law, method), own in tails.groupby(["law", "method"], sort=False):
        by_seeds = own.set_index("seeds").to_dict("index")
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
