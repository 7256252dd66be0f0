"""The page and its figure: the work that lasts, the cost of a failure, and checkpoints against Daly's form."""

import json
from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import NDArray

from fred.base.intervals import Mean, Verdict
from fred.views.figures import Picture, style
from studies.failures.setup import (
    BASE,
    BUDGET,
    DAYS,
    DETECT,
    FINALISTS,
    HOUR,
    JOIN,
    LOAD,
    MOST,
    NONE,
    OUTAGE,
    PAUSE,
    POINTS,
    RATES,
    REPAIR,
    REPORTED,
    STUDY,
    SYSTEMS,
    TARGET,
    WORKERS,
    daly_interval,
    goodput,
    rounds_between_checkpoints,
)
from studies.kit import effort
from studies.kit.claims import Claim, claims_table
from studies.kit.comparison import TRIALS
from studies.kit.difference import Difference
from studies.kit.figure import MARKS
from studies.kit.pages import count, table
from studies.kit.study import Tables

MONTH = 730.0  # hours
_MINUTE = 60.0  # s
_HOME = ("system", "after a failure", *(f"work, {rate}" for rate in RATES.values()))
_COST = ("system", "hours, no failures", "x with one an hour", "a failure costs, min", "one a month, %", "settings")
Values = NDArray[np.float64]  # [seeds]


def values(rows: pd.DataFrame, system: str, hours: float, column: str) -> Values:
    """Return one measured column of a system at a rate of failures [seeds]. A missed target counts as reached at the end.

    Args:
        rows: a row for each system, rate of failures and seed.
        system: name.
        hours: between two failures of the job.
        column: name.
    """
    table = rows[(rows["system"] == system) & np.isclose(rows["hours"], hours)].sort_values("seed")
    return table[column].fillna(BUDGET if column == "target_seconds" else np.nan).to_numpy(float)


def timed(rows: pd.DataFrame) -> list[str]:
    """Return the systems whose times were measured, in the order of the tables."""
    return [name for name in SYSTEMS if name in set(rows["system"])]


def missed(rows: pd.DataFrame) -> int:
    """Return the number of runs that missed the target."""
    return int(rows["target_seconds"].isna().sum())


def _cost(rows: pd.DataFrame, system: str) -> Values:
    delay = values(rows, system, MOST, "target_seconds") - values(rows, system, NONE, "target_seconds")
    return delay / np.maximum(1, values(rows, system, MOST, "failures")) / _MINUTE


def costs(rows: pd.DataFrame) -> dict[str, Difference]:
    """Return the cost of a failure in each system, minutes: the time that failures add until the target, over their number."""
    return Difference.family({system: _cost(rows, system) for system in timed(rows)})


def costs_less_base(rows: pd.DataFrame) -> dict[str, Difference]:
    """Return the cost of a failure in each other system, less that in synchronous SGD with checkpoints, minutes."""
    return Difference.family({name: _cost(rows, name) - _cost(rows, BASE) for name in timed(rows) if name != BASE})


def slower(rows: pd.DataFrame) -> dict[str, Difference]:
    """Return the logarithm of each system's time to the target with failures over that without."""
    pairs = {name: [values(rows, name, hours, "target_seconds") for hours in (MOST, NONE)] for name in timed(rows)}
    return Difference.family({name: np.log(failing / steady) for name, (failing, steady) in pairs.items()})


def spreads(rows: pd.DataFrame) -> dict[str, float]:
    """Return the standard deviation over the seeds of the logarithm of each system's time without failures."""
    return {name: float(np.log(values(rows, name, NONE, "target_seconds")).std(ddof=1)) for name in timed(rows)}


