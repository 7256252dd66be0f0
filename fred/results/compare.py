"""Comparison of result folders: their numbers, equality of digests, and the first difference of two schedules."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fred.base.errors import FredError
from fred.base.words import briefly
from fred.outcomes.comparisons import compared
from fred.outcomes.outcome import Outcome
from fred.results.folder import load_result
from fred.results.result import Result
from fred.results.settings import differing, recorded
from fred.results.verify import first_difference

_SHOWN = ("updates", "gradients_applied", "virtual_seconds", "loss", "error", "gradient_norm", "target_seconds")


def compare(*results: Result | str | Path, **named: Result | str | Path) -> "Compared":
    """Return a comparison of two results or more: their numbers, the settings that differ, and which bits agree.

    Args:
        results: results, or folders of results; their labels are the folders' names, or their positions.
        named: the same with labels: `before=..., after=...`.

    A notebook shows it as tables; `table()`, `paired()`, `settings()` and `agreement()` return the parts, `together()` is one
    result with all runs, for figures. Raises FredError for fewer than two results, and for the same folder twice.

    >>> import fred
    >>> scenario = fred.scenario(
    ...     cluster={"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
    ...     stop={"updates": 4},
    ...     algorithm={"name": "asgd", "learning_rate": 0.1},
    ... )
    >>> compared = fred.compare(two=fred.run(scenario), four=fred.run(scenario.replace({"cluster.workers": 4})))
    >>> print(compared.table().to_string(index=False))
     run folder  updates  gradients_applied  virtual_seconds
    asgd    two      4.0                4.0              1.0
    asgd   four      4.0                4.0              0.5
    >>> compared.settings()
    ['two and four have runs of the same name with other settings: cluster.workers 2 and 4']
    """
    if len(results) == 1 and isinstance(results[0], list | tuple):
        return compare(*results[0], **named)
    paths = [Path(value) for value in results if not isinstance(value, Result)]
    if len({path.resolve() for path in paths}) < len(paths) or len(results) + len(named) < 2:
        raise FredError("expected two or more different results or result folders")
    labels = iter(_labels(paths))
    parts: dict[str, Result | str | Path] = {}
    for number, value in enumerate(results, start=1):
        label = next(labels) if not isinstance(value, Result) else Path(value.folder).name or f"result {number}"
        if label in parts or label in named:
            raise FredError(f"two results are called `{label}`; name them: `fred.compare(before=..., after=...)`")
        parts[label] = value
    parts |= named
    return Compared({label: value if isinstance(value, Result) else load_result(value) for label, value in parts.items()})


class Compared:
    """Results by label, as `compare` returns them.

    Args:
        results: two results or more, by label.
    """

    def __init__(self, results: Mapping[str, Result]):
        self.results = dict(results)

    def __repr__(self) -> str:
        return "\n".join([self.table().to_string(index=False), *self.settings(), *self.agreement()])

    def _repr_html_(self) -> str:
        from fred.views.notebook import comparison_html

        pairs = self.paired()
        return comparison_html(self.table(), pairs if len(pairs) else None, [*self.settings(), *self.agreement()])

    @property
    def _reported(self) -> dict[str, Result]:
        """Return the results without seeds and points that only served to find the best points of sweeps."""
        reported = self.results.items()
        return {label: each.with_its_best() if each.scenario.report_seeds else each for label, each in reported}

    def together(self) -> Result:
        """Return all outcomes in one result, with the folder in each run's name."""
        outcomes = [
            each.renamed(f"{label}: {each.name}") for label, result in self._reported.items() for each in result.outcomes
        ]
        own: dict[str, Any] = {"title": " / ".join(self.results), "points": {}, "baseline": None, "report_seeds": None}
        scenario = next(iter(self._reported.values())).scenario.model_copy(update=own)
        return Result(scenario, outcomes)

    def table(self) -> pd.DataFrame:
        """Return a row per run and folder: means over the seeds of the quantities measured."""
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
        """Compare each folder's runs with those of the same name in the first, if they share several seeds and differ.

        For sweeps the best points are compared, under the name of the swept run. Columns are those of `Result.paired`,
        where `run` and `baseline` are folders, and `of`, the run.
        """
        first = next(iter(self.results))
        by_run: dict[str, list[Outcome]] = {}
        for label, result in self.results.items():
            for each in result.chosen:
                name = result.scenario.run_of(each.name)
                by_run.setdefault(name, []).append(each.renamed(label))
        whole = self.together()
        together = {run: replace(whole, outcomes=own) for run, own in by_run.items()}
        pairs = [compared(each).assign(of=run) for run, each in together.items() if each.outcomes[0].name == first]
        several = [each for each in pairs if len(each)]  # the columns of empty tables hold no numbers
        found = pd.concat(several or [pd.DataFrame(columns=["of"])], ignore_index=True)
        return found[_differ(found)] if len(found) else found

    def settings(self) -> list[str]:
        """Return a line for each pair of neighbouring folders whose runs of the same name have different settings."""
        lines = []
        for (one, mine), (other, their) in itertools.pairwise(self.results.items()):
            own, theirs = ({each.name: recorded(each.run) for each in result.outcomes} for result in (mine, their))
            if found := differing(own, theirs):
                lines.append(
                    f"{one} and {other} have runs of the same name with other settings: {briefly(found, between='; ')}"
                )
        return lines

    def agreement(self) -> list[str]:
        """Return, for every run and seed that neighbouring folders share, that all bits agree, or the first difference."""
        lines = []
        labels = list(self.results)
        for one, other in itertools.pairwise(labels):
            theirs = {(each.name, each.seed): each for each in self.results[other].outcomes}
            pairs = [
                (each, theirs[each.name, each.seed]) for each in self.results[one].outcomes if (each.name, each.seed) in theirs
            ]
            same = [f"{mine.name}, seed {mine.seed}" for mine, their in pairs if _digests(mine) == _digests(their)]
            shared = f"{len(same)} of {len(pairs)} shared runs have the same digests"
            lines.append(f"{one} and {other}: {shared if pairs else 'no run of the same name and seed'}")
            for mine, their in pairs:
                if _digests(mine) != _digests(their):
                    lines.append(f"  {mine.name}, seed {mine.seed}: {_difference(mine, their)}")
        return lines


def _differ(pairs: pd.DataFrame) -> pd.Series:
    """Return True for pairs with several seeds, unless run and baseline are equal for every seed."""
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


def _labels(folders: Sequence[Path]) -> list[str]:
    paths = [folder.resolve() for folder in folders]
    for depth in range(1, max((len(path.parts) for path in paths), default=0) + 1):
        labels = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(labels)) == len(labels):
            return labels
    return [str(path) for path in paths]
