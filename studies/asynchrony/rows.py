"""Rows of the page's tables, and the numbers in its sentences."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from studies.asynchrony import theory
from studies.asynchrony.cases import FIXED, IN_PROPORTION, OTHER_NUMBERS, TASKS, UNEQUAL, WORKERS, Case
from studies.asynchrony.compared import (
    CASE,
    Ratio,
    chosen,
    mean_ratio,
    medians,
    pooled,
    ratio,
    seconds_of,
    together,
    tuned_cases,
    untuned_cases,
)
from studies.asynchrony.measure import IN_THE_CASE, OVER_LAWS
from studies.asynchrony.systems import FREE, FRESH, IN_THEORY, M_SYNC, ROUNDS, STALE, SYSTEMS, system

_FEW_LOOKS = 20  # with fewer, times are coarse
STEADY = "worker i takes i s"
_NUMBERS = sorted({WORKERS, *OTHER_NUMBERS})
_Key = tuple[Any, ...]


class Question(NamedTuple):
    """Two groups of systems, of which one may be faster.

    Args:
        slow: systems of the numerator.
        fast: systems of the denominator.
    """

    slow: tuple[str, ...]
    fast: tuple[str, ...]


QUESTIONS = {"stale": Question(FRESH, STALE), "waiting": Question(ROUNDS, FREE)}
TITLES = {"stale": "no stale gradients / stale gradients", "waiting": "rounds / no waiting for particular workers"}


def by_case(times: pd.DataFrame, question: Question) -> dict[_Key, Ratio]:
    """Return the ratios of all cases with 32 workers; those of one task, with messages or without, are a family.

    Args:
        times: one row for each case, system and seed.
        question: groups that are compared.
    """
    alone = {key: ratio(own, *question) for key, own in tuned_cases(times).items()}
    found: dict[_Key, Ratio] = {}
    for column in dict.fromkeys(key[:3] for key in alone):
        found |= together({key: each for key, each in alone.items() if key[:3] == column})
    return {key: found[key] for key in alone}


def by_law(times: pd.DataFrame, question: Question) -> dict[str, Ratio]:
    """Return for each law the geometric mean of the ratios over tasks and messages, as a family.

    Args:
        times: one row for each case, system and seed.
        question: groups that are compared.
    """
    cases = tuned_cases(times)
    alone = {law: pooled([own for key, own in cases.items() if key[3] == law], *question) for law in _laws(cases)}
    return together(alone)


def over_laws(laws: Mapping[str, Ratio], but: str = "") -> Ratio:
    """Return the mean over laws with the laws as the unit: its interval is for a law that was not measured.

    Args:
        laws: ratios by law.
        but: law that is left out; empty: none.
    """
    some = [ratio for law, ratio in laws.items() if law != but]
    values = np.array([ratio.logarithm.value for ratio in some])
    return Ratio.of(values, any(ratio.least for ratio in some), any(ratio.most for ratio in some))


def over_seeds(times: pd.DataFrame, question: Question) -> Ratio:
    """Return the mean over all cases with the seeds as the unit: its interval is for these laws alone.

    Args:
        times: one row for each case, system and seed.
        question: groups that are compared.
    """
    return pooled(tuned_cases(times).values(), *question)


def columns(times: pd.DataFrame) -> list[tuple[bool, str]]:
    """Return messages and task of all columns of cases with 32 workers that are measured.

    Args:
        times: one row for each case, system and seed.
    """
    measured = {key[1:3] for key in tuned_cases(times)}
    return [(messages, task) for messages in (False, True) for task in TASKS if (messages, task) in measured]


def headings(times: pd.DataFrame) -> list[str]:
    """Return the names of these columns.

    Args:
        times: one row for each case, system and seed.
    """
    return [f"{task}{', messages cost' if messages else ''}" for messages, task in columns(times)]


def tasks_over_laws(times: pd.DataFrame) -> list[str]:
    """Return the tasks for which one setting over all laws is measured.

    Args:
        times: one row for each case, system and seed.
    """
    measured = set(times.loc[times["tuned_for"] == OVER_LAWS, "task"])
    return [task for task in TASKS if task in measured]


def home(times: pd.DataFrame) -> Iterator[list[object]]:
    """Yield a row for each law of times, and two for their mean: with the laws as the unit, and with the seeds.

    Args:
        times: one row for each case, system and seed.
    """
    found = [by_law(times, question) for question in QUESTIONS.values()]
    for law in found[0]:
        own = [rows for key, rows in tuned_cases(times).items() if law == key[3]]
        yield [law, *(column[law].said for column in found), _best(own)]
    every = _best(tuned_cases(times).values())
    yield ["mean, for another law", *(over_laws(column).said for column in found), every]
    yield ["mean, for these laws", *(over_seeds(times, question).said for question in QUESTIONS.values()), every]


def _best(cases: Iterable[pd.DataFrame]) -> str:
    """Return the systems that are within 10 % of the best in most cases, with the number of those."""
    near = Counter[str]()
    for own in cases:
        found = medians(own)
        near.update(name for name, value in found.items() if value <= 1.1 * min(found.values()))
    most = max(near.values())
    return ", ".join(name for name in SYSTEMS if near[name] == most) + f" ({most})"


def of_question(found: Mapping[_Key, Ratio]) -> Iterator[list[object]]:
    """Yield a row for each law of times: ratios by task and messages.

    Args:
        found: ratios by number of workers, messages, task and law.
    """
    own_columns = list(dict.fromkeys(key[:3] for key in found))
    for law in _laws(found):
        yield [law, *(found[*column, law].said for column in own_columns)]


def _laws(found: Iterable[_Key]) -> list[str]:
    return list(dict.fromkeys(key[3] for key in found))


def costs(times: pd.DataFrame) -> dict[tuple[str, str], Ratio]:
    """Return what one setting over all laws costs: its time over that of settings tuned in each case, by system and task.

    Args:
        times: one row for each case, system and seed.
    """
    tuned, untuned = tuned_cases(times), untuned_cases(times)
    return {
        (name, task): mean_ratio(
            [(own, seconds_of(own, name), seconds_of(tuned[key], name)) for key, own in untuned.items() if key[2] == task]
        )
        for name in SYSTEMS
        for task in tasks_over_laws(times)
    }


def untuned(times: pd.DataFrame) -> dict[str, Ratio]:
    """Return each system's time with one setting over all laws, over that of the best system tuned in each case.

    Args:
        times: one row for each case, system and seed.
    """
    tuned, own_cases = tuned_cases(times), untuned_cases(times)
    best = {key: chosen(own, SYSTEMS) for key, own in tuned.items()}
    return together(
        {
            name: mean_ratio(
                [(own, seconds_of(own, name), seconds_of(tuned[key], best[key])) for key, own in own_cases.items()]
            )
            for name in SYSTEMS
        }
    )


def robust(times: pd.DataFrame) -> Iterator[list[object]]:
    """Yield what one setting over all laws costs each system.

    Args:
        times: one row for each case, system and seed.
    """
    found, over_best = costs(times), untuned(times)
    for name in sorted(SYSTEMS, key=lambda name: over_best[name].value):
        yield [name, *(found[name, task].said for task in tasks_over_laws(times)), over_best[name].said]


def settings(tuning: pd.DataFrame) -> Iterator[list[object]]:
    """Yield the one setting over all laws of each system and task.

    Args:
        tuning: one row for each case and system.
    """
    own = tuning[tuning["tuned_for"] == OVER_LAWS].set_index(["system", "task"])["settings"]
    tasks = list(dict.fromkeys(own.index.get_level_values("task")))
    for name in SYSTEMS:
        yield [name, *(_words(json.loads(str(own[name, task]))) for task in tasks)]


def _words(own: Mapping[str, Any]) -> str:
    words = {"learning_rate": "rate", "threshold": "R", "batch": "B", "backup_workers": "m"}
    return ", ".join(
        f"{words[name]} = {WORKERS - value if name == 'backup_workers' else value:g}" for name, value in own.items()
    )


def factors(times: pd.DataFrame) -> dict[tuple[str, str, int], tuple[float, Ratio]]:
    """Return by task, law and number of workers how much longer the best m-sync takes than the best of all.

    Theory's factor comes first, then the measured one: the best of m = 1, some and n, over the best of these, Rennala and
    Ringmaster.

    Args:
        times: one row for each case, system and seed.
    """
    found = {}
    for (workers, messages, task, law), own in tuned_cases(times, workers=None).items():
        if law in FIXED and not messages and task != "digits":
            case = Case(law, task, workers=workers)
            seconds, noise = case.seconds, case.learned.noise
            of_theory = theory.best_of_m_sync(seconds, noise)[0] / theory.best_time(seconds, noise)
            found[task, law, int(workers)] = of_theory, ratio(own, M_SYNC, IN_THEORY)
    for law in UNEQUAL:
        found[IN_PROPORTION, law, WORKERS] = found["much noise", law, WORKERS]
    return found


def theory_rows(times: pd.DataFrame) -> Iterator[list[object]]:
    """Yield theory's factor and the measured one, by task, law and number of workers.

    Args:
        times: one row for each case, system and seed.
    """
    found = factors(times)
    for task, law in dict.fromkeys((task, law) for task, law, _ in found):
        cells: list[object] = []
        for workers in _NUMBERS:
            of_theory, measured = found.get((task, law, workers), (None, None))
            cells += [f"{of_theory:.2f}" if of_theory else "–", measured.said if measured else "–"]
        yield [task, law, *cells]


def systems(times: pd.DataFrame) -> Iterator[list[object]]:
    """Yield each system's rank over all cases with 32 workers.

    Args:
        times: one row for each case, system and seed.
    """
    cases = tuned_cases(times)
    shares = pd.DataFrame(
        [{name: each / min(found.values()) for name, each in found.items()} for found in map(medians, cases.values())]
    )
    for name in SYSTEMS:
        always = sum(bool(np.isfinite(seconds_of(own, name)).all()) for own in cases.values())
        middle = float(np.quantile(shares[name], 0.5, method="inverted_cdf"))
        yield [name, int((shares[name] <= 1.1).sum()), always, f"{middle:.2f}" if middle < np.inf else "not reached"]


def edges(tuning: pd.DataFrame) -> Iterator[list[object]]:
    """Yield how often each system's choice lies at an end of its grid.

    Args:
        tuning: one row for each case and system.
    """
    for name in SYSTEMS:
        own = tuning[(tuning["system"] == name) & (tuning["tuned_for"] == IN_THE_CASE)]
        ends = Counter[tuple[str, int]]()
        for settings_of, workers in zip(own["settings"], own["workers"], strict=True):
            knobs = system(name, int(workers)).knobs(int(workers))
            for knob, value in json.loads(settings_of).items():
                place = list(knobs[knob]).index(value)
                ends[knob, 0] += place == 0
                ends[knob, 1] += place == len(knobs[knob]) - 1
        size = system(name).size
        cells = [ends[knob, end] if knob else "–" for knob in ("learning_rate", size) for end in (0, 1)]
        yield [name, len(own), *cells]


def all_cases(times: pd.DataFrame) -> Iterator[list[object]]:
    """Yield for each case the median seconds of all systems.

    Args:
        times: one row for each case, system and seed.
    """
    for (_, messages, task, law), own in tuned_cases(times).items():
        found = medians(own)
        best = min(found.values())
        cells = [
            "–" if np.isinf(value) else f"**{value:.3g}**" if value <= 1.1 * best else f"{value:.3g}"
            for value in found.values()
        ]
        yield [task, "cost" if messages else "free", law, *cells]


def facts(times: pd.DataFrame, tuning: pd.DataFrame) -> dict[str, object]:
    """Return the numbers in the page's sentences.

    Args:
        times: one row for each case, system and seed.
        tuning: one row for each case and system.
    """
    cases = tuned_cases(times)
    by_system = [medians(own) for own in cases.values()]
    others = [max(value for name, value in each.items() if name != "sync") for each in by_system]
    looks = [
        Case(law, task, messages).looks * min(each.values()) / cases[key]["budget"].iloc[0]
        for each, key in zip(by_system, cases, strict=True)
        for _, messages, task, law in [key]
    ]
    found: dict[str, object] = {
        "cases": len(cases),
        "all_cases": times.groupby(CASE).ngroups,
        "worst": sum(each["sync"] > most for each, most in zip(by_system, others, strict=True)),
        "worst_ties": sum(each["sync"] >= most for each, most in zip(by_system, others, strict=True)),
        "coarse": sum(each < _FEW_LOOKS for each in looks),
        "fewest": round(min(looks)),
        "tried": f"{tuning['points'].min()} to {tuning['points'].max()}",
    }
    found |= _covered(times) | {"theory_said": _theory_said(times), "robust_said": _robust_said(times)}
    found["edges_said"] = _edges_said(tuning)
    for name, question in QUESTIONS.items():
        ratios, laws = by_case(times, question), by_law(times, question)
        found |= {f"{name}_{side}": count for side, count in counts(ratios.values()).items()}
        found |= {f"{name}_laws_{side}": words for side, words in named(laws).items()}
        found[f"{name}_i"] = f"{laws[STEADY].value:.2f}"
        found[f"{name}_all"] = _in_words(over_laws(laws).said)
        found[f"{name}_seeds"] = _in_words(over_seeds(times, question).said)
        left_out = {law: over_laws(laws, law) for law in laws}
        least = min(left_out, key=lambda law: left_out[law].value)
        found[f"{name}_least"] = f'{_in_words(left_out[least].said)} without "{least}"'
    return found | ties(times)


def ties(times: pd.DataFrame) -> dict[str, object]:
    """Return the tie in the tuning that decides between systems in the only law under which rounds are surely faster.

    Args:
        times: one row for each case, system and seed.
    """
    law, question = "all take 1 s", QUESTIONS["waiting"]
    tied = {key: own for key, own in tuned_cases(times).items() if key[3] == law and len(_tied(own, question.fast)) > 1}
    key = max(tied, key=lambda key: len(_tied(tied[key], question.fast)))
    first, *others = _tied(tied[key], question.fast)
    cases = [
        own[~((own["system"] == first) & (own["task"] == key[2]) & (own["messages"] == key[1]))] for own in _of_law(times, law)
    ]
    seconds = tied[key].loc[tied[key]["system"] == first, "tuning_seconds"].iloc[0]
    return {
        "tie_case": f"{key[2]}{', messages cost' * bool(key[1])}",
        "tie_seconds": f"{seconds:.2f}",
        "tie_first": first,
        "tie_others": ", ".join(others),
        "tie_now": f"{pooled(_of_law(times, law), *question).value:.2f}",
        "tie_next": f"{pooled(cases, *question).value:.2f}",
        "tie_system": others[0],
        "ties": sum(
            len(_tied(own, group)) > 1
            for own in tuned_cases(times).values()
            for groups in QUESTIONS.values()
            for group in groups
        ),
    }


def _of_law(times: pd.DataFrame, law: str) -> list[pd.DataFrame]:
    return [own for key, own in tuned_cases(times).items() if key[3] == law]


def _tied(own: pd.DataFrame, among: Sequence[str]) -> list[str]:
    """Return the systems whose tuning ended with the least time, in the order in which ties are decided."""
    some = own[own["system"].isin(among)].drop_duplicates("system")
    return list(some.loc[some["tuning_seconds"] == some["tuning_seconds"].min(), "system"])


def _covered(times: pd.DataFrame) -> dict[str, object]:
    wanted = [(messages, task) for messages in (False, True) for task in TASKS]
    names = [f"{task} with messages that {'cost' if messages else 'are free'}" for messages, task in wanted]
    measured = columns(times)
    absent = [name for name, column in zip(names, wanted, strict=True) if column not in measured]
    return {
        "columns": "; ".join(name for name, column in zip(names, wanted, strict=True) if column in measured),
        "absent": f" Not measured yet: {'; '.join(absent)}." if absent else "",
    }


def _theory_said(times: pd.DataFrame) -> str:
    """Return theory's and the measured factors where they grow as the logarithm of n."""
    found = factors(times)
    own = [
        (workers, found[IN_PROPORTION, STEADY, workers]) for workers in _NUMBERS if (IN_PROPORTION, STEADY, workers) in found
    ]
    words = (f"{measured.value:.2f} with n = {workers} (theory {of_theory:.2f})" for workers, (of_theory, measured) in own)
    (_, (_, first)), (_, (_, last)) = own[0], own[-1]
    grows = (
        "does not reach the first one: it grows"
        if last.interval[0] > first.interval[1]
        else "reaches the first one: growth is open"
    )
    where = "Where worker i takes i s and noise is in proportion to n"
    return f"{where}, the measured factor is {', '.join(words)}. The last interval {grows}."


