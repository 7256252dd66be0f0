"""100 workers: seconds to an accuracy, each method at the best of a grid."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import fred
from reproductions.asynchronous import by_numpy
from reproductions.asynchronous.methods import NEAR, Run, m_sync, rennala, ringmaster
from reproductions.common import RESULTS, near, say, store

FILE = RESULTS / "asynchronous-tuned.csv"
_MANY, _DIMENSION = 100, 32  # workers, parameters
TUNING, REPORTED = (1, 2, 3, 4, 5), tuple(range(11, 21))  # seeds


class Law(NamedTuple):
    """A comparison of the other program: what the cluster is, and which target was to be reached.

    Attributes:
        speeds: of the workers, as in a scenario's cluster.
        deviation: of the noise in each coordinate of a gradient.
        accuracy: squared length of the gradient that ends a run.
        seconds: limit of a run, three times what the slowest method of the other program took, or less.
        reference: the other program's seconds, by method.
    """

    speeds: dict[str, Any]
    deviation: float
    accuracy: float
    seconds: float
    reference: dict[str, int]


LAWS = {
    "worker i takes i s": Law({"speeds": "1/i"}, 0.01, 1e-3, 150.0, {"m-sync": 53, "Rennala": 53, "Ringmaster": 54}),
    "all take 1 s": Law({}, 0.1, 5e-3, 40.0, {"m-sync": 12, "Rennala": 16, "Ringmaster": 18}),
}
RATES = (0.03, 0.06, 0.125, 0.25, 0.5, 1.0, 1.5, 1.9)
SIZES = (1, 2, 4, 8, 16, 32, 64, 100)  # m, B or R
_METHODS: dict[str, tuple[str, Callable[[float, int], Run]]] = {
    "m-sync": ("m", lambda rate, size: m_sync(rate, size, _MANY)),
    "Rennala": ("B", rennala),
    "Ringmaster": ("R", ringmaster),
}


def grid() -> dict[tuple[str, str], Run]:
    """Return the runs by method and setting, equally many for each method."""
    return {
        (method, f"rate {rate:g}, {letter} = {size}"): make(rate, size)
        for method, (letter, make) in _METHODS.items()
        for rate in RATES
        for size in SIZES
    }


def measure() -> None:
    """Choose the best setting of each method on some seeds, and run it with others."""
    rows = []
    for law in LAWS:
        tuned = _times(law, grid(), TUNING).groupby(["method", "run"])["seconds"].median()
        best = {method: medians.droplevel("method").idxmin() for method, medians in tuned.groupby(level="method")}
        best_runs = {key: run for key, run in grid().items() if best[key[0]] == key[1]}
        rows.append(_times(law, best_runs, REPORTED).assign(law=law))
        store(FILE, pd.concat(rows))
        say(law)


def _times(law: str, runs: dict[tuple[str, str], Run], seeds: Iterable[int]) -> pd.DataFrame:
    """Return the times at which the squared gradient first reached the accuracy, s of virtual time (infinite: never)."""
    case = LAWS[law]
    scenario = fred.scenario(
        cluster={"workers": _MANY, "compute": {"name": "constant", "seconds": 1.0}, **case.speeds},
        task={
            "data": {"name": "noise", "features": _DIMENSION, "deviation": case.deviation},
            "model": {"name": "quadratic", "dimension": _DIMENSION},
            "loss": "value",
            "batch_size": 1,
        },
        stop={"seconds": case.seconds},
        evaluate={"every_updates": 1, "target_error": case.accuracy},
        seeds=list(seeds),
        runs={f"run-{number}": run for number, run in enumerate(runs.values())},
    )
    summary = fred.run(scenario).summary
    names = dict(zip(scenario.runs, runs, strict=True))
    reached = summary["target_seconds"].fillna(np.inf)
    return pd.DataFrame(
        [(*names[name], seed, time) for name, seed, time in zip(summary["name"], summary["seed"], reached, strict=True)],
        columns=["method", "run", "seed", "seconds"],
    )


def rows(tuned: pd.DataFrame) -> Iterable[tuple[object, ...]]:
    """Yield the rows of the table next to the other program.

    Args:
        tuned: measurements.
    """
    for name, law in LAWS.items():
        for method, reference in law.reference.items():
            runs = tuned[(tuned["law"] == name) & (tuned["method"] == method)]
            seconds, setting = runs["seconds"], runs["run"].iloc[0]
            spread = f"{seconds.min():.3g} to {seconds.max():.3g}"
            verdict = "yes" if near(seconds.median(), reference, NEAR) else "no"
            edge = "yes" if _at_edge(setting) else "no"
            yield name, method, reference, f"{seconds.median():.3g}", spread, setting, edge, verdict


def _at_edge(setting: str) -> bool:
    """Return whether the best rate, B or R could lie outside of the grid; m ends at all workers, and no size is below 1."""
    rate, size = (float(part.split()[-1]) for part in setting.split(", "))
    return rate in (RATES[0], RATES[-1]) or (size == SIZES[-1] and "m =" not in setting)


def exact() -> Iterable[tuple[str, int, int]]:
    """Yield the steps that gradient descent without noise needs, by rate and accuracy."""
    for rate in (1.0, 1.5, 1.65, 1.75, 1.9):
        first, second = (by_numpy.rounds(_DIMENSION**0.5, rate, _DIMENSION, law.accuracy) for law in LAWS.values())
        yield f"{rate:g}", first, second