def in_a_month(rows: pd.DataFrame, system: str) -> float:
    """Return the time that one failure a month would add, as a share: calculated, since no run is so long.

    It is the cost of one failure or, with checkpoints, the closed form at Daly's interval.

    Args:
        rows: a row for each system, rate of failures and seed.
        system: name.
    """
    if SYSTEMS[system].stops:
        outage = DETECT + (JOIN if SYSTEMS[system].spares else REPAIR)
        return 1 / goodput(daly_interval(PAUSE, MONTH * HOUR), PAUSE, MONTH * HOUR, outage, LOAD) - 1
    return costs(rows)[system].mean.value * _MINUTE / (MONTH * HOUR)


def work(shares: pd.DataFrame, system: str, hours: float) -> tuple[float, float]:
    """Return the share of a run's gradients that last, and half of its interval.

    Args:
        shares: a row for each system, rate of failures and seed.
        system: name.
        hours: between two failures of the job.
    """
    mean = Mean.estimate(shares[(shares["system"] == system) & np.isclose(shares["hours"], hours)]["work"])
    return mean.value, mean.interval()[1] - mean.value


def text(tables: Tables) -> str:
    """Return the page.

    Args:
        tables: times to the target, points that were tried, work that lasts, goodput of long runs.
    """
    rows, differences = tables[""], costs_less_base(tables[""])
    header = ("failures", "work between checkpoints, min", "failures seen", "measured", "Daly", "difference, %")
    parts = {
        "work": table(_HOME, work_rows(tables["work"])),
        "cost": table(_COST, cost_rows(rows)),
        "claims": claims_table(map(_claim, differences, differences.values()), rows),
        "goodput": table(header, goodput_rows(tables["goodput"])),
        "effort": effort.block(
            STUDY,
            REPORTED,
            {"cost of a failure, min": costs(rows).values(), f"cost less that of `{BASE}`, min": differences.values()},
            {"time to the target with failures over that without": slower(rows).values()},
            tables[TRIALS],
        ),
    }
    numbers = {"workers": WORKERS, "target": TARGET, "base": BASE, "points": POINTS, "finalists": FINALISTS, "days": DAYS}
    words = {"seeds": len(REPORTED), "budget": f"{BUDGET / HOUR:.0f}", "away": f"{OUTAGE / 60:.0f}"}
    return STUDY.fill({**parts, **numbers, **words, **facts(tables)})


def _claim(system: str, difference: Difference) -> Claim:
    sentence = f"A failure costs less than with `{BASE}`: {system}"
    return Claim(sentence, f"system in ['{BASE}', '{system}']", f"{difference.cell(0)} min", difference.interval)


def facts(tables: Tables) -> dict[str, str]:
    """Return the numbers in the page's sentences.

    Args:
        tables: as of the page.
    """
    rows, cost_of = tables[""], costs(tables[""])
    spread = spreads(rows)
    numbers = {f"{_key(name)}_cost": cost.cell(0).replace("*", "").replace("+", "") for name, cost in cost_of.items()}
    numbers |= {f"{_key(name)}_work": f"{work(tables['work'], name, MOST)[0]:.2f}" for name in SYSTEMS}
    numbers |= {f"{_key(name)}_slower": f"{np.exp(ratio.mean.value):.2f}" for name, ratio in slower(rows).items()}
    return numbers | {
        "less_count": count(difference.lower for difference in costs_less_base(rows).values()),
        "others": str(len(cost_of) - 1),
        "going_on": "{:.2f} to {:.2f}".format(*_going_on(tables["work"])),
        "free": ", ".join(name for name, cost in cost_of.items() if cost.lower == Verdict.OPEN) or "none",
        "spread": f"{100 * np.median(list(spread.values())):.0f}",
        "spread_most": f"{100 * max(spread.values()):.0f} % ({max(spread, key=spread.__getitem__)})",
        "steady": f"{sum(value <= 0.1 for value in spread.values())} of {len(spread)}",
        "missed": f"{missed(rows)} of {len(rows)}",
        "goodput_most": f"{max(abs(float(row[-1])) for row in goodput_rows(tables['goodput'])):.1f}",
    }


