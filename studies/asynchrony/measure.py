"""Run the cases, each as a scenario of its own: each system's best point, and how long it takes on other seeds."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd

import fred
from fred.base.cores import cores
from studies.asynchrony.cases import Case, cases

ROOT = Path(__file__).parents[2]
DONE = ROOT / "results" / "asynchrony"  # a file of each case, from which an interrupted study goes on
TIMES = ROOT / "results" / "studies" / "asynchrony.csv"


def measure() -> None:
    """All cases, so many at a time as there are cores; what is measured already is not done again."""
    DONE.mkdir(parents=True, exist_ok=True)
    TIMES.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(cores(), mp_context=multiprocessing.get_context("spawn")) as pool:
        for number, name in enumerate(pool.map(_measured, cases()), 1):
            print(f"{number}: {name}", flush=True)
    found = pd.concat([pd.read_csv(DONE / f"{case.name}.csv") for case in cases()])
    found.to_csv(TIMES, index=False, float_format="%.6g")


def _measured(case: Case) -> str:
    path = DONE / f"{case.name}.csv"
    if not path.is_file():
        rows = _times(fred.run(case.scenario()))
        rows = rows.assign(times=case.times, task=case.task, messages=case.messages)
        rows.to_csv(path, index=False, float_format="%.6g")
    return case.name


def _times(result: fred.Result) -> pd.DataFrame:
    """Return each system's best point, its time on the seeds that chose it, and on each other seed, s."""
    summary, scenario = result.summary.set_index(["name", "seed"]), result.scenario
    rows = []
    for _, best in result.best.iterrows():
        point = best["point"]
        for seed in scenario.report_seeds or ():
            seconds = summary.loc[(point, seed), "target_seconds"]
            rows.append((best["run"], point.partition(",")[2], best["mean"], seed, seconds))
    found = pd.DataFrame(rows, columns=["system", "point", "tuning_seconds", "seed", "seconds"])
    budget = next(iter(scenario.runs.values())).stop.seconds
    return found.assign(budget=budget, seconds=found["seconds"].fillna(np.inf))