def _robust_said(times: pd.DataFrame) -> str:
    """Return the system that is the fastest with one setting over all laws, and those that are not surely slower."""
    if not tasks_over_laws(times):
        return "Not measured yet: one setting held over all laws."
    ranked = sorted(untuned(times).items(), key=lambda each: each[1].value)
    words = (f"{name} ({'at least ' * each.least}{each.value:.2f})" for name, each in ranked[:3])
    reached = [name for name, each in ranked if not each.least]
    return (
        "One setting was held over all laws. The least times, as multiples of the best tuned in each case: "
        f"{', '.join(words)}. With it, {' and '.join(reached) or 'no system'} alone reached every target on every seed."
    )


def _in_words(cell: str) -> str:
    """Return the cell of a table as words in a sentence.

    >>> _in_words("**< 1.06 (1.02 to 1.11)** =")
    'at most 1.06 (1.02 to 1.11)'
    """
    return cell.replace("**", "").removesuffix(" =").replace("< ", "at most ").replace("> ", "at least ")


def _edges_said(tuning: pd.DataFrame) -> str:
    """Return how many choices lie at an end of their rates, and of their sizes."""
    every = list(edges(tuning))
    count = sum(int(str(row[1])) for row in every)
    rates, sizes = (sum(int(str(cell)) for row in every for cell in row[place : place + 2] if cell != "–") for place in (2, 4))
    return f"Of {count} choices {rates} have the least or the largest rate and {sizes} such a size; a table above lists them."


def named(laws: Mapping[str, Ratio]) -> dict[str, str]:
    """Return in words for which laws each side is significantly faster, for which both are equal, and which are open.

    Args:
        laws: ratios by law, and over all.
    """
    sides: dict[str, list[str]] = {"numerator": [], "denominator": [], "equal": [], "open": []}
    for law, each in laws.items():
        sides[each.faster or ("equal" if each.equal else "open")].append(f"{law} ({each.value:.2f})")
    return {side: "; ".join(words) or "none" for side, words in sides.items()}


def counts(ratios: Iterable[Ratio]) -> dict[str, int]:
    """Return in how many comparisons each side is significantly faster, how many are open, and how many equal.

    Args:
        ratios: numerator over denominator.
    """
    every = list(ratios)
    counted = Counter(each.faster or "open" for each in every)
    return {side: counted[side] for side in ("numerator", "denominator", "open")} | {"equal": sum(each.equal for each in every)}
