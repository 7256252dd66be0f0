"""The page and its figure, from the measurements."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd

from reproductions.common import table
from studies.local_updates import home
from studies.local_updates.claims import LOSS, SECONDS, Experiment
from studies.local_updates.compared import Found, Verdict, values_of
from studies.local_updates.figure import draw
from studies.local_updates.measure import FOUND, ROOT, experiments

QUESTION = "Do the claims made for local updates hold where they are smallest?"
HERE = Path(__file__).parent
PAGE, FIGURE = FOUND.with_suffix(".md"), FOUND.with_suffix(".svg")
_MISSES, _MISSES_SKEWED = 0.05, 0.18  # shares of intervals over five seeds that miss the truth, in `coverage.md`
_COUNTED = ("experiment", "task", "claims", *Verdict)


def write() -> str:
    """The figure and the page; its path, from the repository on."""
    rows = pd.read_csv(FOUND)
    draw(rows).save(FIGURE)
    PAGE.write_text(text(rows), encoding="utf-8")
    return str(PAGE.relative_to(ROOT))


def text(rows: pd.DataFrame) -> str:
    """The page.

    Args:
        rows: one for each experiment, system and seed.
    """
    made = [(each, own) for each in experiments() if len(own := rows_of(rows, each))]
    found = [(each, [Found(claim, own) for claim in each.claims]) for each, own in made]
    verdicts = Counter(one.verdict for _, own in found for one in own)
    kinds = Counter((one.claim.quantity.ratio, one.verdict == Verdict.AGREES) for _, own in found for one in own)
    systems = rows.drop_duplicates(["experiment", "task", "system"])
    words = {verdict.name.lower(): verdicts[verdict] for verdict in Verdict}
    return (
        (HERE / "page.md")
        .read_text(encoding="utf-8")
        .format(
            **words,
            claims=verdicts.total(),
            false=round(_MISSES * verdicts.total()),
            false_skewed=round(_MISSES_SKEWED * verdicts.total()),
            ratios=kinds[True, True] + kinds[True, False],
            ratios_agree=kinds[True, True],
            losses=kinds[False, True] + kinds[False, False],
            losses_agree=kinds[False, True],
            experiments=len(made),
            left=_left(rows),
            systems=len(systems),
            points=systems["points"].sum(),
            edges=systems["edge"].sum(),
            home=table(
                home.HEADER, home.rows({(each.name, each.task, one.claim.said): one for each, own in found for one in own})
            ),
            counts=table(_COUNTED, _counts(found)),
            found="\n\n".join(_section(each, own) for each, own in found),
            all=table(("experiment", "task", "system", "its point", "loss", "s to the target"), _systems(made)),
        )
    )


def rows_of(rows: pd.DataFrame, experiment: Experiment) -> pd.DataFrame:
    """An experiment's own.

    Args:
        rows: one for each experiment, system and seed.
        experiment: which.
    """
    return rows[(rows["experiment"] == experiment.name) & (rows["task"] == experiment.task)]


def _left(rows: pd.DataFrame) -> str:
    names = [f"{each.name} ({each.task})" for each in experiments() if rows_of(rows, each).empty]
    return f"- Not measured yet: {', '.join(names)}.\n" if names else ""


def _counts(found: Iterable[tuple[Experiment, list[Found]]]) -> Iterator[list[object]]:
    for experiment, own in found:
        verdicts = Counter(one.verdict for one in own)
        yield [experiment.name, experiment.task, len(own), *(verdicts[verdict] for verdict in Verdict)]


def _section(experiment: Experiment, found: list[Found]) -> str:
    claims = [(one.claim.said, one.claim.source, one.expected, one.said, _marked(one.verdict)) for one in found]
    setting = f"{experiment.setting[0].upper()}{experiment.setting[1:]}."
    header = ("expected", "of whom", "should be", "is", "")
    return f"### {experiment.name.capitalize()}, {experiment.task}\n\n{setting}\n\n{table(header, claims)}"


def _marked(verdict: Verdict) -> str:
    return f"**{verdict}**" if verdict == Verdict.DISAGREES else str(verdict)


def _systems(made: Iterable[tuple[Experiment, pd.DataFrame]]) -> Iterator[list[object]]:
    for experiment, own in made:
        for system in experiment.systems:
            first = own[own["system"] == system].iloc[0]
            point = f"{first['point'].replace('learning_rate', 'rate')}{' (edge)' if first['edge'] else ''}"
            loss, above = values_of(own, system, LOSS)
            seconds, never = values_of(own, system, SECONDS)
            asked = "target_loss" in experiment.settings.get("evaluate", {})
            time = f"{'> ' if never else ''}{seconds.mean():.0f}" if asked else "–"
            yield [experiment.name, experiment.task, system, point, f"{'> ' if above else ''}{loss.mean():.3f}", time]
