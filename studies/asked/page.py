"""The page and its figure, from the runs that were measured."""

from collections.abc import Callable, Iterable

import numpy as np
import pandas as pd

from fred.base.intervals import Verdict
from reproductions.common import table
from studies.asked import rows
from studies.asked.cases import (
    BUDGET,
    CASES,
    CLIENTS,
    DOWNLOAD,
    HERE,
    LATENCY,
    OFFLINE,
    ONLINE,
    SKEW,
    SPREAD,
    STEP,
    TARGET,
    UPLOAD,
    VARIES,
)
from studies.asked.compared import (
    ALWAYS,
    MIXED,
    OTHERS,
    ROUNDS,
    added_where_slow_differ,
    fastest,
    less_fair,
    missed,
    sooner,
    uploads,
    values,
    without_rounds,
)
from studies.asked.figure import draw
from studies.asked.measure import ENOUGH, FOUND, KEPT, POINTS, ROOT, TRIED
from studies.asked.systems import BASE, SYSTEMS

QUESTION = "Which clients should be asked, and which waited for?"
PAGE, FIGURE = FOUND.with_suffix(".md"), FOUND.with_suffix(".svg")
_HOME = ("case", "fastest", "s", "as good", "open", f"`{BASE}`, s", "fewest uploads", "fairest: worst tenth")


def write() -> str:
    """Write the figure and the page; return its path, from the repository on."""
    found, tried = pd.read_csv(FOUND), pd.read_csv(TRIED, keep_default_na=False)
    draw(found).save(FIGURE)
    PAGE.write_text(text(found, tried), encoding="utf-8")
    return str(PAGE.relative_to(ROOT))


def text(found: pd.DataFrame, tried: pd.DataFrame) -> str:
    """Return the page.

    Args:
        found: a row for each case, system, way and seed.
        tried: a row for each case, system, point that was tried, and seed.
    """
    quicker, unfair = ({case: own(found, case) for case in CASES} for own in (sooner, less_fair))
    always = without_rounds(found)
    tables = {
        "home": table(_HOME, rows.home(found)),
        "verdicts": table(("question", *CASES), rows.verdicts(found)),
        "times": _by_case(SYSTEMS, lambda case, system: rows.times(found, case, system)),
        "ratios": _by_case(OTHERS, lambda case, system: quicker[case][system].ratio),
        "against": _by_case(ALWAYS, lambda case, system: always[system, case].ratio),
        "fair": _by_case(SYSTEMS, lambda case, system: rows.fair(found, case, system)),
        "less_fair": _by_case(OTHERS, lambda case, system: unfair[case][system].said(2)),
        "added": table(("system", "held-out digits", "mean client", "worst tenth"), rows.added(found)),
        "uploads": _by_case(SYSTEMS, lambda case, system: rows.sent(found, case, system)),
        "systems": table(("system", "whom the server asks, and waits for", "knobs"), rows.systems()),
        "settings": _by_case(SYSTEMS, lambda case, system: rows.setting(tried, case, system)),
        "cases": table(("case", "data and devices"), ([f"`{name}`", case.about] for name, case in CASES.items())),
    }
    return (HERE / "page.md").read_text(encoding="utf-8").format(**tables, **constants(), **facts(found))


def _by_case(systems: Iterable[str], cell: Callable[[str, str], str]) -> str:
    return table(("system", *CASES), ([system, *(cell(case, system) for case in CASES)] for system in systems))


def constants() -> dict[str, object]:
    """Return what the page says of the cases."""
    numbers = {"clients": CLIENTS, "budget": f"{BUDGET:.0f}", "target": TARGET, "skew": SKEW, "spread": f"{SPREAD:g}"}
    times = {"step": STEP, "varies": VARIES, "latency": LATENCY, "online": f"{ONLINE:.0f}", "offline": f"{OFFLINE:.0f}"}
    widths = {"upload": f"{UPLOAD / 1e3:g}", "download": f"{DOWNLOAD / 1e3:g}"}
    return numbers | times | widths | {"base": BASE, "points": POINTS, "kept": KEPT, "enough": ENOUGH}


def facts(found: pd.DataFrame) -> dict[str, str]:
    """Return the numbers in the page's sentences.

    Args:
        found: a row for each case, system, way and seed.
    """
    always = without_rounds(found)
    quicker, unfair = ({case: own(found, case) for case in CASES} for own in (sooner, less_fair))
    words = {f"{_key(system)}_count": _count([always[system, case].lower for case in CASES]) for system in ALWAYS}
    for system in OTHERS:
        words[f"{_key(system)}_sooner"] = _count([quicker[case][system].lower for case in CASES])
        words[f"{_key(system)}_fairer"] = _count([unfair[case][system].lower for case in CASES])
    grown = added_where_slow_differ(found, "worst_error")
    for system in SYSTEMS:
        words[f"{_key(system)}_grown_worst"] = f"{grown[system].mean.value:+.2f}"
        words[f"{_key(system)}_uploads"] = f"{uploads(found, MIXED, system):,.0f}"
    return words | {
        "fastest": ", ".join(fastest(found, case) for case in CASES),
        "fastest_rounds": ", ".join(fastest(found, case, ROUNDS) for case in CASES),
        "uniform_missed": str(sum(missed(found, case, BASE) for case in CASES if CASES[case].devices != "alike")),
        "against_count": str(len(always)),
        "one_setting": _one_setting(found),
        "grown_surely": ", ".join(name for name, each in grown.items() if each.lower == Verdict.NO) or "none",
    }


def _one_setting(found: pd.DataFrame) -> str:
    """Return the system with the least geometric mean of times over all cases with one setting, and that time."""
    means = {
        each: np.mean([np.log(values(found, case, each, "target_seconds", "one setting")).mean() for case in CASES])
        for each in SYSTEMS
    }
    best = min(means, key=means.__getitem__)
    return f"{best}, {np.exp(means[best]):.0f} s"


def _count(verdicts: list[Verdict]) -> str:
    """Return the number of each verdict in words.

    >>> _count([Verdict.YES, Verdict.OPEN, Verdict.YES])
    'yes in 2, no in 0, open in 1'
    """
    return ", ".join(f"{word.value} in {verdicts.count(word)}" for word in (Verdict.YES, Verdict.NO, Verdict.OPEN))


def _key(name: str) -> str:
    return name.lower().replace(" ", "_")
