"""The page and its figure, from the times that were measured."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from reproductions.common import table
from studies.asynchrony import theory
from studies.asynchrony.cases import FIXED, HERE, TASKS, WORKERS, Case
from studies.asynchrony.compared import ALONE, CASE, FIRST, FRESH, SYSTEMS, WAITING, Ratio, chosen, medians, ratio, together
from studies.asynchrony.figure import draw
from studies.asynchrony.measure import ROOT, TIMES

QUESTION = "Is asynchrony needed?"
_OF_THEORY = ("S", "gradients take", "m*", "its bound by", "m-sync / best", "measured", "best m-sync", "best of all")
_LOOKS, _FEW_LOOKS = 100, 20  # of a run, as in `scenario.yaml`; with fewer, times are coarse
PAGE, FIGURE = TIMES.with_suffix(".md"), TIMES.with_suffix(".svg")


def write() -> str:
    """The figure and the page; its path, from the repository on."""
    times = pd.read_csv(TIMES)
    draw(times).save(FIGURE)
    PAGE.write_text(text(times), encoding="utf-8")
    return str(PAGE.relative_to(ROOT))


def text(times: pd.DataFrame) -> str:
    """The page.

    Args:
        times: one row for each case, system and seed.
    """
    costly = [f"{task}{more}" for more in ("", ", messages cost") for task in TASKS]
    tables = {
        "theory": table(_OF_THEORY, theory_rows(times)),
        "systems": table(("system", "within 10 % of the best", "always there", "median of time / best"), system_rows(times)),
        "all": table(("task", "messages", "gradients take", *SYSTEMS), all_rows(times)),
    }
    words: dict[str, object] = dict(counts(times))
    for name, group, prefix in (("home", WAITING, ""), ("fresh", FRESH, "fresh_")):
        alone = {key: ratio(own, group, ALONE) for key, own in times.groupby(CASE, sort=False)}
        found = families(alone)
        tables[name] = table(("gradients take", *costly), home_rows(times, found, marked=name == "home"))
        words |= {f"{prefix}{side}": number for side, number in _verdicts(found.values()).items()}
        words |= {f"alone_{prefix}{side}": number for side, number in _verdicts(alone.values()).items()}
    return (HERE / "page.md").read_text(encoding="utf-8").format(**tables, **words)


def families(alone: Mapping[Any, Ratio]) -> dict[Any, Ratio]:
    """Return the ratios of all cases, where those of one task, with messages or without, are a family.

    Args:
        alone: ratios by messages, task and law of times.
    """
    found: dict[Any, Ratio] = {}
    for column in dict.fromkeys(key[:2] for key in alone):
        own = {key: each for key, each in alone.items() if key[:2] == column}
        found |= dict(zip(own, together(list(own.values())), strict=True))
    return found


def home_rows(times: pd.DataFrame, found: Mapping[Any, Ratio], marked: bool) -> Iterator[list[object]]:
    """Yield a row for each law of times: ratios by task and messages.

    Args:
        times: one row for each case, system and seed.
        found: ratios by messages, task and law.
        marked: True to mark cases in which m-sync with m = 1 stands for rounds.
    """
    first = {key for key, own in times.groupby(CASE, sort=False) if marked and _first_alone(own)}
    for law in dict.fromkeys(times["times"]):
        keys = [(messages, task, law) for messages in (False, True) for task in TASKS]
        yield [law, *(found[key].said + (" †" if key in first else "") for key in keys)]


def _first_alone(own: pd.DataFrame) -> bool:
    """Return True if the fastest system with rounds waits for the first gradient alone."""
    return FIRST in _with(own, chosen(own, WAITING)).split()


def counts(times: pd.DataFrame) -> dict[str, int]:
    """Return the numbers in the page's sentences.

    Args:
        times: one row for each case, system and seed.
    """
    cases = dict(list(times.groupby(CASE, sort=False)))
    by_case = [medians(own) for own in cases.values()]
    others = [max(value for system, value in each.items() if system != "sync") for each in by_case]
    looks = [_LOOKS * min(each.values()) / own["budget"].iloc[0] for each, own in zip(by_case, cases.values(), strict=True)]
    backup = times[times["system"] == "backup-workers"].drop_duplicates(CASE)["point"]
    return {
        "cases": len(cases),
        "worst": sum(each["sync"] > most for each, most in zip(by_case, others, strict=True)),
        "ties": sum(each["sync"] >= most for each, most in zip(by_case, others, strict=True)),
        "coarse": sum(each < _FEW_LOOKS for each in looks),
        "first": sum(map(_first_alone, cases.values())),
        "backup": len(backup),
        "backup_largest": int(backup.str.endswith("backup_workers=16").sum()),
    }


def _verdicts(found: Iterable[Ratio]) -> dict[str, int]:
    counted = Counter(each.verdict or "open" for each in found)
    return {side: counted[side] for side in ("asynchronous", "rounds", "open")}


def theory_rows(times: pd.DataFrame) -> Iterator[list[object]]:
    """Fixed times, no messages, a known noise: what theory says of waiting for m, and what was measured.

    Args:
        times: one row for each case, system and seed.
    """
    for task, learned in TASKS.items():
        for law in FIXED if task != "digits" else ():
            own = times[(times["task"] == task) & (times["times"] == law) & ~times["messages"]]
            seconds = Case(law, task, messages=False).seconds
            best, (of_m, m) = theory.best_time(seconds, learned.noise), theory.best_of_m_sync(seconds, learned.noise)
            found, some = medians(own), ("sync", "m-sync")
            measured = min(found[system] for system in some) / min(found.values())
            active = "noise" if learned.noise > m else "curvature"
            yield [
                *(f"{learned.noise:.3g}", law, m, active, f"{of_m / best:.2f}", f"{measured:.2f}"),
                *(_with(own, chosen(own, group)) for group in (some, SYSTEMS)),
            ]


def _with(own: pd.DataFrame, system: str) -> str:
    point = str(own.loc[own["system"] == system, "point"].iloc[0])
    knobs = dict(each.split("=") for each in point.split(","))
    size = next((f"{name}={value}" for name, value in knobs.items() if name != "learning_rate"), "")
    if size.startswith("backup_workers="):
        size = f"m={WORKERS - int(size.partition('=')[2])}"
    return f"{system} {size}".strip()


def system_rows(times: pd.DataFrame) -> Iterator[list[object]]:
    """Each system over all cases.

    Args:
        times: one row for each case, system and seed.
    """
    cases = [medians(own) for _, own in times.groupby(CASE)]
    shares = pd.DataFrame([{system: value / min(each.values()) for system, value in each.items()} for each in cases])
    for system in SYSTEMS:
        own = times[times["system"] == system].groupby(CASE)["seconds"]
        always = int((own.max() < np.inf).sum())
        middle = float(np.quantile(shares[system], 0.5, method="inverted_cdf"))
        yield [system, int((shares[system] <= 1.1).sum()), always, f"{middle:.2f}" if middle < np.inf else "not reached"]


def all_rows(times: pd.DataFrame) -> Iterator[list[object]]:
    """Each case: the median seconds of all systems.

    Args:
        times: one row for each case, system and seed.
    """
    for (messages, task, law), own in times.groupby(CASE, sort=False):
        found, best = medians(own), min(medians(own).values())
        cells = [
            "–" if np.isinf(value) else f"**{value:.3g}**" if value <= 1.1 * best else f"{value:.3g}"
            for value in found.values()
        ]
        yield [task, "cost" if messages else "free", law, *cells]
