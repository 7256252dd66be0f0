"""The page, from the losses that were measured."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from reproductions.common import table
from studies.kit import effort
from studies.kit.difference import Difference
from studies.kit.pages import count
from studies.kit.study import Tables
from studies.outer_momentum.cases import MOMENTA, REPORTED
from studies.outer_momentum.compared import CASE, MARGIN, chosen, differences
from studies.outer_momentum.figure import name
from studies.outer_momentum.measure import STUDY
from studies.outer_momentum.rounds import pairs

_ROWS = {"base": "base", "h4": "H = 4", "long": "2,048 steps"}  # that the conclusion names
_ROUNDS = ("task", "rounds", "with 0.9 less plain averages")
_RATES = (
    "case",
    "rho",
    "plain: inner, outer rate",
    "0.5: inner, outer rate, step",
    "0.9: inner, outer rate, step",
    "points tried",
)


def text(tables: Tables) -> str:
    """Return the page.

    Args:
        tables: a row for each case, way to choose rates, momentum and seed; and the rounds with published momentum.
    """
    losses, published = tables[""], differences(tables[""], "published", MOMENTA[-1])
    with_published = of_published(tables["published"])
    facts: dict[str, object] = {"cases": losses.groupby(CASE).ngroups, "margin": MARGIN} | _of_margin(losses)
    families = {"0.7 and 0.9 (published)": published.values(), "the published momentum in rounds": with_published.values()}
    for mu in MOMENTA[1:]:
        key = f"{10 * mu:.0f}"
        tuned, matched = differences(losses, "tuned", mu), differences(losses, "matched", mu)
        families |= {f"momentum {mu}, {way}": family.values() for way, family in (("tuned", tuned), ("matched", matched))}
        named = {name(case): difference for case, difference in tuned.items()}
        values = {case: difference.mean.value for case, difference in named.items()}
        least = min(values, key=values.__getitem__)
        facts |= {
            f"lower_{key}": count(difference.lower for difference in tuned.values()),
            f"tuned_equal_{key}": count(difference.within(MARGIN) for difference in tuned.values()),
            f"matched_equal_{key}": count(difference.within(MARGIN) for difference in matched.values()),
            f"least_{key}": f"{values[least]:+.3f}",
            f"most_{key}": f"{max(values.values()):+.3f}",
            f"best_{key}": least,
            f"worst_{key}": max(values, key=values.__getitem__),
            f"sure_{key}": sum(difference.lower != "open" for difference in named.values()),
            f"better_{key}": sum(difference.lower == "yes" for difference in named.values()),
            f"worse_{key}": sum(difference.lower == "no" for difference in named.values()),
            f"equal_{key}": sum(difference.within(MARGIN) == "yes" for difference in named.values()),
        }
        facts |= {f"{word}_{key}": f"{values[row]:+.3f}" for word, row in _ROWS.items()}
    cells = {name(case): f"{difference.mean.value:+.3f}" for case, difference in published.items()}
    facts |= {f"{word}_p": cells[row] for word, row in _ROWS.items()}
    facts["published_lower"] = count(difference.lower for difference in published.values())
    facts["rounds_lower"] = count(difference.lower for difference in with_published.values())
    ways = (*(f"{kind}, {mu:g}" for kind in ("tuned", "matched") for mu in MOMENTA[1:]), "0.7 / 0.9")
    made = {
        "home": table(("case", *ways), home_rows(losses)),
        "own": table(("case", *(f"tuned, {mu:g}" for mu in MOMENTA[1:])), own_rows(losses)),
        "rates": table(_RATES, rate_rows(losses)),
        "rounds": table(
            ("task", "rounds", "with 0.9 less plain averages"),
            ([*key, difference.cell()] for key, difference in with_published.items()),
        ),
        "effort": effort.block(STUDY, REPORTED, families, tried=_searches(losses), by=[*CASE, "momentum"]),
    }
    return STUDY.fill(made | facts)


def _searches(losses: pd.DataFrame) -> pd.DataFrame:
    tuned = losses[losses["kind"] == "tuned"]
    return tuned.assign(chosen=True, edges=np.where(tuned["at_the_edge"].astype(str) == "True", "rate", "")).drop(
        columns="seed"
    )


def _of_margin(losses: pd.DataFrame) -> dict[str, object]:
    """Return the loss that another inner optimizer adds to that of AdamW at the base point, with plain averages."""
    plain = losses[(losses["kind"] == "tuned") & (losses["momentum"] == 0) & losses["factor"].isin(["base", "inner"])]
    means = plain.groupby("inner")["loss"].mean()
    return {f"{inner}_more": f"{means[inner] - means['adamw']:.3f}" for inner in ("sgd", "muon")}


def of_published(losses: pd.DataFrame) -> dict[tuple[str, str], Difference]:
    """Return the losses with the published momentum less those without, where both rates lie inside their grid: a family.

    Args:
        losses: a row for each task, system and seed.
    """
    by_system = {key: own.sort_values("seed") for key, own in losses.groupby(["task", "system"])}
    return Difference.family(
        {
            key: (by_system[key[0], one]["loss"].to_numpy() - by_system[key[0], other]["loss"].to_numpy())
            for key, (one, other) in pairs().items()
            if not any(by_system[key[0], system]["edge"].any() for system in (one, other))
        }
    )


def home_rows(losses: pd.DataFrame) -> Iterator[list[object]]:
    """Yield for each case what each momentum adds to the loss, tuned and matched.

    Args:
        losses: one row for each case, way to choose rates, momentum and seed.
    """
    ways = [(kind, mu) for kind in ("tuned", "matched") for mu in MOMENTA[1:]]
    columns = [differences(losses, *way) for way in [*ways, ("published", MOMENTA[-1])]]
    for case in columns[0]:
        yield [name(case), *(column[case].cell() if case in column else "–" for column in columns)]


def own_rows(losses: pd.DataFrame) -> Iterator[list[object]]:
    """Yield what each momentum adds to the loss of a worker's own model, where that is another one than the mean.

    Args:
        losses: one row for each case, way to choose rates, momentum and seed.
    """
    differing = losses[(losses["own_loss"] - losses["loss"]).abs() > 1e-6]
    some = losses.merge(differing[CASE].drop_duplicates(), on=CASE)
    columns = [differences(some, "tuned", mu, "own_loss") for mu in MOMENTA[1:]]
    for case in columns[0]:
        yield [name(case), *(column[case].cell() for column in columns)]


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
