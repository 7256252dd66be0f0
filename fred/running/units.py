"""The units of work of a scenario: its runs (all, or some) with every seed. Invalid runs are refused here."""

from collections.abc import Iterable

from fred.base import cached
from fred.base.errors import FredError
from fred.base.progress import COMPILED
from fred.components import registry
from fred.components.component import own_classes
from fred.running.unit import Unit
from fred.specification.loading import Scenario


def units_of(scenario: Scenario, only: str | Iterable[str] = (), inline: bool = False) -> list[Unit]:
    """Return all units of a scenario, or `only` those of some runs. Raises FredError for runs that cannot be computed.

    Args:
        scenario: the runs and their seeds.
        only: name of one run, or several; for a swept run, all its points are meant.
        inline: True to compute timing and arithmetic at once; part of the units' identity.

    >>> import fred
    >>> scenario = fred.scenario(
    ...     cluster={"workers": 2}, algorithm={"name": "asgd", "learning_rate": 0.1}, stop={"updates": 4}, seeds=[1, 2]
    ... )
    >>> [unit.folder for unit in units_of(scenario)]
    ['asgd/seed-1', 'asgd/seed-2']
    """
    from fred.running.execution import check  # imports jax

    wanted, first = wanted_runs(scenario, only), runs_at_first(scenario, only)
    cached.forget(compiled=any(own_classes(scenario.runs[name]) for name in wanted))
    programs = {check(name, scenario.runs[name], _seeds_of(name, scenario)[0]) for name in wanted}
    COMPILED.expect(0 if inline else len(programs - {None}))
    return further_units(scenario, first, inline)


def further_units(scenario: Scenario, names: Iterable[str], inline: bool = False) -> list[Unit]:
    """Return the units of runs, such as the points that a sweep tries next.

    Args:
        scenario: the runs and their seeds.
        names: names of the runs.
        inline: True to compute timing and arithmetic at once.
    """
    return [Unit(name, scenario.runs[name], seed, inline) for name in names for seed in _seeds_of(name, scenario)]


def _seeds_of(name: str, scenario: Scenario) -> tuple[int, ...]:
    """Return a run's seeds: for points of sweeps, those that determine the best ones; for other runs, the reported ones."""
    return scenario.seeds if name in scenario.points else scenario.reported_seeds


def reported_units(scenario: Scenario, points: Iterable[str], inline: bool = False) -> list[Unit]:
    """Return the units that follow once the best points are known on `seeds`: those with the `report_seeds`, if any.

    Args:
        scenario: the runs and their seeds.
        points: names of the best points.
        inline: True to compute timing and arithmetic at once.

    >>> import fred
    >>> scenario = fred.scenario(
    ...     cluster={"workers": 2},
    ...     algorithm={"name": "asgd", "learning_rate": 0.1},
    ...     stop={"updates": 4},
    ...     seeds=[1, 2],
    ...     report_seeds=[3],
    ...     sweep={"over": {"cluster.workers": [2, 4]}},
    ... )
    >>> len(units_of(scenario)), [unit.folder for unit in reported_units(scenario, ["asgd,workers=4"])]
    (4, ['asgd,workers=4/seed-3'])
    """
    return [Unit(name, scenario.runs[name], seed, inline) for name in points for seed in scenario.report_seeds or ()]


def number_of_units(scenario: Scenario, only: str | Iterable[str] = ()) -> int:
    """Return the number of units, assuming that each sweep has a best point among those that it tries first.

    With `until` it is the largest possible number.

    Args:
        scenario: the runs and their seeds.
        only: name of one run, or several; default: all.
    """
    scenario = widest(scenario)
    swept = {scenario.points[name].of for name in wanted_runs(scenario, only) if name in scenario.points}
    return number_at_first(scenario, only) + len(swept) * len(scenario.report_seeds or ())


def widest(scenario: Scenario) -> Scenario:
    """Return the scenario with all seeds that it may need.

    Args:
        scenario: the runs and their seeds.
    """
    return scenario.with_seeds(scenario.until.seeds) if scenario.until else scenario


def number_at_first(scenario: Scenario, only: str | Iterable[str] = ()) -> int:
    """Return the number of units that can be computed before anything else is known.

    Args:
        scenario: the runs and their seeds.
        only: name of one run, or several; default: all.
    """
    return sum(len(_seeds_of(name, scenario)) for name in runs_at_first(scenario, only))


def runs_at_first(scenario: Scenario, only: str | Iterable[str] = ()) -> list[str]:
    """Return the names of the wanted runs without points that a sweep tries later, unless `only` names them.

    Args:
        scenario: the runs.
        only: name of one run, or several; default: all.
    """
    named = {only} if isinstance(only, str) else {*only}
    points = scenario.points
    wanted = wanted_runs(scenario, only)
    return [name for name in wanted if name in named or name not in points or not points[name].later]


def doubts_of(scenario: Scenario, only: str | Iterable[str] = ()) -> list[str]:
    """Return known objections to the runs, in words, such as a predictor never significantly different from a constant.

    Args:
        scenario: the runs.
        only: name of one run, or several; default: all.
    """
    runs = (scenario.runs[name] for name in wanted_runs(scenario, only))
    return list(dict.fromkeys(doubt for run in runs for doubt in (*run.cluster.doubts(), *run.protocol.doubts())))


def wanted_runs(scenario: Scenario, only: str | Iterable[str] = ()) -> list[str]:
    """Return the names of the wanted runs: all, or `only` these; for a swept run, all its points are meant.

    Args:
        scenario: the runs.
        only: name of one run, or several; default: all. Raises FredError for an unknown one.

    >>> import fred
    >>> scenario = fred.scenario(
    ...     cluster={"workers": 2},
    ...     algorithm={"name": "asgd", "learning_rate": 0.1},
    ...     stop={"updates": 4},
    ...     sweep={"over": {"cluster.workers": [2, 4]}},
    ... )
    >>> wanted_runs(scenario, only="asgd")
    ['asgd,workers=2', 'asgd,workers=4']
    """
    wanted: list[str] = []
    swept = [point.of for point in scenario.points.values()]
    for name in dict.fromkeys([only] if isinstance(only, str) else only):
        if name not in scenario.runs and name not in swept:
            known = [*dict.fromkeys(swept), *(run for run in scenario.runs if run not in scenario.points)]
            raise FredError(f"no run `{name}`{registry.nearest(name, [*known, *scenario.runs])}; there are {', '.join(known)}")
        wanted += [name] if name in scenario.runs else [run for run, point in scenario.points.items() if point.of == name]
    return wanted or list(scenario.runs)
