"""Birch SGD's comparison [arXiv:2505.09218]: eight methods where gradients, or messages, are slow or unequal."""

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import fred
from reproductions.common import REPORTED, RESULTS, fill, say, store, table, write
from reproductions.verdicts import Verdict, combine_parts, judge_less, judge_no_worse

FILE = RESULTS / "birch.csv"
_WORKERS = (16, 64)
_TUNING = (1, 2)  # seeds
_LOSS = 0.5  # mean cross-entropy over the evaluation images: the target
_RATES = [0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0]
_NEAR = 1.25  # times as long as the best is still "about as fast"
_SLOW = {"name": "constant", "seconds": 100.0}
_MIXED = {"name": "uniform", "low": 1.0, "high": 100.0}
REGIMES: dict[str, tuple[bool, dict[str, Any] | None, float]] = {  # half of all ten times as fast; messages; how long, s
    "h = 10, tau = 0": (False, None, 4_000.0),
    "h = 10, tau = 100": (False, _SLOW, 20_000.0),
    "h = 1 or 10, tau = 0": (True, None, 2_000.0),
    "h = 10, tau from 1 to 100": (False, _MIXED, 20_000.0),
}
_Sizes = Callable[[int], dict[str, list[int]]]
METHODS: dict[str, tuple[str, _Sizes]] = {  # two sizes each, by workers; synchronous SGD has none
    "synchronous": ("ssgd", lambda n: {}),
    "m-sync": ("m-sync", lambda n: {"backup_workers": [n // 4, n // 2]}),
    "Rennala": ("rennala", lambda n: {"batch": [n, 4 * n]}),
    "Local": ("birch-local", lambda n: {"total": [n, 4 * n]}),
    "Async-Local": ("async-local", lambda n: {"steps": [2, 8]}),
    "Async-Batch": ("async-batch", lambda n: {"steps": [2, 8]}),
    "Cycle": ("cycle", lambda n: {"group_size": [round(n**0.5), n // 2]}),
    "Ringmaster": ("ringmaster", lambda n: {"threshold": [n, 4 * n]}),
}
STATEMENTS: dict[str, list[tuple[str, str, tuple[str, ...]]]] = {  # as far as the paper's page was read
    "h = 10, tau = 0": [
        (
            "all but synchronous SGD are about as fast as the best",
            "near",
            tuple(name for name in METHODS if name != "synchronous"),
        ),
        ("Rennala and Local are a little slower than Ringmaster", "slower than Ringmaster", ("Rennala", "Local")),
        ("synchronous SGD is the slowest", "slowest", ("synchronous",)),
    ],
    "h = 10, tau = 100": [
        ("Rennala, Local and Async-Local are about as fast as the best", "near", ("Rennala", "Local", "Async-Local")),
        ("Ringmaster needs more than twice the best's time", "impractical", ("Ringmaster",)),
    ],
    "h = 1 or 10, tau = 0": [
        ("Async-Local and Ringmaster are about as fast as the best", "near", ("Async-Local", "Ringmaster")),
        ("synchronous SGD is the slowest", "slowest", ("synchronous",)),
    ],
    "h = 10, tau from 1 to 100": [
        ("Async-Local and Ringmaster are about as fast as the best", "near", ("Async-Local", "Ringmaster")),
        ("synchronous SGD is the slowest", "slowest", ("synchronous",)),
    ],
}


_HOLDS = {Verdict.AGREES: "yes", Verdict.DISAGREES: "no", Verdict.OPEN: "open"}


def training() -> None:
    """Measure all regimes: a quarter of an hour."""
    rows = []
    for workers, regime in product(_WORKERS, REGIMES):
        rows.append(measure_methods(regime, workers).assign(workers=workers, regime=regime))
        say(f"{workers} workers, {regime}")
    store(FILE, pd.concat(rows), "%.5g")


def measure_methods(regime: str, workers: int) -> pd.DataFrame:
    """Choose each method's best point on some seeds; return its seconds to the target on others, a row for each."""
    halves, messages, seconds = REGIMES[regime]
    speeds = {"speeds": [10.0] * (workers // 2) + [1.0] * (workers - workers // 2)} if halves else {}
    network = {} if messages is None else {"network": {"latency": messages}}
    scenario = fred.scenario(
        cluster={"workers": workers, "compute": {"name": "constant", "seconds": 10.0}, **speeds, **network},
        task={"data": "digits", "model": "softmax", "batch_size": 1},
        stop={"seconds": seconds},
        evaluate={"points": 200, "target_loss": _LOSS},
        seeds=list(_TUNING),
        report_seeds=list(REPORTED),
        runs={name: _run(*method, workers) for name, method in METHODS.items()},
    )
    summary = fred.run(scenario).summary
    summary = summary[summary["seed"].isin(REPORTED)]
    point = summary["name"].str.split(",", n=1)
    points = pd.DataFrame({"method": point.str[0], "point": point.str[1], "seed": summary["seed"]})
    return points.assign(seconds=summary["target_seconds"].fillna(np.inf))


def _run(algorithm: str, sizes: _Sizes, workers: int) -> dict[str, Any]:
    grid = {"algorithm.learning_rate": _RATES} | {f"protocol.{key}": values for key, values in sizes(workers).items()}
    return {"algorithm": {"name": algorithm}, "sweep": {"best": "seconds", "over": grid}}


def report() -> str:
    """Write birch.md from the measurements."""
    return write("birch", text())


def text() -> str:
    """Return the page."""
    measurements = pd.read_csv(FILE)
    judged = list(_judged(measurements))
    verdicts = [verdict for *_, verdict in judged]
    largest, smallest = (_count_choices(measurements, rate) for rate in (_RATES[-1], _RATES[0]))
    return fill(
        Path(__file__).with_suffix(".md"),
        loss=_LOSS,
        rates=len(_RATES),
        tuned=len(_TUNING),
        reported=len(REPORTED),
        near=f"{100 * (_NEAR - 1):.0f} %",
        holds=verdicts.count(Verdict.AGREES),
        fails=verdicts.count(Verdict.DISAGREES),
        open=verdicts.count(Verdict.OPEN),
        by_medians=sum(holds for *_, holds, _ in judged),
        all=len(judged),
        choices=len(METHODS) * len(REGIMES) * len(_WORKERS),
        largest=largest,
        largest_rate=_RATES[-1],
        smallest=smallest,
        statements=table(
            ("workers", "where", "the paper says", "measured", "by medians", "holds"),
            (
                (workers, regime, statement, ratios, "yes" if holds else "no", _HOLDS[verdict])
                for workers, regime, statement, ratios, holds, verdict in judged
            ),
        ),
        tables="\n\n".join(_table(measurements, workers) for workers in _WORKERS),
    )


def _count_choices(measurements: pd.DataFrame, rate: float) -> int:
    """Return the number of choices that ended at this rate of the grid."""
    points = measurements.drop_duplicates(["workers", "regime", "method"])["point"]
    return int((points.str.extract(r"learning_rate=([0-9.e-]+)", expand=False).astype(float) == rate).sum())


def by_seed(measurements: pd.DataFrame, workers: int, regime: str) -> pd.DataFrame:
    """Return the seconds to the target, [seeds, methods]; a run that never got there counts with its length."""
    rows = measurements[(measurements["workers"] == workers) & (measurements["regime"] == regime)]
    return rows.pivot(index="seed", columns="method", values="seconds")[list(METHODS)].replace(np.inf, REGIMES[regime][2])


def _judged(measurements: pd.DataFrame) -> Iterator[tuple[int, str, str, str, bool, Verdict]]:
    for workers, regime in product(_WORKERS, REGIMES):
        times = by_seed(measurements, workers, regime)
        share = times.median() / times.median().min()
        best = str(share.idxmin())
        for statement, kind, names in STATEMENTS[regime]:
            ratios = ", ".join(f"{name} {share[name]:.2f}" for name in names)
            verdict = combine_parts(list(_verdicts(kind, names, times, best)))
            yield workers, regime, statement, f"{ratios} times the best ({best})", _holds(kind, names, share), verdict


def _holds(kind: str, names: tuple[str, ...], share: pd.Series) -> bool:
    """Return whether a statement on these methods holds, by their median times as multiples of the best one's."""
    shares = share[list(names)]
    if kind == "near":
        return bool((shares <= _NEAR).all())
    if kind == "impractical":
        return bool((shares > 2).all())
    if kind == "slowest":
        return bool(shares.min() >= share.max())
    return bool((shares > share["Ringmaster"]).all() and (shares <= 2 * share["Ringmaster"]).all())


def _verdicts(kind: str, names: tuple[str, ...], times: pd.DataFrame, best: str) -> Iterator[Verdict]:
    """Yield the verdicts on the parts of a statement, by intervals of ratios of runs with the same seed."""
    for name in names:
        if kind == "near" and name != best:
            yield judge_no_worse(times[name], times[best], _NEAR - 1)
        elif kind == "impractical":
            yield judge_less(2 * times[best], times[name])
        elif kind == "slowest":
            yield from (judge_less(times[other], times[name]) for other in times if other != name)
        elif kind == "slower than Ringmaster":
            yield judge_less(times["Ringmaster"], times[name])
            yield judge_no_worse(times[name], times["Ringmaster"], 1.0)


def _table(measurements: pd.DataFrame, workers: int) -> str:
    groups = measurements[measurements["workers"] == workers].groupby(["method", "regime"])
    low, middle, high = (groups["seconds"].agg(how).unstack("regime") for how in ("min", "median", "max"))
    rows = (
        (name, *(f"{middle[regime][name]:,.0f} ({low[regime][name]:,.0f} to {high[regime][name]:,.0f})" for regime in REGIMES))
        for name in METHODS
    )
    return f"{workers} workers:\n\n" + table(("seconds to the target", *REGIMES), rows)
