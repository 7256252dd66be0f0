"""The page and its figure, from the losses that were measured."""

from collections.abc import Iterator

import pandas as pd

from reproductions.common import table
from studies.outer_momentum.cases import HERE, MOMENTA
from studies.outer_momentum.compared import CASE, MARGIN, chosen, count, differences
from studies.outer_momentum.figure import draw, name
from studies.outer_momentum.measure import LOSSES, ROOT

QUESTION = "Is outer momentum more than a larger step?"
PAGE, FIGURE = LOSSES.with_suffix(".md"), LOSSES.with_suffix(".svg")
_ROWS = {"base": "base", "h4": "H = 4", "long": "2,048 steps"}  # that the conclusion names


def write() -> str:
    """Write the figure and the page; return its path, from the repository on."""
    losses = pd.read_csv(LOSSES)
    draw(losses).save(FIGURE)
    PAGE.write_text(text(losses), encoding="utf-8")
    return str(PAGE.relative_to(ROOT))


def text(losses: pd.DataFrame) -> str:
    """Return the page.

    Args:
        losses: one row for each case, way to choose rates, momentum and seed.
    """
    facts: dict[str, object] = {"cases": losses.groupby(CASE).ngroups, "margin": MARGIN}
    for mu in MOMENTA[1:]:
        key = f"{10 * mu:.0f}"
        tuned, matched = differences(losses, "tuned", mu), differences(losses, "matched", mu)
        facts |= {
            f"lower_{key}": count(each.lower for each in tuned.values()),
            f"tuned_equal_{key}": count(each.within(MARGIN) for each in tuned.values()),
            f"matched_equal_{key}": count(each.within(MARGIN) for each in matched.values()),
        }
        named = {name(case): each.mean.value for case, each in tuned.items()}
        least = min(named, key=named.__getitem__)
        facts |= {f"least_{key}": f"{named[least]:+.3f}", f"most_{key}": f"{max(named.values()):+.3f}", f"best_{key}": least}
        facts |= {f"{word}_{key}": f"{named[row]:+.3f}" for word, row in _ROWS.items()}
    published = differences(losses, "published", MOMENTA[-1])
    facts |= {
        f"{word}_p": f"{each.mean.value:+.3f}"
        for case, each in published.items()
        for word, row in _ROWS.items()
        if name(case) == row
    }
    facts["published_lower"] = count(each.lower for each in published.values())
    tables = {
        "home": table(
            ("case", *(f"{kind}, {mu:g}" for kind in ("tuned", "matched") for mu in MOMENTA[1:]), "0.7 / 0.9"),
            home_rows(losses),
        ),
        "own": table(("case", *(f"tuned, {mu:g}" for mu in MOMENTA[1:])), own_rows(losses)),
        "rates": table(_RATES, rate_rows(losses)),
    }
    return (HERE / "page.md").read_text(encoding="utf-8").format(**tables, **facts)


_RATES = (
    "case",
    "rho",
    "plain: inner, outer rate",
    "0.5: inner, outer rate, step",
    "0.9: inner, outer rate, step",
    "points tried",
)


def home_rows(losses: pd.DataFrame) -> Iterator[list[object]]:
    """Yield for each case what each momentum adds to the loss, tuned and matched.

    Args:
        losses: one row for each case, way to choose rates, momentum and seed.
    """
    ways = [(kind, mu) for kind in ("tuned", "matched") for mu in MOMENTA[1:]]
    columns = [differences(losses, *way) for way in [*ways, ("published", MOMENTA[-1])]]
    for case in columns[0]:
        yield [name(case), *(column[case].said() if case in column else "–" for column in columns)]


def own_rows(losses: pd.DataFrame) -> Iterator[list[object]]:
    """Yield what each momentum adds to the loss of a worker's own model, where that is another one than the mean.

    Args:
        losses: one row for each case, way to choose rates, momentum and seed.
    """
    differing = losses[(losses["own_loss"] - losses["loss"]).abs() > 1e-6]
    some = losses.merge(differing[CASE].drop_duplicates(), on=CASE)
    columns = [differences(some, "tuned", mu, "own_loss") for mu in MOMENTA[1:]]
    for case in columns[0]:
        yield [name(case), *(column[case].said() for column in columns)]


def rate_rows(losses: pd.DataFrame) -> Iterator[list[object]]:
    """Yield the correlation, the chosen rates and the number of points of each case.

    Args:
        losses: one row for each case, way to choose rates, momentum and seed.
    """
    for case, own in losses.groupby(CASE, sort=False):
        rows = [chosen(own, mu) for mu in MOMENTA]
        cells = [
            f"{row['learning_rate']:.3g}, {row['outer_rate']:.3g}"
            + (f", {row['step']:.2g}" if mu else "")
            + (" (edge)" if row["at_the_edge"] else "")
            for mu, row in zip(MOMENTA, rows, strict=True)
        ]
        yield [name(case), f"{rows[0]['correlation']:.2f}", *cells, ", ".join(f"{row['points']:.0f}" for row in rows)]
