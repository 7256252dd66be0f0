"""Choose each system's rate on two seeds, beyond the grid if it ends too early, and measure the system on five others."""

import pandas as pd

import fred
from studies.kit.runs import parts
from studies.kit.study import Study
from studies.kit.tuning import REPORTED
from studies.local_updates.experiments import EXPERIMENTS, RATES, optimizer

STUDY = Study("local_updates", "Do claims made for local updates hold where they are smallest?", core_hours=0.5)
TUNING, MOST_RATES = (1, 2), 9  # seeds; rates that are tried at most
_GRID = [float(f"{digit}e{power}") for power in range(-6, 3) for digit in (1, 3)]
_COLUMNS = ["seed", "loss", "target_seconds", "virtual_seconds"]


def measure() -> None:
    """Measure all systems that have no stored result."""
    items = [(name, system) for name, experiment in EXPERIMENTS.items() for system in experiment.systems]
    STUDY.write("", pd.concat(parts(STUDY, of_system, items)))


def of_system(name: str, system: str) -> pd.DataFrame:
    """Return the measurements of a system at its best rates, a row for each seed that had no part in the choice.

    Args:
        name: of the experiment.
        system: its name.
    """
    experiment = EXPERIMENTS[name]
    run = experiment.systems[system]
    rates = list(experiment.rates or RATES[optimizer(run)])
    while True:
        values: dict[str, list[float]] = {"algorithm.learning_rate": rates}
        if experiment.outer and "outer_rate" in run["algorithm"]:
            values["algorithm.outer_rate"] = list(experiment.outer)
        algorithm = run["algorithm"] | {"learning_rate": rates[0]}
        swept = run | {"algorithm": algorithm, "sweep": {"best": experiment.by, "over": values}}
        seeds = {"seeds": list(TUNING), "report_seeds": list(REPORTED)}
        result = fred.run(fred.scenario(experiment.scenario(), runs={"swept": swept}, **seeds))
        best = result.best.iloc[0]
        place = rates.index(best["algorithm.learning_rate"])
        if 0 < place < len(rates) - 1 or len(rates) == MOST_RATES:
            break
        rates.insert(len(rates) if place else 0, _GRID[_GRID.index(rates[place]) + (1 if place else -1)])
    rows = result.summary[(result.summary["name"] == best["point"]) & result.summary["seed"].isin(REPORTED)]
    task = result.scenario.runs[best["point"]].task
    return rows.reindex(columns=_COLUMNS).assign(
        experiment=name,
        system=system,
        point=best["point"].partition(",")[2],
        points=best["points"],
        edges="" if 0 < place < len(rates) - 1 else "rate",
        examples=rows["gradients_applied"] * (task.batch_sizes(1)[0] if task else 0),
    )
