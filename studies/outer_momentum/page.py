"""The page and its figure: differences between momenta in each case, seed by seed; the cases of one question are a family."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from fred.base.intervals import Verdict
from fred.views.figures import Picture, style
from studies.kit import effort, figure
from studies.kit.difference import Difference
from studies.kit.pages import by_case, count, table
from studies.kit.study import Tables
from studies.kit.tuning import REPORTED
from studies.outer_momentum.cases import CASES, MOMENTA, PAIRS, Case
from studies.outer_momentum.measure import STUDY

MARGIN = 0.02  # nats: losses that are nearer to each other are equal
LABELS = [case.label for case in CASES.values()]
COLUMNS = {  # way to choose rates, and momentum, by header
    **{f"{kind}, {momentum:g}": (kind, momentum) for kind in ("tuned", "matched") for momentum in MOMENTA[1:]},
    "0.7 / 0.9": ("published", MOMENTA[-1]),
}
_LEGEND = {"tuned": "rates tuned for it", "matched": "same effective step", "published": "0.7 and 0.9, as published"}


def label_cases(losses: pd.DataFrame) -> pd.DataFrame:
    """Return the losses with a column `label` of their cases.

    Args:
        losses: one row for each case, way to choose rates, momentum and seed.
    """
    keys = losses[list(Case.__dataclass_fields__)].itertuples(index=False)
    return losses.assign(label=[Case(*key).label for key in keys])


def differences(losses: pd.DataFrame, kind: str, momentum: float) -> dict[str, Difference]:
    """Return the loss with a momentum less that of plain averages at their best, in each case that has both.

    Args:
        losses: one row for each case by its label, way to choose rates, momentum and seed.
        kind: how rates were chosen: `tuned`, `matched` or `published`.
        momentum: mu.
    """
    table = losses.pivot(index=["label", "seed"], columns=["kind", "momentum"], values="loss")
    added = (table[kind, momentum] - table["tuned", 0.0]).dropna()
    return Difference.family({label: added[label].to_numpy(float) for label in LABELS if label in added})


def published_rounds(losses: pd.DataFrame) -> dict[tuple[str, str], Difference]:
    """Return the losses with the published momentum less those without, where both rates lie inside their grid: a family.

    Args:
        losses: a row for each task, system and seed.
    """
    inside = losses[~losses["edge"]].pivot(index="seed", columns=["task", "system"], values="loss")
    pairs = {(task, words): [(task, system) for system in systems] for (task, words), systems in PAIRS.items()}
    samples = {key: inside[pair[0]] - inside[pair[1]] for key, pair in pairs.items() if set(pair) <= set(inside)}
    return Difference.family({key: sample.to_numpy(float) for key, sample in samples.items()})


def text(tables: Tables) -> str:
    """Return the page.

    Args:
        tables: a row for each case, way to choose rates, momentum and seed; and the rounds with published momentum.
    """
    losses, rounds = label_cases(tables[""]), published_rounds(tables["published"])
    families = {header: differences(losses, *way) for header, way in COLUMNS.items()}
    tuned = losses[losses["kind"] == "tuned"]
    averages = tuned[tuned["momentum"] == 0].groupby("label")["loss"].mean()
    edges = np.where(tuned["at_the_edge"], "rate", "")
    searches = tuned.assign(chosen=True, edges=edges).drop(columns="seed")
    parts: dict[str, object] = {
        "cases": len(LABELS),
        "margin": MARGIN,
        **{f"{inner}_more": f"{averages[f'inner {inner}'] - averages['base']:.3f}" for inner in ("sgd", "muon")},
        **{f"{kind}_{10 * momentum:.0f}": _facts(families[header]) for header, (kind, momentum) in COLUMNS.items()},
        "rounds_lower": count(difference.lower for difference in rounds.values()),
        "home": by_case(families, LABELS, lambda column, label: _cell(families[column].get(label)), "case"),
        "rates": table(("case", "rho", *(f"{mu:g}: inner, outer rate, step" for mu in MOMENTA), "points"), _rates(tuned)),
        "rounds": table(("task", "rounds", "difference"), ([*key, difference.cell()] for key, difference in rounds.items())),
    }
    halves: effort.Families = {name: family.values() for name, family in families.items()}
    halves = {**halves, "published momentum in rounds": rounds.values()}
    parts["effort"] = effort.block(STUDY, REPORTED, halves, trials=searches, by=["label", "momentum"])
    return STUDY.fill(parts)


def _cell(difference: Difference | None) -> str:
    return difference.cell() if difference else "–"


def _facts(family: dict[str, Difference]) -> dict[str, object]:
    """Return the numbers in the page's sentences about a momentum: mean differences by case and their ends, and verdicts."""
    means = {label: difference.mean.value for label, difference in family.items()}
    lower, equal = zip(*((difference.lower, difference.equals_within(MARGIN)) for difference in family.values()), strict=True)
    return {
        **{label: f"{mean:+.3f}" for label, mean in means.items()},
        "least": f"{min(means.values()):+.3f}",
        "most": f"{max(means.values()):+.3f}",
        "best": min(means, key=means.__getitem__),
        "worst": max(means, key=means.__getitem__),
        "lower": count(lower),
        "equal": count(equal),
        "better": lower.count(Verdict.YES),
        "worse": lower.count(Verdict.NO),
        "close": equal.count(Verdict.YES),
    }


def _rates(tuned: pd.DataFrame) -> Iterator[list[object]]:
    """Yield the correlation, the chosen rates with their effective step, and the number of points of each case."""
    for label in LABELS:
        choices = tuned[tuned["label"] == label].drop_duplicates("momentum").to_dict("records")
        cells = [f"{row['learning_rate']:.3g}, {row['outer_rate']:.3g}, {row['step']:.2g}" for row in choices]
        points = ", ".join(f"{row['points']:.0f}" for row in choices)
        yield [label, f"{choices[0]['correlation']:.2f}", *cells, points]


def draw(tables: Tables) -> Picture:
    """Draw the differences of all cases, a panel for each momentum.

    Args:
        tables: the first has a row for each case, way to choose rates, momentum and seed.
    """
    losses = label_cases(tables[""])
    with style():
        picture = Picture(figsize=(9, 6.2), layout="constrained")
        panels = picture.subplots(1, 2, sharey=True)
        for axes, momentum in zip(panels, MOMENTA[1:], strict=True):
            ways = {_LEGEND[way[0]]: way for way in COLUMNS.values() if way[1] == momentum}
            figure.intervals(axes, LABELS, {words: differences(losses, *way) for words, way in ways.items()})
            axes.axvspan(-MARGIN, MARGIN, color="0.9", zorder=0)
            axes.set_xscale("symlog", linthresh=0.05)
            axes.set_xticks([-0.05, 0, 0.05, 0.2, 1], ["-0.05", "0", "0.05", "0.2", "1"])
            axes.set_title(f"momentum {momentum:g}")
            axes.set_xlabel("loss less that of plain averages, nats")
        picture.legend(*panels[1].get_legend_handles_labels(), loc="outside lower center", ncols=len(_LEGEND))
    return picture
