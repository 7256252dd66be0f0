"""The page and its figure, from the times that were measured."""

import pandas as pd

from reproductions.common import table
from studies.asynchrony import rows
from studies.asynchrony.cases import OTHER_NUMBERS, WORKERS
from studies.asynchrony.figure import draw
from studies.asynchrony.measure import IN_THE_CASE, ROOT, TIMES, TUNING
from studies.asynchrony.systems import POINTS, SYSTEMS
from studies.kit import effort
from studies.kit.study import Study
from studies.kit.tuning import REPORTED

STUDY = Study("asynchrony", "Is asynchrony needed?", ("", "tuning"), core_hours=3)
PAGE, FIGURE = TIMES.with_suffix(".md"), TIMES.with_suffix(".svg")
_ABSENT = "Not measured yet."
_NUMBERS = sorted({WORKERS, *OTHER_NUMBERS})
_OF_THEORY = ("task", "gradients take", *(f"n = {each}: {what}" for each in _NUMBERS for what in ("theory", "measured")))


def write() -> str:
    """Write the figure and the page; return its path, from the repository on."""
    times, tuning = pd.read_csv(TIMES), pd.read_csv(TUNING)
    draw(times).save(FIGURE)
    PAGE.write_text(text(times, tuning), encoding="utf-8")
    return str(PAGE.relative_to(ROOT))


def text(times: pd.DataFrame, tuning: pd.DataFrame) -> str:
    """Return the page.

    Args:
        times: one row for each case, system and seed.
        tuning: one row for each case and system.
    """
    tasks = rows.tasks_over_laws(times)
    by_case = {name: rows.by_case(times, question) for name, question in rows.QUESTIONS.items()}
    tables = {
        "home": table(("gradients take", *rows.TITLES.values(), "fastest most often"), rows.home(times)),
        **{name: table(("gradients take", *rows.headings(times)), rows.of_question(found)) for name, found in by_case.items()},
        "robust": table(("system", *tasks, "over the best, tuned"), rows.robust(times)) if tasks else _ABSENT,
        "settings": table(("system", *tasks), rows.settings(tuning)) if tasks else _ABSENT,
        "theory": table(_OF_THEORY, rows.theory_rows(times)),
        "systems": table(("system", "within 10 % of the best", "always there", "median of time / best"), rows.systems(times)),
        "edges": table(("system", "choices", "least rate", "largest rate", "least size", "largest size"), rows.edges(tuning)),
        "all": table(("task", "messages", "gradients take", *SYSTEMS), rows.all_cases(times)),
    }
    facts = rows.facts(times, tuning) | {"points": POINTS, "effort": _effort(times, tuning)}
    return STUDY.fill(tables | facts)


def _effort(times: pd.DataFrame, tuning: pd.DataFrame) -> str:
    halves = {
        f"{title}, {unit}": [(ratio.interval[1] - ratio.interval[0]) / 2 for ratio in found.values()]
        for name, title in rows.TITLES.items()
        for unit, found in (
            ("by law", rows.by_law(times, rows.QUESTIONS[name])),
            ("by case", rows.by_case(times, rows.QUESTIONS[name])),
            ("for another law", {"": rows.over_laws(rows.by_law(times, rows.QUESTIONS[name]))}),
        )
    }
    tried = tuning.assign(chosen=True, edges=tuning["edges"].fillna(""))
    searches = tried[tried["tuned_for"] == IN_THE_CASE]
    return effort.block(STUDY, REPORTED, {}, halves, searches, ("times", "task", "messages", "workers", "system"))
