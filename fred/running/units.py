"""The unit of work: one run with one seed, with an identity that tells whether it has been done before."""

import hashlib
import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import fred
from fred import environment, own_code, registry, remembered
from fred.component import Component, options_of
from fred.errors import FredError
from fred.running.execution import check
from fred.running.problem import data_digest
from fred.specification.shape import Run, Scenario
from fred.version import __version__


@dataclass(frozen=True)
class Unit:
    """One run with one seed."""

    name: str
    run: Run
    seed: int
    inline: bool = False

    @property
    def folder(self) -> str:
        """Where, in a result folder, its files lie."""
        return f"{self.name}/seed-{self.seed}"

    @cached_property
    def data(self) -> str | None:
        """SHA-256 of the data; None if there are none, or they follow from the options and the seed."""
        return data_digest(self.run.task.data) if self.run.task else None

    @cached_property
    def identity(self) -> str:
        """SHA-256 of everything that its outcome depends on: units with the same identity have the same outcome."""
        facts = {
            "name": self.name,
            "run": self.run.model_dump(mode="json"),
            "seed": self.seed,
            "inline": self.inline,
            "data": self.data,
            "environment": environment.describe(),
            "fred": code_of_fred(),
            "own": own_code.facts() if self.own or registry.imported() else {},
            "installed": own_code.installed() if self.own else [],
            "unknown": uuid.uuid4().hex if self.unknown else "",
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    @property
    def own(self) -> bool:
        """Whether classes of the user's own take part."""
        return _has_own(self.run)

    @property
    def unknown(self) -> str:
        """Why it cannot be known whether it has been done before, if so."""
        return own_code.unknown() if self.own else ""


def units_of(scenario: Scenario, only: str | Iterable[str] = (), inline: bool = False) -> list[Unit]:
    """All units of a scenario, or of `only` one or some of its runs; what cannot run is found out here. Raises FredError."""
    wanted = wanted_runs(scenario, only)
    remembered.forget(compiled=any(_has_own(scenario.runs[name]) for name in wanted))
    for name in wanted:
        check(name, scenario.runs[name], scenario.seeds[0])
    return [Unit(name, scenario.runs[name], seed, inline) for name in wanted for seed in scenario.seeds]


def wanted_runs(scenario: Scenario, only: str | Iterable[str] = ()) -> list[str]:
    """The runs that are meant: all, or `only` these, where the name of one that is swept means all its points."""
    wanted: list[str] = []
    swept = [point.of for point in scenario.points.values()]
    for name in dict.fromkeys([only] if isinstance(only, str) else only):
        if name not in scenario.runs and name not in swept:
            known = [*dict.fromkeys(swept), *(run for run in scenario.runs if run not in scenario.points)]
            raise FredError(f"no run `{name}`{registry.nearest(name, [*known, *scenario.runs])}; there are {', '.join(known)}")
        wanted += [name] if name in scenario.runs else [run for run, point in scenario.points.items() if point.of == name]
    return wanted or list(scenario.runs)


def code_of_fred() -> str:
    """FRED's version, and SHA-256 of its sources."""
    return f"{__version__} {_digest_of_fred()}"


def _has_own(part: Any) -> bool:
    """Whether some of a run's parts are of classes of the user's own."""
    if isinstance(part, Component):
        return not type(part).__module__.startswith("fred.") or any(map(_has_own, options_of(part).values()))
    return isinstance(part, tuple | list) and any(map(_has_own, part))


@cache
def _digest_of_fred() -> str:
    sha, folder = hashlib.sha256(), Path(fred.__file__).parent
    for file in sorted(folder.rglob("*.py")):
        sha.update(file.relative_to(folder).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return sha.hexdigest()
