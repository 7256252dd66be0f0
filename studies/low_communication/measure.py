"""Run the cases, each as a scenario of its own: each system's best point, and its loss on other seeds as time passes."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import pandas as pd

import fred
from fred.base.cores import cores
from fred.outcomes import sweeps
from fred.schedule.schedule import Verb
from fred.specification.sweep import Criterion
from studies.asynchrony.measure import ROOT
from studies.low_communication.cases import FRAGMENTS, HERE, Case, cases

DONE = ROOT / "results" / "low-communication"  # a file of each case, from which an interrupted study goes on
LOSSES = ROOT / "results" / "studies" / "low-communication.csv"
GOODPUT = LOSSES.with_name("low-communication-goodput.csv")
_write = partial(pd.DataFrame.to_csv, index=False, float_format="%.6g")


def measure() -> None:
    """All cases, so many at a time as there are cores; what is measured already is not done again.

    Where somebody is slow, each system has the setting that is its best where all are alike: who tunes knows of no straggler.
    """
    DONE.mkdir(parents=True, exist_ok=True)
    LOSSES.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(cores(), mp_context=multiprocessing.get_context("spawn")) as pool:
        for stragglers in (False, True):
            for name in pool.map(_measured, [case for case in cases() if case.stragglers == stragglers]):
                print(name, flush=True)
    _write(pd.concat([pd.read_csv(DONE / f"{case.name}.csv") for case in cases()]), LOSSES)
    if not GOODPUT.is_file():
        _write(_goodput(fred.run(fred.load(HERE / "goodput.yaml"))), GOODPUT)


def _measured(case: Case) -> str:
    path = DONE / f"{case.name}.csv"
    if not path.is_file():
        losses = _losses(fred.run(case.scenario(_chosen(case.megabits) if case.stragglers else ())))
        _write(losses.assign(megabits=case.megabits, stragglers=case.stragglers), path)
    return case.name


def _chosen(megabits: int) -> list[str]:
    """The points that were the best where all are alike."""
    alike = pd.read_csv(DONE / f"{Case(megabits, stragglers=False).name}.csv")
    return sorted(set((alike["system"].replace("noloco-mean", "noloco") + "," + alike["point"]).tolist()))


def _goodput(result: fred.Result) -> pd.DataFrame:
    """Return the number of gradients that learners made, and that of gradients in answers to the server."""
    heard = [each.schedule["weight"][each.schedule.rows(Verb.ADD)].sum() / FRAGMENTS for each in result.outcomes]
    return result.summary[["name", "seed", "gradients_applied", "loss"]].assign(heard=heard)


def _losses(result: fred.Result) -> pd.DataFrame:
    """Return each system's best point, and its loss over time, on the seeds that chose it and on each other seed.

    NoLoCo's workers have no common model. It has the losses of the workers' own models, and that of their mean, by which its
    point is chosen.
    """
    points = sweeps.table(result.scenario, result.summary, Criterion("own", "replicas_loss", highest=False, missing=""))
    own = points[points["point"].isin(result.best["point"]) & (points["run"] == "noloco")]
    mean = _curves(result, result.best, "loss").replace({"system": {"noloco": "noloco-mean"}})
    return pd.concat([mean, _curves(result, own, "replicas_loss")])


def _curves(result: fred.Result, best: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return the curves of some points, with the seeds that had no part in the choice."""
    points, reported, tables = best.set_index("point"), result.scenario.report_seeds or (), []
    for outcome in result.outcomes:
        if outcome.name in points.index and outcome.seed in reported:
            chosen = points.loc[outcome.name]
            seen = outcome.metrics[["virtual_seconds", column]].set_axis(["seconds", "loss"], axis=1)
            point = {"system": chosen["run"], "point": outcome.name.partition(",")[2], "tuning_loss": chosen["mean"]}
            tables.append(seen.assign(**point, seed=outcome.seed))
    return pd.concat(tables)