def _going_on(shares: pd.DataFrame) -> tuple[float, float]:
    """Return the least and the largest share of work that lasts in systems that go on without the failed machine."""
    waiting = ("local SGD", "DiLoCo")
    means = [work(shares, name, MOST)[0] for name, system in SYSTEMS.items() if not system.stops and name not in waiting]
    return min(means), max(means)


def _key(name: str) -> str:
    return name.lower().replace(", ", "_").replace(" ", "_")


def work_rows(shares: pd.DataFrame) -> Iterator[list[str]]:
    """Yield the share of work that lasts in each system, by rate of failures.

    Args:
        shares: a row for each system, rate of failures and seed.
    """
    for name, system in SYSTEMS.items():
        yield [name, system.meets, *("{:.3f} ± {:.3f}".format(*work(shares, name, hours)) for hours in RATES)]


def cost_rows(rows: pd.DataFrame) -> Iterator[list[str]]:
    """Yield each system's time to the target, how many times longer it is with failures, and the cost of one.

    Args:
        rows: a row for each system, rate of failures and seed.
    """
    ratios, cost_of = slower(rows), costs(rows)
    for name in timed(rows):
        hours = values(rows, name, NONE, "target_seconds").mean() / HOUR
        settings = json.loads(rows[rows["system"] == name]["settings"].iloc[0])
        words = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in settings.items())
        yield [name, f"{hours:.1f}", ratios[name].ratio, cost_of[name].cell(0), f"{100 * in_a_month(rows, name):.2f}", words]


def goodput_rows(long: pd.DataFrame) -> Iterator[list[str]]:
    """Yield the goodput that was measured in long runs, and Daly's closed form.

    Args:
        long: a row for each long run with checkpoints.
    """
    for interval in RATES:
        runs = long[np.isclose(long["hours"], interval)]
        every = rounds_between_checkpoints(interval) * runs["round"].iloc[0]
        form = goodput(every, PAUSE, interval * HOUR, DETECT + REPAIR, LOAD)
        measured, number = runs["failures_goodput"].mean(), runs["failures_number"].sum()
        numbers = (f"{every / 60:.0f}", f"{number}", f"{measured:.4f}", f"{form:.4f}", f"{100 * (measured / form - 1):+.1f}")
        yield [RATES[interval], *numbers]


def draw(tables: Tables) -> Picture:
    """Draw the work that lasts by rate of failures, and the minutes that one failure costs.

    Args:
        tables: as of the page.
    """
    with style():
        picture = Picture(figsize=(10, 4.6), layout="constrained")
        first, second = picture.subplots(1, 2, sharey=True)
        _work(first, tables["work"])
        for name, cost in costs(tables[""]).items():
            place = list(SYSTEMS).index(name)
            second.plot(cost.interval, [place, place], color="C0", lw=1.5)
            second.plot(cost.mean.value, place, "o", color="C0", ms=5)
        second.axvline(0, color="0.5", lw=0.8)
        second.set_xlabel("minutes that a failure costs, at one an hour")
        second.grid(axis="x", alpha=0.3)
    return picture


def _work(axes: Axes, shares: pd.DataFrame) -> None:
    for number, (hours, rate) in enumerate(RATES.items()):
        for place, name in enumerate(SYSTEMS):
            mean, half = work(shares, name, hours)
            axes.plot([mean - half, mean + half], [place, place], color=f"C{number}", lw=1.5)
            axes.plot(mean, place, MARKS[number], color=f"C{number}", ms=5, label=rate if not place else None)
    axes.set_yticks(np.arange(len(SYSTEMS)), list(SYSTEMS))
    axes.set_ylim(len(SYSTEMS) - 0.5, -0.5)
    axes.set_xlabel("work that lasts, as a share of that without failures")
    axes.grid(axis="x", alpha=0.3)
    axes.legend(loc="lower left")
