"""100 workers: seconds to an accuracy, each method at the best of a grid."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import fred
from reproductions.asynchronous import by_numpy
from reproductions.asynchronous.methods import NEAR, Run, m_sync, rennala, ringmaster
from reproductions.common import RESULTS, near, say

_LAWS: dict[str, tuple[dict[str, Any], dict[str, int]]] = {  # what the cluster says of it; the other program's seconds
    "worker i takes i s": ({"times": "i"}, {"m-sync": 53, "Rennala": 53, "Ringmaster": 54}),
    "all take 1 s": ({}, {"m-sync": 12, "Rennala": 16, "Ringmaster": 18}),
}
_MANY, _DEVIATION, _ACCURACY = 100, 0.01, 1e-3  # workers; of the noise in each coordinate; squared gradient
_TUNING, _REPORTED = (1, 2, 3), (11, 12, 13, 14, 15)


@dataclass(frozen=True)
class Tuning:
    """What was tuned, from where.

    Args:
        file: of the results.
        start: the first of 32 numbers, of which the others are 0; None: sqrt(32).
        rates: of the grid.
        sizes: m, B or R, of the grid.
        seconds: of each run, by the law of the workers' times.
    """

    file: Path
    start: float | None
    rates: tuple[float, ...]
    sizes: tuple[int, ...]
    seconds: dict[str, float]

    def grid(self) -> dict[tuple[str, str], Run]:
        """Return the grid of settings by method, equally many for each."""
        pairs = [(rate, size) for rate in self.rates for size in self.sizes]
        return {
            **{("m-sync", f"rate {rate:g}, m = {size}"): m_sync(rate, size, _MANY) for rate, size in pairs},
            **{("Rennala", f"rate {rate:g}, B = {size}"): rennala(rate, size) for rate, size in pairs},
            **{("Ringmaster", f"rate {rate:g}, R = {size}"): ringmaster(rate, size) for rate, size in pairs},
        }


AS_DESCRIBED = Tuning(
    RESULTS / "asynchronous-tuned.csv", None, (0.25, 0.5, 1.0, 1.9), (1, 2, 4, 8, 16, 32), dict.fromkeys(_LAWS, 600.0)
)
FROM_ZERO = Tuning(
    RESULTS / "asynchronous-from-zero.csv",
    0.0,
    (0.25, 0.5, 1.0, 1.5, 1.9),
    (1, 2, 4, 8, 16, 32, 100),
    dict(zip(_LAWS, (200.0, 60.0), strict=True)),
)


def measure(tuning: Tuning) -> None:
    """Choose the best setting of each method by some seeds, and run it with others.

    Args:
        tuning: what is tuned.
    """
    rows = []
    for law in _LAWS:
        tuned = _times(tuning, law, tuning.grid(), _TUNING).groupby(["method", "run"])["seconds"].median()
        best = {method: own.droplevel("method").idxmin() for method, own in tuned.groupby(level="method")}
        chosen = {key: run for key, run in tuning.grid().items() if best[key[0]] == key[1]}
        rows.append(_times(tuning, law, chosen, _REPORTED).assign(law=law))
        pd.concat(rows).to_csv(tuning.file, index=False, float_format="%.6g")
        say(law)


def _times(tuning: Tuning, law: str, runs: dict[tuple[str, str], Run], seeds: Iterable[int]) -> pd.DataFrame:
    """Return the times at which the squared gradient first reached the accuracy, s of virtual time (infinite: never)."""
    model = {"name": "quadratic", "dimension": 32, "start": tuning.start}
    data = {"name": "noise", "features": 32, "deviation": _DEVIATION}
    scenario = fred.scenario(
        cluster={"workers": _MANY, "compute": {"name": "constant", "seconds": 1.0}, **_LAWS[law][0]},
        task={"data": data, "model": model, "loss": "value", "batch_size": 1},
        stop={"seconds": tuning.seconds[law], "updates": 4000},
        evaluate={"every_updates": 1, "target_error": _ACCURACY},
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
        tuned: what was measured.
    """
    for law, (_, expected) in _LAWS.items():
        for method, reference in expected.items():
            own = tuned[(tuned["law"] == law) & (tuned["method"] == method)]
            seconds = own["seconds"]
            spread = f"{seconds.min():.3g} to {seconds.max():.3g}"
            verdict = "yes" if near(seconds.median(), reference, NEAR) else "no"
            yield law, method, reference, f"{seconds.median():.3g}", spread, own["run"].iloc[0], verdict


def exact() -> Iterable[tuple[object, ...]]:
    """Steps that gradient descent without noise needs, from either start."""
    for rate in (1.0, 1.5, 1.75, 1.9):
        yield f"{rate:g}", by_numpy.rounds(32**0.5, rate), by_numpy.rounds(0.0, rate)
