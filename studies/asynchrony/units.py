"""Runs of one case, each with one seed, kept in a file so that none is made twice."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import fred
from studies.asynchrony.cases import Case
from studies.asynchrony.systems import system
from studies.kit.tuning import Settings

_TUNING, _REPORT = "tuning", "report"
_Key = tuple[str, str, int, str]  # system, settings, seed, purpose


class Unit(NamedTuple):
    """The end of a run.

    Args:
        seconds: virtual time to the target, s; infinite if it was not reached.
        error: error, or squared length of the gradient, at the end of the budget.
    """

    seconds: float
    error: float


class Units:
    """Runs of one case: stored ones, and new ones as they are asked for.

    Args:
        case: the case.
        path: file of the runs.
    """

    def __init__(self, case: Case, path: Path) -> None:
        self.case, self._path = case, path
        self._known = _by_key(pd.read_csv(path)) if path.is_file() else {}

    def scores(self, name: str, some: Sequence[Settings], seeds: Sequence[int]) -> NDArray[np.float64]:
        """Return the time to the target [settings, seeds], s, in the shorter runs for tuning.

        A run that misses the target counts as its length, times one more than the logarithm of its error over the target.

        Args:
            name: name of the system.
            some: settings.
            seeds: of the runs.
        """
        length, target = self.case.learned.tuned_for * self.case.budget, self.case.learned.target
        found = self._found(name, some, seeds, _TUNING)
        return np.array([[_score(unit, length, target) for unit in row] for row in found])

    def seconds(self, name: str, settings: Settings, seeds: Sequence[int]) -> list[float]:
        """Return the time to the target with each seed, s; infinite if it was not reached in the budget.

        Args:
            name: name of the system.
            settings: value of each of its knobs.
            seeds: of the runs.
        """
        return [unit.seconds for unit in self._found(name, [settings], seeds, _REPORT)[0]]

    def _found(self, name: str, some: Sequence[Settings], seeds: Sequence[int], purpose: str) -> list[list[Unit]]:
        keys = [[(name, json.dumps(each), seed, purpose) for seed in seeds] for each in some]
        missing = [each for each, own in zip(some, keys, strict=True) if any(key not in self._known for key in own)]
        if missing:
            self._run(name, missing, seeds, purpose)
        return [[self._known[key] for key in own] for own in keys]

    def _run(self, name: str, some: Sequence[Settings], seeds: Sequence[int], purpose: str) -> None:
        own = system(name, self.case.workers)
        runs = {f"p{number}": own.run(each) for number, each in enumerate(some)}
        settings = self.case.tuning_settings if purpose == _TUNING else self.case.settings
        summary = fred.run(fred.scenario(settings, seeds=list(seeds), runs=runs)).summary
        found = pd.DataFrame(
            {
                "system": name,
                "settings": [json.dumps(some[int(run.removeprefix("p"))]) for run in summary["name"]],
                "seed": summary["seed"],
                "purpose": purpose,
                "seconds": pd.to_numeric(summary["target_seconds"]).fillna(np.inf),
                "error": pd.to_numeric(summary["error"]).fillna(np.inf),
            }
        )
        found.to_csv(self._path, mode="a", header=not self._path.is_file(), index=False)
        self._known |= _by_key(found)


def _by_key(found: pd.DataFrame) -> dict[_Key, Unit]:
    columns = (found[name].tolist() for name in ("system", "settings", "seed", "purpose", "seconds", "error"))
    return {tuple(key): Unit(seconds, error) for *key, seconds, error in zip(*columns, strict=True)}


def _score(unit: Unit, length: float, target: float) -> float:
    return unit.seconds if np.isfinite(unit.seconds) else length * float(1 + max(0.0, np.log(unit.error / target)))
