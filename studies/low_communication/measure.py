"""Run the cases, each as a scenario of its own: each system's best point, and its loss on other seeds as time passes."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import pandas as pd

import fred
from fred.process.cores import cores
from studies.asynchrony.measure import ROOT
from studies.low_communication.cases import HERE, Case, cases

DONE = ROOT / "results" / "low-communication"  # a file of each case, from which an interrupted study goes on
LOSSES = ROOT / "results" / "studies" / "low-communication.csv"
GOODPUT = LOSSES.with_name("low-communication-goodput.csv")
_write = partial(pd.DataFrame.to_csv, index=False, float_format="%.6g")


def measure() -> None:
    """All cases, so many at a time as there are cores; what is measured already is not done again."""
    DONE.mkdir(parents=True, exist_ok=True)
    LOSSES.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(cores(), mp_context=multiprocessing.get_context("spawn")) as pool:
        for number, name in enumerate(pool.map(_measured, cases()), 1):
            print(f"{number}: {name}", flush=True)
    _write(pd.concat([pd.read_csv(DONE / f"{case.name}.csv") for case in cases()]), LOSSES)
    if not GOODPUT.is_file():
        _write(fred.run(fred.load(HERE / "goodput.yaml")).summary[["name", "seed", "gradients_applied", "loss"]], GOODPUT)


def _measured(case: Case) -> str:
    path = DONE / f"{case.name}.csv"
    if not path.is_file():
        losses = _losses(fred.run(case.scenario()))
        _write(losses.assign(megabits=case.megabits, stragglers=case.stragglers), path)
    return case.name


def _losses(result: fred.Result) -> pd.DataFrame:
    """For each system its best point, its loss there on the seeds that chose it, and on each other one's, over time."""
    scenario, best = result.scenario, result.best.set_index("point")
    tables = []
    for outcome in result.outcomes:
        if outcome.name in best.index and outcome.seed in (scenario.report_seeds or ()):
            chosen = best.loc[outcome.name]
            seen = outcome.metrics[["virtual_seconds", "loss"]].rename(columns={"virtual_seconds": "seconds"})
            point = {"system": chosen["run"], "point": outcome.name.partition(",")[2], "tuning_loss": chosen["mean"]}
            tables.append(seen.assign(**point, seed=outcome.seed))
    return pd.concat(tables)
