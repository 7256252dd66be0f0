"""6,174 workers with a new compute time for every gradient."""

import math
from collections.abc import Iterable

import numpy as np
import pandas as pd

import fred
from reproductions.asynchronous import by_numpy
from reproductions.asynchronous.methods import NEAR, m_sync, rennala, ringmaster
from reproductions.common import RESULTS, near, say, store

FILE = RESULTS / "asynchronous-large.csv"
_WORKERS, _SEEDS, _MOMENTS = 6174, (1, 2, 3), (100, 500)

REFERENCE = {  # f - min f at the two moments, by the other program, with one seed
    "Ringmaster, rate 0.25, R = 6": (ringmaster(0.25, 6), (0.105, 0.0107)),
    "Rennala, rate 1, B = 6": (rennala(1.0, 6), (0.270, 0.0185)),
    "delay-adaptive, rate 0.00032": ({"algorithm": {"name": "delay-adaptive", "learning_rate": 0.00032}}, (47.3, 2.56)),
    "m-sync, rate 1, m = 1": (m_sync(1.0, 1, _WORKERS), (0.0567, 0.0065)),
    "m-sync, rate 1, m = 6": (m_sync(1.0, 6, _WORKERS), (0.323, 0.0195)),
}


def measure() -> None:
    """Run each method with each seed."""
    times = ({"name": "half-normal", "shift": 1 + math.sqrt(i), "scale": math.sqrt(i + 1)} for i in range(_WORKERS))
    scenario = fred.scenario(
        cluster={"groups": [{"workers": 1, "compute": compute} for compute in times]},
        task={"data": {"name": "noise", "deviation": 0.01}, "model": "quadratic", "loss": "value", "batch_size": 1},
        stop={"seconds": float(_MOMENTS[-1])},
        evaluate={"points": 5},
        seeds=list(_SEEDS),
        runs={f"run-{number}": run for number, (run, _) in enumerate(REFERENCE.values())},
    )
    rows = []
    for name, run in zip(REFERENCE, scenario.runs, strict=True):
        metrics = fred.run(scenario, only=run).metrics
        rows.append(metrics[metrics["virtual_seconds"].isin(_MOMENTS)].assign(run=name))
        store(FILE, pd.concat(rows)[["run", "seed", "virtual_seconds", "updates", "loss"]])
        say(name)


def rows(large: pd.DataFrame) -> Iterable[tuple[object, ...]]:
    """Yield the rows of the table next to the other program.

    Args:
        large: measurements.
    """
    for name, (_, expected) in REFERENCE.items():
        for moment, reference in zip(_MOMENTS, expected, strict=True):
            losses = _losses(large, name, moment)
            verdict = "yes" if near(losses.mean(), reference, NEAR) else "no"
            yield name, moment, f"{reference:g}", f"{losses.mean():.3g}", f"{losses.min():.3g} to {losses.max():.3g}", verdict


def spread(large: pd.DataFrame) -> Iterable[tuple[object, ...]]:
    """Yield the spread between seeds of m-sync, by a program that is not FRED.

    Args:
        large: measurements of FRED.
    """
    for m in (1, 6):
        name = f"m-sync, rate 1, m = {m}"
        for moment, reference, excesses in zip(_MOMENTS, REFERENCE[name][1], by_numpy.m_sync(m, _MOMENTS), strict=True):
            low, high = np.percentile(excesses, (2.5, 97.5))
            inside = "yes" if low <= reference <= high else "no"
            mean = _losses(large, name, moment).mean()
            yield m, moment, f"{reference:g}", f"{mean:.3g}", f"{excesses.mean():.3g}", f"{low:.3g} to {high:.3g}", inside


def _losses(large: pd.DataFrame, name: str, moment: int) -> "pd.Series[float]":
    return large.loc[(large["run"] == name) & (large["virtual_seconds"] == moment), "loss"]
