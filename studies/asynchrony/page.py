"""The page, from the times that were measured."""

import pandas as pd

from reproductions.common import table
from studies.asynchrony import rows
from studies.asynchrony.cases import OTHER_NUMBERS, WORKERS
from studies.asynchrony.measure import IN_THE_CASE, STUDY
from studies.asynchrony.systems import POINTS, SYSTEMS
from studies.kit import effort
from studies.kit.study import Tables
from studies.kit.tuning import REPORTED

_ABSENT = "Not measured yet."
_NUMBERS = sorted({WORKERS, *OTHER_NUMBERS})
_OF_THEORY = ("task", "gradients take", *(f"n = {each}: {what}" for each in _NUMBERS for what in ("theory", "measured")))


def text(tables: Tables) -> str:
    """Return the page.

    Args:
        tables: one row for each case, system and seed; and one for each case and system.
    """
    times, tuning = tables[""], tables["tuning"]
    tasks = rows.tasks_over_laws(times)
    by_case = {name: rows.by_case(times, question) for name, question in rows.QUESTIONS.items()}
    made = {
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
    return STUDY.fill(made | facts)


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
    searches = tuning[tuning["tuned_for"] == IN_THE_CASE].assign(chosen=True)
    return effort.block(STUDY, REPORTED, {}, halves, searches, ("times", "task", "messages", "workers", "system"))
