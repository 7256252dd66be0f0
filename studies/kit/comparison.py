"""Systems in cases: each is tuned in each case by the same search, and measured there with seeds that had no part in it."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from studies.kit.runs import part_path, parts
from studies.kit.study import Study, read_table
from studies.kit.tuning import REPORTED, TUNING, Knobs, Settings, tuned

Scores = Callable[[str, str, Sequence[Settings], Sequence[int]], NDArray[np.float64]]
Report = Callable[[str, str, Sequence[Settings], Sequence[int]], pd.DataFrame]
TRIALS = "tuning"  # end of the name of the table of all trials


@dataclass(frozen=True)
class Comparison:
    """A table of systems and cases. Its functions are those of a module, since worker processes import them.

    Args:
        study: where results go.
        cases: names.
        knobs: ordered values of each setting, by system.
        scores: returns the criterion [settings, seeds] of a case and system, less is better.
        report: returns a row for each of some settings, its number as `setting`, and seed.
        points: of each system in each case.
        finalists: number of points, the best of those, that are tried with all tuning seeds.
        extra: largest number of further points while the best one has an untried neighbour.
        special: systems that a system contains, by its name; they are tuned first.
        twins: systems that have the same runs in the tuning, by the name of one that takes their settings.
        average: mean of scores over cases that is least for the one setting for all cases (`by_logarithm`, for example); None
            to measure each case's tuned setting only.
        tuning: seeds that settings are chosen with.
        reported: seeds that are measured.
    """

    study: Study
    cases: Sequence[str]
    knobs: Mapping[str, Knobs]
    scores: Scores
    report: Report
    points: int
    finalists: int
    extra: int = 0
    special: Mapping[str, Sequence[str]] = field(default_factory=dict)
    twins: Mapping[str, str] = field(default_factory=dict)
    average: Callable[[pd.DataFrame], "pd.Series[float]"] | None = None
    tuning: Sequence[int] = TUNING
    reported: Sequence[int] = REPORTED

    def measure(self) -> None:
        """Measure all parts that have no file, and write the tables."""
        searched = [name for name in self.knobs if name not in self.twins]
        general = [name for name in searched if name in self.special]
        for names in ([name for name in searched if name not in general], *([name] for name in general)):
            parts(self.study, self.tune, [(case, name) for name in names for case in self.cases], TRIALS)
        items = [(case, name) for case in self.cases for name in self.knobs]
        self.study.write("", pd.concat(parts(self.study, self.measure_chosen, items)))
        self.study.write(TRIALS, pd.concat(self._trials(case, name) for case, name in items if name in searched))

    def tune(self, case: str, system: str) -> pd.DataFrame:
        """Return a row for each point that was tried and seed, with the chosen one marked.

        Args:
            case: name.
            system: name.
        """
        rows = list[dict[str, Any]]()

        def measured(points: Sequence[Settings], seeds: Sequence[int]) -> NDArray[np.float64]:
            scores = self.scores(case, system, points, seeds)
            for settings, values in zip(points, scores, strict=True):
                by_seed = zip(seeds, values.tolist(), strict=True)
                rows.extend({"settings": json.dumps(settings), "seed": seed, "score": score} for seed, score in by_seed)
            return scores

        special = [json.loads(chosen_settings(self._trials(case, name))) for name in self.special.get(system, ())]
        best = tuned(measured, self.knobs[system], self.points, self.finalists, self.tuning, self.extra, special)
        table = pd.DataFrame(rows)
        winners = table["settings"] == json.dumps(best.settings)
        edges = np.where(winners, " ".join(best.edges), "")
        return table.assign(case=case, system=system, chosen=winners, edges=edges)

    def measure_chosen(self, case: str, system: str) -> pd.DataFrame:
        """Return the measurements of a system in a case: tuned there (way `tuned`) and with the one setting for all cases.

        Args:
            case: name.
            system: name.
        """
        ways = {"tuned": chosen_settings(self._trials(case, system))}
        if self.average:
            ways["one setting"] = one_setting({name: self._trials(name, system) for name in self.cases}, self.average)
        distinct = list(dict.fromkeys(ways.values()))
        rows = self.report(case, system, [json.loads(settings) for settings in distinct], self.reported)
        rows["settings"] = [distinct[number] for number in rows.pop("setting")]
        tables = [rows[rows["settings"] == settings].assign(way=way) for way, settings in ways.items()]
        return pd.concat(tables).assign(case=case, system=system)

    def _trials(self, case: str, system: str) -> pd.DataFrame:
        return read_table(part_path(self.study, (case, self.twins.get(system, system)), TRIALS))


def chosen_settings(trials: pd.DataFrame) -> str:
    """Return the settings that were chosen for a system in a case.

    Args:
        trials: a row for each point that was tried there, and seed.
    """
    return str(trials.loc[trials["chosen"], "settings"].iloc[0])


def by_logarithm(scores: pd.DataFrame) -> "pd.Series[float]":
    """Return the mean logarithm of each point's scores, for times.

    Args:
        scores: a row for each point, a column for each case.
    """
    return np.log(scores).mean(axis=1)


def above_best(scores: pd.DataFrame) -> "pd.Series[float]":
    """Return by how much each point's scores are above the least ones of each case, for losses.

    Args:
        scores: a row for each point, a column for each case.
    """
    return (scores - scores.min()).mean(axis=1)


def one_setting(trials: Mapping[str, pd.DataFrame], mean: Callable[[pd.DataFrame], "pd.Series[float]"] = by_logarithm) -> str:
    """Return the one setting for all cases: the best on the first tuning seed, of those that were tried in all cases.

    Args:
        trials: by case, a row for each point that was tried, and seed.
        mean: over the cases.
    """
    seed = min(table["seed"].iloc[0] for table in trials.values())
    first = {
        case: table[table["seed"] == seed].groupby("settings", sort=False)["score"].first() for case, table in trials.items()
    }
    return str(mean(pd.DataFrame(first).astype(float).dropna()).idxmin())
