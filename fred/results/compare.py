"""Comparison of results: their numbers, the settings that differ, and the first difference of two schedules."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fred.base.errors import FredError, briefly, quoted
from fred.outcomes.comparisons import compared
from fred.outcomes.outcome import Outcome
from fred.results.folder import load_result
from fred.results.result import Result
from fred.results.verify import first_difference
from fred.specification.shape import Run

_LONGEST_VALUE = 60  # characters of a value
_COLUMNS = ("updates", "gradients_applied", "virtual_seconds", "loss", "error", "gradient_norm", "target_seconds")


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
        results = self.results.items()
        return {label: result.with_its_best() if result.scenario.report_seeds else result for label, result in results}

    def together(self) -> Result:
        """Return all outcomes in one result, with the folder in each run's name."""
        outcomes = [
            outcome.renamed(f"{label}: {outcome.name}")
            for label, result in self._reported.items()
            for outcome in result.outcomes
        ]
        changes: dict[str, Any] = {"title": " / ".join(self.results), "points": {}, "baseline": None, "report_seeds": None}
        scenario = next(iter(self._reported.values())).scenario.model_copy(update=changes)
        return Result(scenario, outcomes)

    def table(self) -> pd.DataFrame:
        """Return a row per run and folder: means over the seeds of the quantities measured."""
        frames = []
        for label, result in self._reported.items():
            summary = result.summary
            columns = [column for column in _COLUMNS if column in summary and summary[column].notna().any()]
            means = summary.groupby("name", sort=False)[columns].mean().reset_index().rename(columns={"name": "run"})
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
            for outcome in result.reported_outcomes:
                by_run.setdefault(result.scenario.run_of(outcome.name), []).append(outcome.renamed(label))
        together = self.together()
        results = {run: replace(together, outcomes=outcomes) for run, outcomes in by_run.items() if outcomes[0].name == first}
        tables = [compared(result).assign(of=run) for run, result in results.items()]
        filled = [table for table in tables if len(table)]  # the columns of empty tables hold no numbers
        pairs = pd.concat(filled or [pd.DataFrame(columns=["of"])], ignore_index=True)
        return pairs[_differ(pairs)] if len(pairs) else pairs

    def settings(self) -> list[str]:
        """Return a line for each pair of neighbouring folders whose runs of the same name have different settings."""
        lines = []
        settings = {label: {run.name: recorded(run.run) for run in result.outcomes} for label, result in self.results.items()}
        for label, other in itertools.pairwise(settings):
            if differences := describe_differences(settings[label], settings[other]):
                text = briefly(differences, separator="; ")
                lines.append(f"{label} and {other} have runs of the same name with other settings: {text}")
        return lines

    def agreement(self) -> list[str]:
        """Return, for every run and seed that neighbouring folders share, that all bits agree, or the first difference."""
        lines = []
        for label, other in itertools.pairwise(self.results):
            outcomes = {(outcome.name, outcome.seed): outcome for outcome in self.results[other].outcomes}
            shared = [outcome for outcome in self.results[label].outcomes if (outcome.name, outcome.seed) in outcomes]
            pairs = [(outcome, outcomes[outcome.name, outcome.seed]) for outcome in shared]
            unequal = [(old, new) for old, new in pairs if _digests(old) != _digests(new)]
            count = f"{len(pairs) - len(unequal)} of {len(pairs)} shared runs have the same digests"
            lines.append(f"{label} and {other}: {count if pairs else 'no run of the same name and seed'}")
            lines += [f"  {old.name}, seed {old.seed}: {_difference(old, new)}" for old, new in unequal]
        return lines


def recorded(run: Run, folder: Path = Path()) -> dict[str, Any]:
    """Return a run's settings as a manifest records them.

    Args:
        run: the run.
        folder: folder that paths of input files are relative to.
    """
    return run.model_dump(mode="json", context={"paths": lambda path: path.relative_to(folder)})


def describe_differences(settings: Mapping[str, Mapping[str, Any]], other: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a text for each setting in which runs of the same name differ, with both values and the names of the runs.

    Args:
        settings: settings by the name of the run.
        other: the same of another result.

    >>> one = {"asgd": {"stop": {"updates": 40}, "cluster": {"workers": 8}}, "ssgd": {"cluster": {"workers": 8}}}
    >>> other = {"asgd": {"stop": {"updates": 20}, "cluster": {"workers": 16}}, "ssgd": {"cluster": {"workers": 16}}}
    >>> describe_differences(one, other)
    ['stop.updates 40 and 20 (asgd)', 'cluster.workers 8 and 16']
    """
    shared = [name for name in settings if name in other]
    runs: dict[str, list[str]] = {}
    for name in shared:
        for text in _differences(settings[name], other[name]):
            runs.setdefault(text, []).append(name)
    return [text if len(names) == len(shared) else f"{text} ({', '.join(names)})" for text, names in runs.items()]


def _differ(pairs: pd.DataFrame) -> pd.Series:
    """Return True for pairs with several seeds, unless run and baseline are equal for every seed."""
    neutral = (pairs["way"] == "ratio").astype(float)
    return (pairs["seeds"] > 1) & ((pairs["least"] != neutral) | (pairs["largest"] != neutral))


def _digests(outcome: Outcome) -> tuple[str, str | None]:
    return outcome.schedule_digest, outcome.params_digest


def _difference(old: Outcome, new: Outcome) -> str:
    """Return where two outcomes with different digests differ first: in the schedule, or else in the evaluations."""
    if old.schedule_digest != new.schedule_digest:
        return first_difference(old.schedule, new.schedule)
    columns = [column for column in old.metrics if column in new.metrics]
    rows = min(len(old.metrics), len(new.metrics))
    tables = [outcome.metrics[columns].iloc[:rows] for outcome in (old, new)]
    unequal = np.flatnonzero((tables[0] != tables[1]).any(axis=1))
    if not len(unequal):
        return "timing is the same, arithmetic differs, measured the same"
    updates = int(tables[0]["updates"].iloc[unequal[0]])
    return f"timing is the same, arithmetic differs, first measured after {updates:,} updates"


def _labels(folders: Sequence[Path]) -> list[str]:
    """Return as many last parts of each path as distinguish all folders."""
    paths = [folder.resolve() for folder in folders]
    for depth in range(1, max((len(path.parts) for path in paths), default=0) + 1):
        labels = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(labels)) == len(labels):
            return labels
    return [str(path) for path in paths]


def _differences(old: Any, new: Any, key: str = "") -> Iterator[str]:
    """Yield each setting that differs; of components with different names only the names."""
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, pair in enumerate(zip(old, new, strict=True)):
            yield from _differences(*pair, f"{key}.{number}")
        return
    if not isinstance(old, dict) or not isinstance(new, dict):
        if old != new:
            yield f"{key} {_brief(old)} and {_brief(new)}"
        return
    names = ["name"] if old.get("name") != new.get("name") else list(dict.fromkeys((*old, *new)))
    for name in names:
        yield from _differences(old.get(name), new.get(name), f"{key}.{name}".lstrip("."))


def _brief(value: Any) -> str:
    if value is None:
        return "absent"
    text = value if isinstance(value, str) else quoted(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."
