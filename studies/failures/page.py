"""The page and its figure, from the runs that were measured."""

import json
from collections.abc import Iterator

import numpy as np
import pandas as pd

from fred.base.intervals import Verdict
from reproductions.common import table
from studies.failures.cases import (
    BASE,
    DETECT,
    HERE,
    HOUR,
    LOAD,
    MEDIUM,
    MOST,
    NONE,
    PAUSE,
    RATES,
    REPAIR,
    SYSTEMS,
    TARGET,
    WORKERS,
    rounds_between_checkpoints,
)
from studies.failures.compared import (
    MARGIN,
    beside_base,
    costs,
    costs_less_base,
    in_a_month,
    loss_added,
    missed,
    slower,
    stale,
    values,
    work,
)
from studies.failures.figure import draw
from studies.failures.measure import CHOSEN, FOUND, GOODPUT, KEPT, POINTS, ROOT
from studies.failures.theory import goodput

QUESTION = "What does a failure cost, by system?"
PAGE, FIGURE = FOUND.with_suffix(".md"), FOUND.with_suffix(".svg")
_FAILING = [hours for hours in RATES if hours != NONE]
_HOME = ("system", "after a failure", "hours, no failures", *(f"x {RATES[hours]}" for hours in _FAILING))


def write() -> str:
    """Write the figure and the page; return its path, from the repository on."""
    tables = [pd.read_csv(path) for path in (FOUND, CHOSEN, GOODPUT)]
    draw(tables[0]).save(FIGURE)
    PAGE.write_text(text(*tables), encoding="utf-8")
    return str(PAGE.relative_to(ROOT))


def text(found: pd.DataFrame, chosen: pd.DataFrame, long: pd.DataFrame) -> str:
    """Return the page.

    Args:
        found: a row for each system, rate of failures, setting and seed.
        chosen: a row for each system and rate of failures for which it was tuned.
        long: a row for each long run with checkpoints.
    """
    failing = [RATES[hours] for hours in _FAILING]
    tables = {
        "home": table((*_HOME, "a failure costs, min", "one a month, %"), home_rows(found)),
        "ahead": table(("system", "none", *failing, "cost, one an hour"), ahead_rows(found)),
        "less": table(("system", "minutes", "less?"), less_rows(found)),
        "work": table(("system", *(f"work, {rate}" for rate in failing), "loss added, nats"), work_rows(found)),
        "stale": table(
            ("system", "tuned without failures", "tuned with six a day", "points", "time ratio", "equal?"),
            stale_rows(found, chosen),
        ),
        "goodput": table(
            ("failures", "work between checkpoints, min", "failures seen", "measured", "Daly", "difference, %"),
            goodput_rows(long),
        ),
    }
    return (HERE / "page.md").read_text(encoding="utf-8").format(**tables, **constants(), **facts(found, long))


def constants() -> dict[str, object]:
    """Return what the page says of the cases."""
    intervals = ", ".join(str(rounds_between_checkpoints(hours)) for hours in _FAILING)
    return {"workers": WORKERS, "target": TARGET, "base": BASE, "points": POINTS, "kept": KEPT, "intervals": intervals}


def facts(found: pd.DataFrame, long: pd.DataFrame) -> dict[str, str]:
    """Return the numbers in the page's sentences.

    Args:
        found: a row for each system, rate of failures, setting and seed.
        long: a row for each long run with checkpoints.
    """
    own, week = costs(found), slower(found, max(_FAILING)).values()
    numbers = {_key(name): f"{each.mean.value:.0f}" for name, each in own.items()}
    numbers |= {f"{_key(name)}_said": each.said(0).replace("*", "") for name, each in own.items()}
    numbers |= {f"{_key(name)}_work": f"{work(found, name, MOST):.2f}" for name in SYSTEMS}
    for hours, word in ((MEDIUM, "medium"), (MOST, "most")):
        numbers |= {f"{_key(name)}_{word}": f"{np.exp(each.mean.value):.2f}" for name, each in slower(found, hours).items()}
    going_on = [work(found, name, MOST) for name, system in SYSTEMS.items() if system.goes_on]
    differences = [abs(float(row[-1])) for row in goodput_rows(long)]
    return numbers | {
        "going_on_work": f"{min(going_on):.2f} to {max(going_on):.2f}",
        "less_count": _count([each.lower for each in costs_less_base(found).values()]),
        "stale_count": _count([each.within(MARGIN) for each in stale(found).values()]),
        "week_open": str(sum(each.lower == Verdict.OPEN for each in week)),
        "week_most": f"{np.exp(max(each.mean.value for each in week)):.2f}",
        "goodput_most": f"{max(differences):.1f}",
    }


