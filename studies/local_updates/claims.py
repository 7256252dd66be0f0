"""Experiments: systems on a task, each with a small grid of rates, and the claims about them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, log
from typing import Any, NamedTuple

import fred
from fred.specification.loading import Scenario

Settings = dict[str, Any]

SEEDS, REPORTED = [1, 2], [11, 12, 13, 14, 15]
AFTERWARDS = [21, 22, 23, 24, 25]  # reported of what was added when the others had been seen
_ADAM = [0.0003, 0.001, 0.003, 0.01, 0.03]
RATES: dict[str, list[float]] = {  # of local steps; as many for each optimizer
    "sgd": [0.01, 0.03, 0.1, 0.3, 1.0],
    **dict.fromkeys(("adam", "adamw", "nadamw"), _ADAM),
    "muon": [0.001, 0.003, 0.01, 0.03, 0.1],
    "lion": [0.0001, 0.0003, 0.001, 0.003, 0.01],
}
_TRANSFORMER = {"name": "transformer", "layers": 1, "width": 32, "heads": 4}


def _language(data: Settings, batch: int) -> Settings:
    return {"data": {"examples": 2000, "evaluation": 200, **data}, "model": _TRANSFORMER, "batch_size": batch}


TASKS: dict[str, Settings] = {
    "digits": {"data": "digits", "model": {"name": "mlp", "hidden": [32]}, "batch_size": 16},
    "grammar": _language({"name": "grammar", "context": 31}, batch=4),
    "heavy tail": _language({"name": "bigrams", "vocabulary": 64, "exponent": 1.0, "context": 32}, batch=8),
    "no tail": _language({"name": "bigrams", "vocabulary": 64, "exponent": 0.0, "context": 32}, batch=8),
}


def plain(name: str) -> str:
    """Return a name for files and runs.

    >>> plain("8, all asked")
    '8-all-asked'
    """
    return name.replace(",", "").replace(" ", "-")


class Quantity(NamedTuple):
    """A measurement of a run."""

    column: str
    ratio: bool  # whether systems are compared by ratios, else by differences


LOSS = Quantity("loss", ratio=False)
SECONDS = Quantity("target_seconds", ratio=True)
DURATION = Quantity("virtual_seconds", ratio=True)
EXAMPLES = Quantity("examples", ratio=True)
SPREAD = Quantity("spread", ratio=True)


class Claim(NamedTuple):
    """A claim about systems: a sum of their values, with these factors, lies between two bounds.

    Args:
        said: in our words.
        source: of whom.
        quantity: whose values; of ratios their logarithms.
        factors: of each system.
        low: bound.
        high: bound.
    """

    said: str
    source: str
    quantity: Quantity
    factors: Mapping[str, float]
    low: float = -inf
    high: float = 0.0


def below(said: str, source: str, quantity: Quantity, less: str, more: str) -> Claim:
    """One system has less than another."""
    return Claim(said, source, quantity, {less: 1.0, more: -1.0})


def nearly(said: str, source: str, quantity: Quantity, one: str, other: str, margin: float) -> Claim:
    """One system has at most a margin more than another; for ratios, at most this multiple."""
    return Claim(said, source, quantity, {one: 1.0, other: -1.0}, high=log(margin) if quantity.ratio else margin)


def gap(said: str, source: str, smaller: tuple[str, str], larger: tuple[str, str], share: float = 1.0) -> Claim:
    """The loss that the first system of the one pair has more than the second is less than a share of the other pair's."""
    factors: dict[str, float] = {}
    for name, factor in zip((*smaller, *larger), (1.0, -1.0, -share, share), strict=True):
        factors[name] = factors.get(name, 0.0) + factor
    return Claim(said, source, LOSS, factors)


@dataclass(frozen=True)
class Experiment:
    """Systems on one task.

    Args:
        name: of the experiment.
        task: a key of TASKS.
        setting: workers, steps and links of all systems, in words.
        settings: the same, as in a scenario.
        systems: what each has of its own, as in a scenario.
        claims: about them.
        rates: of local steps, by optimizer.
        outer: rates of the outer optimizer that are tried with each of these, where systems have one.
        by: column of the summary by which the best point is chosen.
        reported: seeds, none of which has a part in that choice.
    """

    name: str
    task: str
    setting: str
    settings: Settings
    systems: Mapping[str, Settings]
    claims: tuple[Claim, ...]
    rates: Mapping[str, list[float]] = field(default_factory=lambda: RATES)
    outer: tuple[float, ...] = ()
    by: str = "loss"
    reported: list[int] = field(default_factory=lambda: REPORTED)

    @property
    def key(self) -> str:
        """Return the key for files."""
        return plain(f"{self.name} {self.task}")

    def scenario(self) -> Scenario:
        """All systems with all their rates."""
        task = {**TASKS[self.task], **self.settings.get("task", {})}
        cluster = {"workers": 4, "compute": {"name": "lognormal", "median": 1.0, "sigma": 0.2}}
        common = {**self.settings, "task": task, "cluster": {**cluster, **self.settings.get("cluster", {})}}
        common.setdefault("evaluate", {"points": 2})
        runs = {plain(name): {**own, **self._swept(own["algorithm"])} for name, own in self.systems.items()}
        title = f"Do the claims made for local updates hold? ({self.name}, {self.task})"
        return fred.scenario(common, title=title, seeds=SEEDS, report_seeds=self.reported, runs=runs)

    def _swept(self, algorithm: Settings) -> Settings:
        optimizer = algorithm.get("optimizer", "muon" if algorithm["name"] == "muloco" else "sgd")
        rates = self.rates[optimizer if isinstance(optimizer, str) else optimizer["name"]]
        over: dict[str, Any] = {"algorithm.learning_rate": rates}
        if self.outer and "outer_rate" in algorithm:
            over["algorithm.outer_rate"] = list(self.outer)
        return {"algorithm": {**algorithm, "learning_rate": rates[0]}, "sweep": {"best": self.by, "over": over}}
