"""Tune every system in each case and over all laws of times, and measure its times with other seeds."""

import json
import multiprocessing
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.base.process import cores
from studies.asynchrony.cases import TASKS, WORKERS, Case, laws, main_cases, other_cases
from studies.asynchrony.systems import IN_THEORY, POINTS, SYSTEMS, system
from studies.asynchrony.units import Units
from studies.kit.study import Study
from studies.kit.tuning import KEPT, REPORTED, Settings, Tuned, tuned
from studies.kit.tuning import TUNING as TUNING_SEEDS

STUDY = Study("asynchrony", "Is asynchrony needed?", ("", "tuning"), core_hours=3)
DONE = STUDY.folder  # files of each case, from which an interrupted study goes on
IN_THE_CASE, OVER_LAWS = "case", "all laws"  # what a setting was tuned for


def measure() -> None:
    """Measure all cases that have no stored result, one process for each core, and write the tables."""
    DONE.mkdir(parents=True, exist_ok=True)
    parts: Sequence[Iterable[Case | str]] = (
        [*main_cases(messages=False)],
        TASKS,  # after the cases, whose runs they share
        [*main_cases(messages=True)],
        [*other_cases()],
    )
    with ProcessPoolExecutor(cores(), mp_context=multiprocessing.get_context("spawn")) as pool:
        for number, part in enumerate(parts, 1):
            for name in pool.map(_measured, part):
                print(f"part {number} of {len(parts)}: {name}", flush=True)
    collect()


def collect() -> None:
    """Write the tables of all that is measured so far, but of no task whose cases with the same messages are incomplete."""
    columns = [[Case(times, task, messages) for times in laws()] for messages in (False, True) for task in TASKS]
    found = [list(map(_times_of, cases)) for cases in columns]
    wanted = [path for paths in found if all(map(_is_done, paths)) for path in paths]
    done = [*wanted, *filter(_is_done, [*map(_times_of, other_cases()), *map(_over_laws, TASKS)])]
    STUDY.write("", pd.concat(map(pd.read_csv, done)))
    STUDY.write("tuning", pd.concat(map(pd.read_csv, map(_tuning_of, done))))


def _times_of(case: Case) -> Path:
    return DONE / f"{case.name}.times.csv"


def _over_laws(task: str) -> Path:
    return DONE / f"all-laws-{task.replace(' ', '-')}.times.csv"


def _tuning_of(path: Path) -> Path:
    return path.with_name(path.name.replace(".times.", ".tuning."))


def _is_done(path: Path) -> bool:
    return _tuning_of(path).is_file()


def _measured(subject: Case | str) -> str:
    """Measure a case, or one setting over all laws for a task; return its name."""
    path = _times_of(subject) if isinstance(subject, Case) else _over_laws(subject)
    if not _is_done(path):
        tables = of_case(subject) if isinstance(subject, Case) else of_laws(subject)
        for table, own in zip(tables, (path, _tuning_of(path)), strict=True):
            table.to_csv(own, index=False, float_format="%.6g")
    return path.name.partition(".")[0]


def of_case(case: Case) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the times of a case, a row for each system and reported seed; and the choices, a row for each system.

    Args:
        case: the case.
    """
    units = _units(case)
    names = SYSTEMS if case.workers == WORKERS else IN_THEORY
    choices = {name: _tuned_in(units, name) for name in names}
    times = [_reported(units, name, choice, IN_THE_CASE) for name, choice in choices.items()]
    facts = {"times": case.times, "task": case.task, "messages": case.messages, "workers": case.workers}
    return pd.concat(times), _table(choices, IN_THE_CASE, facts)


def of_laws(task: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the times and the choices with one setting over all laws, messages free.

    The candidates are the settings that were chosen for one law. The least geometric mean of the times over all laws wins.

    Args:
        task: one of TASKS, whose cases with 32 workers and free messages are measured.
    """
    cases = [_units(Case(times, task)) for times in laws()]
    chosen = pd.concat([pd.read_csv(_tuning_of(_times_of(units.case))) for units in cases])
    choices = {
        name: _best_of(cases, name, [json.loads(each) for each in chosen.loc[chosen["system"] == name, "settings"].unique()])
        for name in SYSTEMS
    }
    times = [_reported(units, name, choice, OVER_LAWS) for name, choice in choices.items() for units in cases]
    return pd.concat(times), _table(choices, OVER_LAWS, {"times": "all", "task": task, "messages": False, "workers": WORKERS})


def _units(case: Case) -> Units:
    return Units(case, DONE / f"{case.name}.units.csv")


def _tuned_in(units: Units, name: str) -> Tuned:
    knobs = system(name, units.case.workers).knobs(units.case.workers)
    return tuned(lambda some, seeds: units.scores(name, some, seeds), knobs, POINTS)


def _best_of(cases: Sequence[Units], name: str, some: Sequence[Settings]) -> Tuned:
    """Return the best of some settings over several cases: all are tried on the first seed, the best four on the others."""

    def mean(some: Sequence[Settings], seeds: Sequence[int]) -> NDArray[np.float64]:
        logarithms = np.log([units.scores(name, some, seeds) for units in cases])
        return np.asarray(np.exp(logarithms.mean(axis=0)))

    ranked = np.argsort(mean(some, TUNING_SEEDS[:1])[:, 0], kind="stable")
    best = [some[place] for place in ranked[:KEPT]]
    means = mean(best, TUNING_SEEDS).mean(axis=1)
    return Tuned(best[int(np.argmin(means))], float(means.min()), len(some), ())


def _reported(units: Units, name: str, choice: Tuned, tuned_for: str) -> pd.DataFrame:
    case = units.case
    return pd.DataFrame(
        {
            "times": case.times,
            "task": case.task,
            "messages": case.messages,
            "workers": case.workers,
            "tuned_for": tuned_for,
            "system": name,
            "tuning_seconds": choice.value,
            "seed": REPORTED,
            "seconds": units.seconds(name, choice.settings, REPORTED),
            "budget": case.budget,
        }
    )


def _table(choices: dict[str, Tuned], tuned_for: str, facts: dict[str, Any]) -> pd.DataFrame:
    rows = [
        {"system": name, "settings": json.dumps(each.settings), "seconds": each.value, "points": each.points}
        | {"edges": " ".join(each.edges)}
        for name, each in choices.items()
    ]
    found = pd.DataFrame(rows)
    for place, (column, value) in enumerate((facts | {"tuned_for": tuned_for}).items()):
        found.insert(place, column, value)
    return found