def _count(verdicts: list[Verdict]) -> str:
    """Return the number of each verdict in words.

    >>> _count([Verdict.YES, Verdict.OPEN, Verdict.YES])
    'yes for 2, no for 0, open for 1'
    """
    return ", ".join(f"{word.value} for {verdicts.count(word)}" for word in (Verdict.YES, Verdict.NO, Verdict.OPEN))


def _key(name: str) -> str:
    return name.lower().replace(", ", "_").replace(" ", "_")


def home_rows(found: pd.DataFrame) -> Iterator[list[str]]:
    """Yield each system's time to the target, how many times longer it is with failures, and what a failure costs.

    Args:
        found: a row for each system, rate of failures, setting and seed.
    """
    ratios, own = [slower(found, hours) for hours in _FAILING], costs(found)
    for name, system in SYSTEMS.items():
        plain = values(found, name, NONE, "target_seconds").mean() / HOUR
        cells = [f"{np.exp(each[name].mean.value):.2f}" for each in ratios]
        late = missed(found, name, MOST)
        cells[-1] += f" ({late} of 5 missed)" if late else ""
        yield [name, system.meets, f"{plain:.1f}", *cells, own[name].said(0), f"{100 * in_a_month(found, name):.2f}"]


def ahead_rows(found: pd.DataFrame) -> Iterator[list[str]]:
    """Yield each other system's time over that of synchronous SGD with checkpoints, and its cost at the highest rate.

    Args:
        found: a row for each system, rate of failures, setting and seed.
    """
    columns = [*(beside_base(found, hours) for hours in RATES), beside_base(found, MOST, "target_cost")]
    for name in SYSTEMS:
        if name != BASE:
            yield [name, *(each[name].ratio for each in columns)]


def less_rows(found: pd.DataFrame) -> Iterator[list[str]]:
    """Yield the cost of a failure in each other system, less that in synchronous SGD with checkpoints.

    Args:
        found: a row for each system, rate of failures, setting and seed.
    """
    for name, each in costs_less_base(found).items():
        yield [name, each.said(0), each.lower.value]


def work_rows(found: pd.DataFrame) -> Iterator[list[str]]:
    """Yield each system's share of work with failures, and what failures add to the loss at the end.

    Args:
        found: a row for each system, rate of failures, setting and seed.
    """
    added = loss_added(found)
    for name in SYSTEMS:
        yield [name, *(f"{work(found, name, hours):.3f}" for hours in _FAILING), added[name].said()]


def stale_rows(found: pd.DataFrame, chosen: pd.DataFrame) -> Iterator[list[str]]:
    """Yield each system's settings, and the time with the one tuned without failures over that with the other.

    Args:
        found: a row for each system, rate of failures, setting and seed.
        chosen: a row for each system and rate of failures for which it was tuned.
    """
    for name, each in stale(found).items():
        own = chosen[chosen["system"] == name]
        rows = [own[own["hours"] == hours].iloc[0] for hours in (NONE, MEDIUM)]
        plain, failing = map(_settings, rows)
        answer = "same setting" if plain.rstrip(" *") == failing.rstrip(" *") else each.within(MARGIN).value
        yield [name, plain, failing, f"{rows[1]['points']:.0f}", each.ratio, answer]


def _settings(row: pd.Series) -> str:
    known = json.loads(row["settings"])
    edges = row["edges"].split() if isinstance(row["edges"], str) else []
    words = []
    for key, value in known.items():
        said = f"momentum {value[0]:g}, outer rate {value[1]:g}" if key == "outer" else f"{key.replace('_', ' ')} {value:g}"
        words.append(said + (" (edge)" if key in edges else ""))
    return ", ".join(words)


def goodput_rows(long: pd.DataFrame) -> Iterator[list[str]]:
    """Yield the goodput that was measured in long runs, and Daly's closed form.

    Args:
        long: a row for each long run with checkpoints.
    """
    for hours, own in long.groupby("hours", sort=False):
        between = float(str(hours))
        every = rounds_between_checkpoints(between) * own["round"].iloc[0]
        form = goodput(every, PAUSE, between * HOUR, DETECT + REPAIR, LOAD)
        measured, number = own["failures_goodput"].mean(), own["failures_number"].sum()
        yield [
            RATES[between],
            f"{every / 60:.0f}",
            f"{number}",
            f"{measured:.4f}",
            f"{form:.4f}",
            f"{100 * (measured / form - 1):+.1f}",
        ]
