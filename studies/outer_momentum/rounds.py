"""DiLoCo and SNOO with the published momentum of 0.9 against plain averages, as in papers: only inner rates are tuned."""

from typing import Any

import pandas as pd

import fred
from studies.outer_momentum.cases import REPORTED, TASKS

SHARED = {"digits": (128, 600, 8), "grammar": (16, 160, 4)}  # examples of a step of all workers, steps, workers
_RATES = {"adamw": (0.0003, 0.001, 0.003, 0.01, 0.03), "muon": (0.001, 0.003, 0.01, 0.03, 0.1)}
_PERIODS = {"digits": (20, 100, 300), "grammar": (10, 40)}
_TUNING = (1, 2)


def pairs() -> dict[tuple[str, str], tuple[str, str]]:
    """Return the two systems of each comparison, with momentum and without, by task and words."""
    both = {(task, f"H = {period}"): (f"diloco {period}", f"local {period}") for task in SHARED for period in _PERIODS[task]}
    for optimizer in _RATES:
        alone = {(task, f"one worker, {optimizer}"): (f"snoo {optimizer}", f"{optimizer} each step") for task in SHARED}
        both |= alone
    return both


def rounds() -> list[tuple[str, str]]:
    """Return the tasks and systems that are measured."""
    return [(task, system) for (task, _), systems in pairs().items() for system in systems]


def of_rounds(task: str, system: str) -> pd.DataFrame:
    """Return the losses of a system with the best of five inner rates.

    Args:
        task: name of the task.
        system: name and period, or name and inner optimizer.
    """
    batch, steps, workers = SHARED[task]
    algorithm, protocol = _options(task, system)
    workers = 1 if algorithm["name"] == "snoo" else workers
    rates = _RATES[algorithm["optimizer"]]
    settings: dict[str, Any] = {
        "task": _TASKS[task] | {"batch_size": batch // workers},
        "cluster": {"workers": workers, "compute": {"name": "lognormal", "median": 1.0, "sigma": 0.2}},
        "stop": {"gradients": steps * workers},
        "evaluate": {"points": 2},
    }
    run = {
        "algorithm": algorithm | {"learning_rate": rates[0]},
        "sweep": {"over": {"algorithm.learning_rate": list(rates)}, "best": "loss"},
    }
    result = fred.run(fred.scenario(settings, seeds=list(_TUNING), report_seeds=list(REPORTED), runs={"swept": run | protocol}))
    best = result.best.iloc[0]
    rows = result.summary[(result.summary["name"] == best["point"]) & result.summary["seed"].isin(REPORTED)]
    rate = float(best["algorithm.learning_rate"])
    edge = rate in (rates[0], rates[-1])
    return rows[["seed", "loss"]].assign(task=task, system=system, point=rate, edge=edge)


def _options(task: str, system: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return algorithm and protocol: outer rate and momentum are those of FRED's DiLoCo and SNOO, 0.7 and 0.9."""
    name, _, rest = system.partition(" ")
    if name in _RATES:
        return {"name": "allreduce-sgd", "optimizer": name}, {}
    if name == "snoo":
        return {"name": "snoo", "optimizer": rest}, {"protocol": {"period": _PERIODS[task][0]}}
    algorithm = {"name": {"diloco": "diloco", "local": "local-sgd"}[name], "optimizer": "adamw"}
    return algorithm, {"protocol": {"period": int(rest)}}


_TASKS: dict[str, dict[str, Any]] = {
    "digits": {key: TASKS["digits"][key] for key in ("data", "model")},
    "grammar": {
        "data": {"name": "grammar", "context": 31, "examples": 2000, "evaluation": 200},
        "model": {"name": "transformer", "layers": 1, "width": 32, "heads": 4},
    },
}
