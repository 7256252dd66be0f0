"""The units of work of a scenario: runs with a seed each, known by a hash, and the stages in which they are computed.

Which units a result needs depends on outcomes: those of the points of a sweep determine which points are tried next, and which
are the best, and these alone get the reported seeds; `until` adds seeds until the comparisons are precise enough. So units come
in stages, and each stage is asked for when the outcomes of the one before are known.
"""

import hashlib
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fred.base import environment
from fred.base.disk import unit_folder, work_folder
from fred.base.errors import FredError
from fred.components import own_code, registry
from fred.components.component import objects_of, own_classes
from fred.components.input_path import no_path
from fred.components.own_code import code_of_fred
from fred.learning.data.dataset import data_digest
from fred.outcomes.comparisons import further_seeds
from fred.outcomes.outcome import Outcome
from fred.outcomes.tables import Tables, find_next_points
from fred.specification.loading import Scenario
from fred.specification.run_names import name_run_in_errors
from fred.specification.shape import Run


@dataclass(frozen=True)
class Unit:
    """One run with one seed. Raises FredError if its data cannot be read.

    Args:
        name: name of the run, and of its folder in a result.
        run: specification of the run.
        seed: seed of this repetition.
        inline: True if timing and arithmetic are computed at once.

    >>> import fred
    >>> scenario = fred.scenario(
    ...     cluster={"workers": 2}, algorithm={"name": "asgd", "learning_rate": 0.1}, stop={"updates": 4}
    ... )
    >>> one, same, other = (Unit("asgd", scenario.runs["asgd"], seed) for seed in (0, 0, 1))
    >>> one.identity == same.identity, one.identity == other.identity
    (True, False)
    """

    name: str
    run: Run
    seed: int
    inline: bool = False
    data: str | None = field(init=False, compare=False)  # SHA-256; None: no data, or data generated from options and seed
    environment: dict[str, str] = field(init=False, compare=False)  # numeric environment
    unknown: str = field(init=False, compare=False)  # why its identity is incomplete, hence not cached
    identity: str = field(init=False, compare=False)  # SHA-256 of everything that its outcome depends on

    def __post_init__(self) -> None:
        """Determine everything now that is sent along: later, or in another process, the user's modules may differ."""
        with name_run_in_errors(self.name, self.run):
            object.__setattr__(self, "data", data_digest(self.run.task.data) if self.run.task else None)
        modules = {name.partition(":")[0] for name in own_classes(self.run)}
        object.__setattr__(self, "environment", environment.describe())
        unread = [f"the content of `{part.kind}` cannot be read" for part in objects_of(self.run) if not part.digest]
        object.__setattr__(self, "unknown", next(iter(unread), own_code.why_unknown(modules) if modules else ""))
        object.__setattr__(self, "identity", self._identity())

    @property
    def folder(self) -> str:
        """Return the path of its files in a result folder."""
        return unit_folder(self.name, self.seed)

    @property
    def work_folder(self) -> str:
        """Return the path of the folder in which it is computed."""
        return work_folder(self.name, self.seed)

    @property
    def has_own_classes(self) -> bool:
        """Return True if the user's own classes take part."""
        return bool(own_classes(self.run))

    def _identity(self) -> str:
        facts = {
            "name": self.name,
            "run": self.run.model_dump(mode="json", context={"paths": no_path}),
            "seed": self.seed,
            "inline": self.inline,
            "data": self.data,
            **circumstances(self.has_own_classes, bool(objects_of(self.run))),
            "unknown": uuid.uuid4().hex if self.unknown else "",  # never the same twice
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def circumstances(has_own_classes: bool, has_objects: bool = False) -> dict[str, Any]:
    """Return everything except the specification that the bits depend on.

    Args:
        has_own_classes: True if the user's own classes take part.
        has_objects: True if objects of other libraries take part.
    """
    return {
        "environment": environment.describe(),
        "fred": code_of_fred(),
        "own": own_code.facts() if has_own_classes or registry.imported() else {},
        "installed": own_code.installed() if has_own_classes or has_objects else [],
    }


class Stage(NamedTuple):
    """The units that a result needs, as far as the outcomes until now tell.

    Args:
        scenario: the runs, with all seeds so far.
        units: units of this stage and of the earlier ones with these seeds, in the order of the result.
    """

    scenario: Scenario
    units: list[Unit]


class SelectedRuns:
    """The runs of a scenario that one call computes, and the units that they have.

    Args:
        scenario: the runs and their seeds.
        only: name of one run, or several; for a swept run, all its points are meant; default: all. Raises FredError for an
            unknown one.

    >>> import fred
    >>> scenario = fred.scenario(
    ...     cluster={"workers": 2},
    ...     algorithm={"name": "asgd", "learning_rate": 0.1},
    ...     stop={"updates": 4},
    ...     seeds=[1, 2],
    ...     report_seeds=[3],
    ...     sweep={"over": {"cluster.workers": [2, 4]}},
    ... )
    >>> selected = SelectedRuns(scenario, only="asgd")
    >>> selected.names, selected.count
    (['asgd,workers=2', 'asgd,workers=4'], 5)
    >>> from fred.running.execution import execute
    >>> outcomes = {}
    >>> for stage in selected.stages(outcomes=outcomes):
    ...     print([unit.folder for unit in stage.units if unit not in outcomes])
    ...     outcomes |= {unit: execute(unit.name, unit.run, unit.seed) for unit in stage.units}
    ['asgd,workers=2/seed-1', 'asgd,workers=2/seed-2', 'asgd,workers=4/seed-1', 'asgd,workers=4/seed-2']
    ['asgd,workers=4/seed-3']
    """

    def __init__(self, scenario: Scenario, only: str | Iterable[str] = ()):
        self.scenario = scenario
        self.only = (only,) if isinstance(only, str) else tuple(dict.fromkeys(only))
        self.names = self._selected()

    def _selected(self) -> list[str]:
        """Return the names of the selected runs, those of points included."""
        names, runs, points = list[str](), self.scenario.runs, self.scenario.points
        swept = [point.of for point in points.values()]
        for name in self.only:
            if name not in runs and name not in swept:
                choices = [*dict.fromkeys(swept), *(run for run in runs if run not in points)]
                near = registry.nearest(name, [*choices, *runs])
                raise FredError(f"no run `{name}`{near}; there are {', '.join(choices)}")
            names += [name] if name in runs else [run for run, point in points.items() if point.of == name]
        return list(dict.fromkeys(names)) or list(runs)

    @property
    def runs(self) -> dict[str, Run]:
        """Return the selected runs, by name."""
        return {name: self.scenario.runs[name] for name in self.names}

    @property
    def count(self) -> int:
        """Return the number of units, if each sweep has a best point among those that it tries first.

        With `until` it is the largest possible number.
        """
        widest, points = self._with_all_seeds(), self.scenario.points
        swept = {points[name].of for name in self.names if name in points}
        first_units = sum(len(widest.first_seeds(name)) for name in self._first_runs())
        return first_units + len(swept) * len(widest.scenario.report_seeds or ())

    @property
    def doubts(self) -> list[str]:
        """Return known objections to the runs, in words, such as a predictor never significantly different from a constant."""
        runs = self.runs.values()
        return list(dict.fromkeys(doubt for run in runs for doubt in (*run.cluster.doubts(), *run.protocol.doubts())))

    def possible_units(self) -> list[tuple[str, int]]:
        """Return name and seed of all units that stages can have, whatever the best points and the number of seeds."""
        scenario = self._with_all_seeds().scenario
        seeds = dict.fromkeys((*scenario.seeds, *(scenario.report_seeds or ())))
        return [(name, seed) for name in self.names for seed in seeds]

    def stages(self, inline: bool = False, outcomes: Mapping[Unit, Outcome] | None = None) -> Iterator[Stage]:
        """Yield the stages: points to tune by, the best ones with the reported seeds, further seeds for precision.

        The last stage has all units of the result.

        Args:
            inline: True to compute timing and arithmetic at once; part of the units' identity.
            outcomes: receives, from the caller, the outcomes of a stage before it asks for the next one.
        """
        selected, outcomes = self, outcomes if outcomes is not None else {}
        while True:
            scenario, units, names = selected.scenario, list[Unit](), self._first_runs()
            while names:  # of a sweep first some points, then neighbours of the best one, until all of these have been tried
                units += [_unit(scenario, name, seed, inline) for name in names for seed in selected.first_seeds(name)]
                yield Stage(scenario, [*units])
                tables = Tables(scenario, [outcomes[unit] for unit in units])
                points = find_next_points(scenario, tables.sweep, tables.best) if tables.swept else []
                names = [name for name in points if name in self.names]
            if scenario.report_seeds and tables.swept:
                best = tables.best["point"]
                units += [_unit(scenario, name, seed, inline) for name in best for seed in scenario.report_seeds]
                yield Stage(scenario, [*units])
            count = further_seeds(Tables(scenario, [outcomes[unit] for unit in units]))
            if not count:
                return
            selected = SelectedRuns(scenario.with_seeds(count), self.only)

    def first_seeds(self, name: str) -> tuple[int, ...]:
        """Return the seeds of a run's first stage: for points of sweeps, those to tune by; for other runs, the reported ones.

        Args:
            name: name of a run.
        """
        return self.scenario.seeds if name in self.scenario.points else self.scenario.reported_seeds

    def _first_runs(self) -> list[str]:
        """Return the selected runs without points that a sweep tries later, unless `only` names them."""
        points = self.scenario.points
        return [name for name in self.names if name in self.only or name not in points or not points[name].later]

    def _with_all_seeds(self) -> "SelectedRuns":
        """Return the selected with all seeds that `until` may ask for."""
        until = self.scenario.until
        return SelectedRuns(self.scenario.with_seeds(until.seeds), self.only) if until else self


def _unit(scenario: Scenario, name: str, seed: int, inline: bool) -> Unit:
    return Unit(name, scenario.runs[name], seed, inline)
