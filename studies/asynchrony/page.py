"""The page and its figure, from the times that were measured."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from reproductions.common import table
from studies.asynchrony import theory
from studies.asynchrony.cases import FIXED, HERE, TASKS, WORKERS, Case
from studies.asynchrony.compared import ALONE, CASE, SYSTEMS, WAITING, chosen, medians, ratio
from studies.asynchrony.figure import draw
from studies.asynchrony.measure import ROOT, TIMES

QUESTION = "Is asynchrony needed?"
_OF_THEORY = ("S", "gradients take", "m*", "its bound by", "m-sync / best", "measured", "best m-sync", "best of all")
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
    ratios = {key: ratio(own, WAITING, ALONE) for key, own in times.groupby(CASE, sort=False)}
    laws = dict.fromkeys(times["times"])
    home = [[law, *(ratios[(messages, task, law)].said for messages in (False, True) for task in TASKS)] for law in laws]
    costly = [f"{task}{more}" for more in ("", ", messages cost") for task in TASKS]
    tables = {
        "home": table(("whose gradients take how long", *costly), home),
        "theory": table(_OF_THEORY, theory_rows(times)),
        "systems": table(("system", "within 10 % of the best", "always there", "median of time / best"), system_rows(times)),
        "all": table(("task", "messages", "gradients take", *SYSTEMS), all_rows(times)),
    }
    won = {side or "neither": sum(each.verdict == side for each in ratios.values()) for side in ("asynchronous", "rounds", "")}
    return (HERE / "page.md").read_text(encoding="utf-8").format(**tables, **won, cases=len(ratios))


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
