"""Several result folders side by side: their numbers, which digests agree, and where two schedules first differ."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fred.errors import FredError
from fred.outcomes.outcome import Outcome
from fred.outcomes.paired import compared
from fred.results.folder import load_result
from fred.results.result import Result
from fred.results.verify import first_difference

_SHOWN = ("updates", "gradients_applied", "virtual_seconds", "loss", "error", "gradient_norm", "target_seconds")


class Compared:
    """Results by label: the folders' names, or as much of their paths as tells them apart.

    Args:
        folders: of two results or more. Raises FredError for fewer, or the same twice.
    """

    def __init__(self, folders: list[Path]):
        if len({path.resolve() for path in folders}) < max(2, len(folders)):
            raise FredError("expected two or more different result folders")
        self.results = dict(zip(_labels(folders), map(load_result, folders), strict=True))

    @property
    def _reported(self) -> dict[str, Result]:
        """Without what only served to choose among the points of sweeps."""
        reported = self.results.items()
        return {label: each.with_its_best() if each.scenario.report_seeds else each for label, each in reported}

    def together(self) -> Result:
        """All outcomes in one result, each run named after its folder too."""
        outcomes = [
            each.renamed(f"{label}: {each.name}") for label, result in self._reported.items() for each in result.outcomes
        ]
        own: dict[str, Any] = {"title": " / ".join(self.results), "points": {}, "baseline": None, "report_seeds": None}
        scenario = next(iter(self._reported.values())).scenario.model_copy(update=own)
        return Result(scenario, outcomes)

    def table(self) -> pd.DataFrame:
        """A row per run and folder: means over the seeds of what both have measured."""
        frames = []
        for label, result in self._reported.items():
            summary = result.summary
            shown = [column for column in _SHOWN if column in summary and summary[column].notna().any()]
            means = summary.groupby("name", sort=False)[shown].mean().reset_index().rename(columns={"name": "run"})
            frames.append(means.assign(folder=label))
        table = pd.concat(frames, ignore_index=True)
        order = list(dict.fromkeys(table["run"]))
        table = table.sort_values("run", key=lambda runs: runs.map(order.index), kind="stable")
        return table[["run", "folder", *(column for column in table if column not in ("run", "folder"))]]

    def paired(self) -> pd.DataFrame:
        """Each folder's runs less those of the same name in the first, where they have several seeds in common and differ.

        Of sweeps the best points, under the name of what was swept. Columns are those of `Result.paired`, where `run` and
        `baseline` are folders, and `of`, the run.
        """
        first = next(iter(self.results))
        by_run: dict[str, list[Outcome]] = {}
        for label, result in self.results.items():
            for each in result.chosen:
                name = result.scenario.points[each.name].of if each.name in result.scenario.points else each.name
                by_run.setdefault(name, []).append(each.renamed(label))
        whole = self.together()
        together = {run: replace(whole, outcomes=own) for run, own in by_run.items()}
        pairs = [compared(each).assign(of=run) for run, each in together.items() if each.outcomes[0].name == first]
        found = pd.concat(pairs or [pd.DataFrame(columns=["of"])], ignore_index=True)
        return found[_differ(found)] if len(found) else found

    def agreement(self) -> list[str]:
        """Of every run and seed that two neighbouring folders share: whether all bits agree, or what does not."""
        lines = []
        labels = list(self.results)
        for one, other in itertools.pairwise(labels):
            theirs = {(each.name, each.seed): each for each in self.results[other].outcomes}
            pairs = [
                (each, theirs[each.name, each.seed]) for each in self.results[one].outcomes if (each.name, each.seed) in theirs
            ]
            same = [f"{mine.name}, seed {mine.seed}" for mine, their in pairs if _digests(mine) == _digests(their)]
            lines.append(f"{one} and {other}: {len(same)} of {len(pairs)} shared runs have the same digests")
            for mine, their in pairs:
                if _digests(mine) != _digests(their):
                    lines.append(f"  {mine.name}, seed {mine.seed}: {_difference(mine, their)}")
        return lines


def _differ(pairs: pd.DataFrame) -> pd.Series:
    """Of several seeds, and not the same number with each."""
    neutral = (pairs["way"] == "ratio").astype(float)
    return (pairs["seeds"] > 1) & ((pairs["least"] != neutral) | (pairs["largest"] != neutral))


def _digests(outcome: Outcome) -> tuple[str, str | None]:
    return outcome.schedule_digest, outcome.params_digest


def _difference(mine: Outcome, their: Outcome) -> str:
    if mine.schedule_digest != their.schedule_digest:
        return first_difference(mine.schedule, their.schedule)
    old, new = mine.metrics, their.metrics
    rows = min(len(old), len(new))
    shared = [column for column in old if column in new]
    unlike = np.flatnonzero((old[shared].iloc[:rows] != new[shared].iloc[:rows]).any(axis=1))
    at = f"first measured after {int(old['updates'].iloc[unlike[0]]):,} updates" if len(unlike) else "measured the same"
    return f"timing is the same, arithmetic differs, {at}"


def _labels(folders: list[Path]) -> list[str]:
    paths = [folder.resolve() for folder in folders]
    for depth in range(1, max(len(path.parts) for path in paths) + 1):
        labels = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(labels)) == len(labels):
            return labels
    return [str(path) for path in paths]
