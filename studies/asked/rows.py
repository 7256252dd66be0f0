"""The rows and cells of the page's tables."""

import json
from collections.abc import Iterator

import numpy as np
import pandas as pd

from fred.base.intervals import Verdict
from fred.base.words import listed
from studies.asked.cases import CASES
from studies.asked.compared import (
    added_where_slow_differ,
    as_good,
    cheapest,
    fairest,
    fastest,
    less_fair,
    missed,
    sooner,
    uploads,
    values,
    without_rounds,
)
from studies.asked.systems import BASE, SYSTEMS

DROPPING = ("spare", "deadline", "by speed")  # systems that leave slow clients out


def home(found: pd.DataFrame) -> Iterator[list[str]]:
    """Yield, for each case, the fastest system, those as good, the cheapest, and the fairest.

    Args:
        found: a row for each case, system, way and seed.
    """
    for case in CASES:
        first, answers = fastest(found, case), as_good(found, case)
        good, unknown = ([each for each, own in answers.items() if own == word] for word in (Verdict.YES, Verdict.OPEN))
        cheap, fair = cheapest(found, case), fairest(found, case)
        yield [
            f"`{case}`",
            f"**{first}**",
            time(found, case, first),
            listed(good),
            listed(unknown),
            time(found, case, BASE),
            f"{cheap}, {uploads(found, case, cheap):,.0f}",
            f"{fair}, {error(found, case, fair)}",
        ]


def verdicts(found: pd.DataFrame) -> Iterator[list[str]]:
    """Yield a row for each question, with the answer in each case.

    Args:
        found: a row for each case, system, way and seed.
    """
    always = without_rounds(found)
    quicker, unfair = ({case: own(found, case) for case in CASES} for own in (sooner, less_fair))
    for system in ("FedBuff", "FedAsync", "FedCompass"):
        yield [f"Is {system} sooner than the fastest rounds?", *(always[system, case].lower.value for case in CASES)]
    for system in DROPPING:
        yield [f"Is `{system}` sooner than `{BASE}`?", *(quicker[case][system].lower.value for case in CASES)]
    for system in DROPPING:
        yield [f"Is `{system}` fairer than `{BASE}`?", *(unfair[case][system].lower.value for case in CASES)]


def time(found: pd.DataFrame, case: str, system: str, way: str = "tuned") -> str:
    """Return the geometric mean of times to the target, and the number of seeds that missed it.

    Args:
        found: a row for each case, system, way and seed.
        case: which.
        system: which.
        way: how settings were chosen.
    """
    mean = np.exp(np.log(values(found, case, system, "target_seconds", way)).mean())
    late = missed(found, case, system, way)
    return f"{mean:.0f}" + (f" ({late} missed)" if late else "")


def times(found: pd.DataFrame, case: str, system: str) -> str:
    """Return the time to the target with tuned settings, and with one setting for all cases.

    Args:
        found: a row for each case, system, way and seed.
        case: which.
        system: which.
    """
    return f"{time(found, case, system)} / {time(found, case, system, 'one setting')}"


def error(found: pd.DataFrame, case: str, system: str) -> str:
    """Return the mean error of the worst tenth of the clients.

    Args:
        found: a row for each case, system, way and seed.
        case: which.
        system: which.
    """
    return f"{values(found, case, system, 'worst_error').mean():.2f}"


def fair(found: pd.DataFrame, case: str, system: str) -> str:
    """Return the errors of the mean client and of the worst tenth, and the share of clients that took part.

    Args:
        found: a row for each case, system, way and seed.
        case: which.
        system: which.
    """
    mean = values(found, case, system, "client_error").mean()
    share = values(found, case, system, "took_part").mean()
    return f"{mean:.2f} / {error(found, case, system)} / {100 * share:.0f} %"


def sent(found: pd.DataFrame, case: str, system: str) -> str:
    """Return the number of messages to the server until the target.

    Args:
        found: a row for each case, system, way and seed.
        case: which.
        system: which.
    """
    late = missed(found, case, system)
    return f"{uploads(found, case, system):,.0f}" + (f" ({late} missed)" if late else "")


def added(found: pd.DataFrame) -> Iterator[list[str]]:
    """Yield what errors grow by, for each system, if the slow devices have the last digits.

    Args:
        found: a row for each case, system, way and seed.
    """
    columns = [added_where_slow_differ(found, column) for column in ("error", "client_error", "worst_error")]
    for system in SYSTEMS:
        yield [system, *(each[system].said(2) for each in columns)]


def systems() -> Iterator[list[str]]:
    """Yield each system, and the knobs that are tuned."""
    for name, system in SYSTEMS.items():
        yield [name, system.about, ", ".join(knob.replace("_", " ") for knob in system.knobs)]


def setting(tried: pd.DataFrame, case: str, system: str) -> str:
    """Return the values that were chosen for a system in a case.

    Args:
        tried: a row for each case, system, point that was tried, and seed.
        case: which.
        system: which.
    """
    own = tried[(tried["case"] == case) & (tried["system"] == system) & tried["chosen"]].iloc[0]
    edges = own["edges"].split()
    known = json.loads(own["settings"])
    return ", ".join(f"{name.replace('_', ' ')} {value:g}{'*' * (name in edges)}" for name, value in known.items())
