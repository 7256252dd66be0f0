"""Run the experiments: choose each system's best rates on two seeds, and measure it with them on five others."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pandas as pd

import fred
from studies.local_updates import arrivals, averages, lags, rounds
from studies.local_updates.claims import Experiment, plain

ROOT = Path(__file__).parents[2]
DONE = ROOT / "results" / "local-updates"  # a file of each experiment, from which an interrupted study goes on
FOUND = ROOT / "results" / "studies" / "local-updates.csv"
_MEASURED = ["seed", "loss", "target_seconds", "virtual_seconds"]


def experiments() -> Iterator[Experiment]:
    """All."""
    for part in (rounds, averages, arrivals, lags):
        yield from part.experiments()


def measure() -> None:
    """Run all experiments, one after the other, except those whose results are stored."""
    DONE.mkdir(parents=True, exist_ok=True)
    for number, experiment in enumerate(experiments(), 1):
        path = DONE / f"{experiment.key}.csv"
        if not path.is_file():
            rows = rows_of(fred.run(experiment.scenario()), {plain(name): name for name in experiment.systems})
            rows.insert(0, "experiment", experiment.name)
            rows.insert(1, "task", experiment.task)
            rows.to_csv(path, index=False, float_format="%.6g")
        print(f"{number}: {experiment.key}", flush=True)
    found = pd.concat([pd.read_csv(DONE / f"{experiment.key}.csv") for experiment in experiments()])
    found.to_csv(FOUND, index=False, float_format="%.6g")


def rows_of(result: fred.Result, names: Mapping[str, str]) -> pd.DataFrame:
    """Return the results of each system's best point with each seed that had no part in the choice.

    Args:
        result: of an experiment's scenario.
        names: of systems, by those of runs.
    """
    found = []
    for _, best in result.best.iterrows():
        point = best["point"]
        own = result.summary[
            (result.summary["name"] == point) & result.summary["seed"].isin(result.scenario.report_seeds or ())
        ]
        frame = own.reindex(columns=_MEASURED).assign(
            examples=own["gradients_applied"] * _batch(result, point),
            spread=[_spread(result, point, seed) for seed in own["seed"]],
        )
        tried = _tried(result, best["run"])
        edges = [name for name, values in tried.items() if len(values) > 2 and best[name] in (min(values), max(values))]
        frame.insert(0, "system", names[best["run"]])
        frame.insert(1, "point", point.partition(",")[2])
        frame.insert(2, "points", best["points"])
        frame.insert(3, "edge", bool(edges))
        found.append(frame)
    return pd.concat(found)


def _batch(result: fred.Result, point: str) -> int:
    task = result.scenario.runs[point].task
    assert task is not None
    return task.batch_sizes(1)[0]


def _tried(result: fred.Result, run: str) -> dict[str, set[float]]:
    own = result.sweep[result.sweep["run"] == run]
    names = [name for name in own if str(name).startswith("algorithm.")]
    return {str(name): set(own[name].dropna()) for name in names}


def _spread(result: fred.Result, point: str, seed: int) -> float:
    """Return the distance between workers' models at the end."""
    metrics = result.metrics
    if "disagreement" not in metrics:
        return float("nan")
    return float(metrics[(metrics["run"] == point) & (metrics["seed"] == seed)]["disagreement"].iloc[-1])
