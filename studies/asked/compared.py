"""Systems compared over the seeds, with intervals; the comparisons of one question are a family."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.base.intervals import Verdict
from studies.asked.cases import BUDGET, CASES
from studies.asked.systems import BASE, SYSTEMS
from studies.difference import Difference

MARGIN = float(np.log(1.1))  # a time that is longer by less is as good
ROUNDS = [name for name, system in SYSTEMS.items() if system.rounds]
ALWAYS = [name for name, system in SYSTEMS.items() if not system.rounds]
OTHERS = [name for name in SYSTEMS if name != BASE]
MIXED, SORTED = "devices", "slow-differ"  # cases that differ in which clients have the slow devices alone
Values = NDArray[np.float64]  # [seeds]


def values(found: pd.DataFrame, case: str, system: str, column: str, way: str = "tuned") -> Values:
    """Return one measured column of a system in a case [seeds]. A target that was missed counts as reached at the end.

    Args:
        found: a row for each case, system, way and seed.
        case: which.
        system: which.
        column: which.
        way: how settings were chosen, `tuned` or `one setting`.
    """
    every = _rows(found, case, system, way)[column].to_numpy(float)
    return np.where(np.isfinite(every), every, BUDGET if column == "target_seconds" else np.nan)


def missed(found: pd.DataFrame, case: str, system: str, way: str = "tuned") -> int:
    """Return the number of seeds with which a system missed the target.

    Args:
        found: a row for each case, system, way and seed.
        case: which.
        system: which.
        way: how settings were chosen.
    """
    return int(_rows(found, case, system, way)["target_seconds"].isna().sum())


def _rows(found: pd.DataFrame, case: str, system: str, way: str) -> pd.DataFrame:
    return found[(found["case"] == case) & (found["system"] == system) & (found["way"] == way)].sort_values("seed")


def _logs(found: pd.DataFrame, case: str, system: str) -> Values:
    return np.asarray(np.log(values(found, case, system, "target_seconds")), float)


def fastest(found: pd.DataFrame, case: str, among: Sequence[str] = tuple(SYSTEMS), way: str = "tuned") -> str:
    """Return the system with the least geometric mean of times to the target in a case.

    Args:
        found: a row for each case, system, way and seed.
        case: which.
        among: systems to choose from.
        way: how settings were chosen.
    """
    return min(among, key=lambda each: float(np.log(values(found, case, each, "target_seconds", way)).mean()))


def sooner(found: pd.DataFrame, case: str) -> dict[str, Difference]:
    """Return the logarithm of each other system's time to the target over that of a uniform sample: a family.

    Args:
        found: a row for each case, system, way and seed.
        case: which.
    """
    base = _logs(found, case, BASE)
    return Difference.family({system: _logs(found, case, system) - base for system in OTHERS})


def as_good(found: pd.DataFrame, case: str) -> dict[str, Verdict]:
    """Return whether each other system's time is at most 10 % longer than that of the fastest in a case: a family.

    Args:
        found: a row for each case, system, way and seed.
        case: which.
    """
    first = fastest(found, case)
    others = {each: _logs(found, case, each) - _logs(found, case, first) for each in SYSTEMS if each != first}
    return {system: each.below(MARGIN) for system, each in Difference.family(others, [MARGIN]).items()}


def without_rounds(found: pd.DataFrame) -> dict[tuple[str, str], Difference]:
    """Return the logarithm of the time of each system without rounds over that of the fastest with rounds: one family.

    Args:
        found: a row for each case, system, way and seed.
    """
    best = {case: _logs(found, case, fastest(found, case, ROUNDS)) for case in CASES}
    return Difference.family({(system, case): _logs(found, case, system) - best[case] for system in ALWAYS for case in CASES})


def less_fair(found: pd.DataFrame, case: str, column: str = "worst_error") -> dict[str, Difference]:
    """Return the error of each other system's worst tenth of the clients, less that of a uniform sample: a family.

    Args:
        found: a row for each case, system, way and seed.
        case: which.
        column: which error.
    """
    base = values(found, case, BASE, column)
    return Difference.family({system: values(found, case, system, column) - base for system in OTHERS})


def added_where_slow_differ(found: pd.DataFrame, column: str) -> dict[str, Difference]:
    """Return what an error grows by if the slow devices, instead of any, have the last digits: a family.

    Both cases have the one setting for all cases, so nothing else differs.

    Args:
        found: a row for each case, system, way and seed.
        column: which error.
    """

    def errors(case: str, system: str) -> Values:
        return values(found, case, system, column, "one setting")

    return Difference.family({system: errors(SORTED, system) - errors(MIXED, system) for system in SYSTEMS})


def uploads(found: pd.DataFrame, case: str, system: str) -> float:
    """Return the mean number of messages to the server until the target, at the run's mean rate.

    Args:
        found: a row for each case, system, way and seed.
        case: which.
        system: which.
    """
    sent = values(found, case, system, "messages_to_servers") * values(found, case, system, "target_seconds") / BUDGET
    return float(sent.mean())


def cheapest(found: pd.DataFrame, case: str) -> str:
    """Return the system with the fewest messages to the server until the target, of those that always reach it.

    Args:
        found: a row for each case, system, way and seed.
        case: which.
    """
    reaching = [each for each in SYSTEMS if not missed(found, case, each)]
    return min(reaching or list(SYSTEMS), key=lambda each: uploads(found, case, each))


def fairest(found: pd.DataFrame, case: str) -> str:
    """Return the system with the least mean error of the worst tenth of the clients.

    Args:
        found: a row for each case, system, way and seed.
        case: which.
    """
    return min(SYSTEMS, key=lambda each: float(values(found, case, each, "worst_error").mean()))
