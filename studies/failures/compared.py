"""Systems compared over the seeds, with intervals; the comparisons of one question are a family."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from studies.difference import Difference
from studies.failures.cases import (
    BASE,
    BUDGET,
    DETECT,
    HOUR,
    JOIN,
    LOAD,
    MEDIUM,
    MOST,
    NONE,
    PAUSE,
    REPAIR,
    SYSTEMS,
    WORKERS,
)
from studies.failures.theory import daly_interval, goodput

MARGIN = float(np.log(1.1))  # times are equal if their ratio lies between 1 / 1.1 and 1.1
MONTH = 730.0  # hours
_MINUTE = 60.0  # s
Values = NDArray[np.float64]  # [seeds]


def values(found: pd.DataFrame, system: str, hours: float, column: str, tuned: str = "none") -> Values:
    """Return one measured column of a system at a rate of failures [seeds].

    A target that was missed counts as reached at the end of the run.

    Args:
        found: a row for each system, rate of failures, setting and seed.
        system: which.
        hours: between two failures of the job.
        column: which.
        tuned: rate of failures for which the setting was chosen.
    """
    rows = found[(found["system"] == system) & (found["hours"] == hours) & (found["tuned"] == tuned)].sort_values("seed")
    every = rows[column].to_numpy(float)
    machines = WORKERS + SYSTEMS[system].spares
    at_the_end = {"target_seconds": BUDGET, "target_cost": machines * BUDGET / HOUR}
    return np.where(np.isfinite(every), every, at_the_end.get(column, np.nan))


def missed(found: pd.DataFrame, system: str, hours: float) -> int:
    """Return the number of seeds with which a system missed the target.

    Args:
        found: a row for each system, rate of failures, setting and seed.
        system: which.
        hours: between two failures of the job.
    """
    rows = found[(found["system"] == system) & (found["hours"] == hours) & (found["tuned"] == "none")]
    return int(rows["target_seconds"].isna().sum())


def _cost(found: pd.DataFrame, system: str) -> Values:
    lost = values(found, system, MOST, "target_seconds") - values(found, system, NONE, "target_seconds")
    return lost / np.maximum(1, values(found, system, MOST, "failures_to_target")) / _MINUTE


def costs(found: pd.DataFrame) -> dict[str, Difference]:
    """Return the cost of a failure in each system, minutes: the time that failures add until the target, over their number.

    Args:
        found: a row for each system, rate of failures, setting and seed.
    """
    return Difference.family({system: _cost(found, system) for system in SYSTEMS})


def costs_less_base(found: pd.DataFrame) -> dict[str, Difference]:
    """Return the cost of a failure in each other system, less that in synchronous SGD with checkpoints, minutes.

    Args:
        found: a row for each system, rate of failures, setting and seed.
    """
    base = _cost(found, BASE)
    return Difference.family({system: _cost(found, system) - base for system in SYSTEMS if system != BASE})


def slower(found: pd.DataFrame, hours: float) -> dict[str, Difference]:
    """Return the logarithm of each system's time to the target at a rate of failures over that without.

    Args:
        found: a row for each system, rate of failures, setting and seed.
        hours: between two failures of the job.
    """
    return Difference.family({system: _log(found, system, hours) - _log(found, system, NONE) for system in SYSTEMS})


def beside_base(found: pd.DataFrame, hours: float, column: str = "target_seconds") -> dict[str, Difference]:
    """Return the logarithm of each other system's time over that of synchronous SGD with checkpoints, at a rate of failures.

    Args:
        found: a row for each system, rate of failures, setting and seed.
        hours: between two failures of the job.
        column: time or cost to the target.
    """
    base = _log(found, BASE, hours, column)
    return Difference.family({system: _log(found, system, hours, column) - base for system in SYSTEMS if system != BASE})


def _log(found: pd.DataFrame, system: str, hours: float, column: str = "target_seconds", tuned: str = "none") -> Values:
    return np.asarray(np.log(values(found, system, hours, column, tuned)), float)


def stale(found: pd.DataFrame) -> dict[str, Difference]:
    """Return the logarithm of the time with six failures a day and the setting tuned without any, over that tuned with them.

    Args:
        found: a row for each system, rate of failures, setting and seed.
    """
    return Difference.family(
        {each: _log(found, each, MEDIUM) - _log(found, each, MEDIUM, tuned="six a day") for each in SYSTEMS}, (-MARGIN, MARGIN)
    )


def loss_added(found: pd.DataFrame) -> dict[str, Difference]:
    """Return what one failure an hour adds to the loss at the end of the run, nats.

    Args:
        found: a row for each system, rate of failures, setting and seed.
    """
    return Difference.family({each: values(found, each, MOST, "loss") - values(found, each, NONE, "loss") for each in SYSTEMS})


def work(found: pd.DataFrame, system: str, hours: float) -> float:
    """Return the gradients of a run that last, as a share of those without failures: the mean over the seeds.

    Args:
        found: a row for each system, rate of failures, setting and seed.
        system: which.
        hours: between two failures of the job.
    """
    shares = values(found, system, hours, "gradients_applied") / values(found, system, NONE, "gradients_applied")
    return float(shares.mean())


def in_a_month(found: pd.DataFrame, system: str) -> float:
    """Return the time that one failure a month would add, as a share: calculated, since a run of this length hardly has one.

    It is what one failure costs or, with checkpoints, the closed form at Daly's interval.

    Args:
        found: a row for each system, rate of failures, setting and seed.
        system: which.
    """
    own = SYSTEMS[system]
    if own.stops:
        away = DETECT + (JOIN if own.spares else REPAIR)
        return 1 / goodput(daly_interval(PAUSE, MONTH * HOUR), PAUSE, MONTH * HOUR, away, LOAD) - 1
    return costs(found)[system].mean.value * _MINUTE / (MONTH * HOUR)
