"""Which units of work a scenario is: its runs, or those that are wanted, with every seed; what cannot run is refused here."""

from collections.abc import Iterable

from fred.components import registry
from fred.components.component import own_classes
from fred.errors import FredError
from fred.process import progress, remembered
from fred.running.unit import Unit
from fred.specification.loading import Scenario


def units_of(scenario: Scenario, only: str | Iterable[str] = (), inline: bool = False) -> list[Unit]:
    """All units of a scenario, or of `only` one or some of its runs; what cannot run is found out here. Raises FredError.

    Args:
        scenario: the runs and their seeds.
        only: the name of a run, or several; of one that is swept, it means all its points.
        inline: how they are to be computed, which is a part of their identity.

    >>> import fred
    >>> scenario = fred.scenario(
    ...     cluster={"workers": 2}, algorithm={"name": "asgd", "learning_rate": 0.1}, stop={"updates": 4}, seeds=[1, 2]
    ... )
    >>> [unit.folder for unit in units_of(scenario)]
    ['asgd/seed-1', 'asgd/seed-2']
    """
    from fred.running.execution import check  # which brings jax with it

    wanted = wanted_runs(scenario, only)
    remembered.forget(compiled=any(own_classes(scenario.runs[name]) for name in wanted))
    programs = {check(name, scenario.runs[name], _seeds_of(name, scenario)[0]) for name in wanted}
    progress.expect(0 if inline else len(programs - {None}))
    return [Unit(name, scenario.runs[name], seed, inline) for name in wanted for seed in _seeds_of(name, scenario)]


def _seeds_of(name: str, scenario: Scenario) -> tuple[int, ...]:
    """Points of sweeps are first run with the seeds on which the best are chosen; where nothing is chosen, all is reported."""
    return scenario.seeds if name in scenario.points else scenario.reported_seeds


def reported_units(scenario: Scenario, points: Iterable[str], inline: bool = False) -> list[Unit]:
    """The units that follow once points have been chosen on the `seeds`: those with the `report_seeds`, if there are any.

    Args:
        scenario: the runs and their seeds.
        points: names of the chosen ones.
        inline: how they are to be computed.

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
    """How many units there will be, if each sweep has a best point.

    Args:
        scenario: the runs and their seeds.
        only: the name of a run, or several; nothing: all.
    """
    swept = {scenario.points[name].of for name in wanted_runs(scenario, only) if name in scenario.points}
    return number_at_first(scenario, only) + len(swept) * len(scenario.report_seeds or ())


def number_at_first(scenario: Scenario, only: str | Iterable[str] = ()) -> int:
    """How many units can be done before points have been chosen.

    Args:
        scenario: the runs and their seeds.
        only: the name of a run, or several; nothing: all.
    """
    return sum(len(_seeds_of(name, scenario)) for name in wanted_runs(scenario, only))


def doubts_of(scenario: Scenario, only: str | Iterable[str] = ()) -> list[str]:
    """In words, what is known that speaks against what runs name, such as a predictor that was never told from a constant.

    Args:
        scenario: the runs that there are.
        only: the name of a run, or several; nothing: all.
    """
    runs = (scenario.runs[name] for name in wanted_runs(scenario, only))
    return list(dict.fromkeys(doubt for run in runs for doubt in run.protocol.doubts()))


def wanted_runs(scenario: Scenario, only: str | Iterable[str] = ()) -> list[str]:
    """The runs that are meant: all, or `only` these, where the name of one that is swept means all its points.

    Args:
        scenario: the runs that there are.
        only: the name of a run, or several; nothing: all. Raises FredError for one that is not there.

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
