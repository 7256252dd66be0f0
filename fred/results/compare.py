"""Several result folders side by side: their numbers, which digests agree, and where two schedules first differ."""

import itertools
from pathlib import Path

import numpy as np
import pandas as pd

from fred.errors import FredError
from fred.outcomes.outcome import Outcome
from fred.results.folder import load_result
from fred.results.result import Result
from fred.results.verify import first_difference

_SHOWN = ("updates", "gradients_applied", "virtual_seconds", "loss", "error", "target_seconds")


class Compared:
    """Results by label: the folders' names, or as much of their paths as tells them apart.

    Args:
        folders: of two results or more. Raises FredError for fewer, or the same twice.
    """

    def __init__(self, folders: list[Path]):
        if len({path.resolve() for path in folders}) < max(2, len(folders)):
            raise FredError("expected two or more different result folders")
        self.results = dict(zip(_labels(folders), map(load_result, folders), strict=True))

    def together(self) -> Result:
        """All outcomes in one result, each run named after its folder too."""
        first = next(iter(self.results.values()))
        outcomes = [each.renamed(f"{label}: {each.name}") for label, result in self.results.items() for each in result.outcomes]
        scenario = first.scenario.model_copy(update={"title": " / ".join(self.results), "points": {}})
        return Result(scenario, outcomes)

    def table(self) -> pd.DataFrame:
        """A row per run and folder: means over the seeds of what both have measured."""
        frames = []
        for label, result in self.results.items():
            summary = result.summary
            shown = [column for column in _SHOWN if column in summary and summary[column].notna().any()]
            means = summary.groupby("name", sort=False)[shown].mean().reset_index().rename(columns={"name": "run"})
            frames.append(means.assign(folder=label))
        table = pd.concat(frames, ignore_index=True)
        order = list(dict.fromkeys(table["run"]))
        table = table.sort_values("run", key=lambda runs: runs.map(order.index), kind="stable")
        return table[["run", "folder", *(column for column in table if column not in ("run", "folder"))]]

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
