"""Run the cases: tune plain averages, measure the correlation there, then tune and match each momentum."""

from typing import Any

import numpy as np
import pandas as pd

import fred
from fred.outcomes.tables import at_the_ends
from fred.specification.loading import Scenario
from studies.kit.runs import parts
from studies.kit.study import Study
from studies.outer_momentum.cases import MOMENTA, PUBLISHED, RATES, REPORTED, STEPS, TUNING, Case, cases
from studies.outer_momentum.correlation import correlation
from studies.outer_momentum.rounds import of_rounds, rounds

STUDY = Study("outer_momentum", "Is outer momentum more than a larger step?", ("", "published"), core_hours=2)
_RATE = "algorithm.learning_rate"


def measure() -> None:
    """Measure all cases that have no stored result, and write the tables."""
    STUDY.write("", pd.concat(parts(STUDY, _of_named, [(case.name,) for case in cases()])))
    STUDY.write("published", pd.concat(parts(STUDY, of_rounds, rounds(), "published")))


def _of_named(name: str) -> pd.DataFrame:
    case = next(case for case in cases() if case.name == name)
    columns = ("factor", "system", "task", "inner", "period", "workers", "steps")
    return of_case(case).assign(**{column: getattr(case, column) for column in columns})


def of_case(case: Case) -> pd.DataFrame:
    """Return the losses of a case, a row for each way to choose rates, momentum and reported seed.

    Args:
        case: the case.
    """
    plain = _tuned(case, {0.0: {step: case.rate(step, 0.0, 0.0) for step in STEPS}})
    chosen = plain.iloc[0]
    rho = correlation(case, chosen["learning_rate"], chosen["outer_rate"])
    others = {mu: {step: case.rate(step, mu, rho) for step in STEPS} for mu in MOMENTA[1:]}
    matched = {mu: (chosen["learning_rate"], others[mu][chosen["step"]]) for mu in MOMENTA[1:]}
    tables = [plain, _tuned(case, others), _matched(case, matched).assign(step=chosen["step"])]
    if case.rate_key == "outer_rate":
        tables.append(_published(case))
    return pd.concat(tables).assign(correlation=rho)


def _rates(case: Case) -> dict[str, Any]:
    first, last = RATES[case.task, case.inner]
    return {"first": first, "last": last, "number": 7}


def _tuned(case: Case, rates: dict[float, dict[float, float]]) -> pd.DataFrame:
    """Return the losses at the best inner and outer rates of each momentum.

    Args:
        case: the case.
        rates: by momentum and effective step, the outer rate.
    """
    key = f"algorithm.{case.rate_key}"
    runs = {
        f"mu-{mu:g}": {
            "algorithm": case.algorithm(mu),
            "protocol": case.protocol,
            "sweep": {"over": {_RATE: _rates(case), key: sorted(own.values())}, "start": 3, "best": "loss"},
        }
        for mu, own in rates.items()
    }
    step_of = {(mu, rate): step for mu, own in rates.items() for step, rate in own.items()}
    found = _reported(case, runs).rename(columns={_RATE: "learning_rate", key: "outer_rate"})
    steps = [step_of[mu, rate] for mu, rate in zip(found["momentum"], found["outer_rate"], strict=True)]
    return found.assign(kind="tuned", step=steps)


def _published(case: Case) -> pd.DataFrame:
    """Return the losses with the outer rate and momentum of the DiLoCo paper, and the best inner rate for them."""
    rate, momentum = PUBLISHED
    algorithm = case.algorithm(momentum) | {case.rate_key: rate}
    sweep = {"over": {_RATE: _rates(case)}, "start": 3, "best": "loss"}
    found = _reported(case, {f"mu-{momentum:g}": {"algorithm": algorithm, "protocol": case.protocol, "sweep": sweep}})
    return found.rename(columns={_RATE: "learning_rate"}).assign(kind="published", outer_rate=rate, step=np.nan)


def _reported(case: Case, runs: dict[str, Any]) -> pd.DataFrame:
    """Return the losses at the best point of each run, with the seeds that had no part in the choice."""
    scenario = fred.scenario(case.settings, seeds=list(TUNING), report_seeds=list(REPORTED), runs=runs)
    result = fred.run(scenario)
    best, ends = result.best, {run for run, _, _ in at_the_ends(_possible(scenario), result.best)}
    rows = []
    for _, point in best.iterrows():
        facts = {name: point[name] for name in map(str, best.columns) if name.startswith("algorithm.")}
        own = {
            "momentum": float(point["run"].removeprefix("mu-")),
            "points": point["points"],
            "at_the_edge": point["run"] in ends,
        }
        rows += [facts | own | losses for losses in _losses(result, point["point"])]
    return pd.DataFrame(rows)


def _possible(scenario: Scenario) -> pd.DataFrame:
    """Return a row for each point of the grids, tried or not, to see which values are the last ones."""
    return pd.DataFrame([{"run": point.of, "point": name, **point.values} for name, point in scenario.points.items()])


def _losses(result: fred.Result, run: str) -> list[dict[str, float]]:
    summary = result.summary[(result.summary["name"] == run) & result.summary["seed"].isin(REPORTED)]
    own = summary["replicas_loss"] if "replicas_loss" in summary else summary["loss"]
    columns = zip(summary["seed"], summary["loss"], own.fillna(summary["loss"]), strict=True)
    return [{"seed": seed, "loss": loss, "own_loss": of_a_worker} for seed, loss, of_a_worker in columns]


def _matched(case: Case, rates: dict[float, tuple[float, float]]) -> pd.DataFrame:
    """Return the losses of momenta whose outer rate is matched to plain averages at their best.

    Args:
        case: the case.
        rates: inner and outer rate, by momentum.
    """
    runs = {
        f"mu-{mu:g}": {
            "algorithm": case.algorithm(mu) | {"learning_rate": inner, case.rate_key: outer},
            "protocol": case.protocol,
        }
        for mu, (inner, outer) in rates.items()
    }
    result = fred.run(fred.scenario(case.settings, seeds=list(REPORTED), runs=runs))
    rows = [
        {"momentum": mu, "learning_rate": inner, "outer_rate": outer, **losses}
        for mu, (inner, outer) in rates.items()
        for losses in _losses(result, f"mu-{mu:g}")
    ]
    return pd.DataFrame(rows).assign(kind="matched")
