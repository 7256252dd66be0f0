"""The unit of work: one run with one seed, with an identity that tells whether it has been done before."""

import hashlib
import inspect
import json
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import fred
from fred import environment, registry
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
    def identity(self) -> str:
        """SHA-256 of everything that its outcome depends on: units with the same identity have the same outcome."""
        facts = {
            "run": self.run.model_dump(mode="json"),
            "seed": self.seed,
            "inline": self.inline,
            "data": data_digest(self.run.task.data) if self.run.task else None,
            "environment": environment.describe(),
            "fred": [__version__, _digest_of_fred()],
            "imports": _digest(registry.imported_files()),
            "classes": [_source(cls) for cls in _own_classes(self.run)],
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def units_of(scenario: Scenario, only: str | Iterable[str] = (), inline: bool = False) -> list[Unit]:
    """All units of a scenario, or of `only` one or some of its runs; what cannot run is found out here. Raises FredError."""
    wanted = wanted_runs(scenario, only)
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


def _own_classes(part: Any) -> Iterator[type]:
    """The user's own classes among a run's parts."""
    if isinstance(part, Component):
        if not type(part).__module__.startswith("fred."):
            yield type(part)
        for option in options_of(part).values():
            yield from _own_classes(option)
    elif isinstance(part, tuple | list):
        for each in part:
            yield from _own_classes(each)


def _source(cls: type) -> str:
    """A class's text; where it cannot be read, something that nothing else is the same as."""
    try:
        return inspect.getsource(cls)
    except (OSError, TypeError):
        return uuid.uuid4().hex


@cache
def _digest_of_fred() -> str:
    return _digest(sorted(Path(fred.__file__).parent.rglob("*.py")))


def _digest(files: Iterable[Path]) -> str:
    sha = hashlib.sha256()
    for file in files:
        sha.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return sha.hexdigest()
