"""Which units of work a scenario is: its runs, or those that are wanted, with every seed; what cannot run is refused here."""

from collections.abc import Iterable

from fred.components import registry
from fred.components.component import own_classes
from fred.errors import FredError
from fred.outcomes.unit import Unit
from fred.process import remembered
from fred.running.execution import check
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
    wanted = wanted_runs(scenario, only)
    remembered.forget(compiled=any(own_classes(scenario.runs[name]) for name in wanted))
    for name in wanted:
        check(name, scenario.runs[name], scenario.seeds[0])
    return [Unit(name, scenario.runs[name], seed, inline) for name in wanted for seed in scenario.seeds]


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
