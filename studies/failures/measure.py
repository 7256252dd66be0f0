"""Tune each system without failures and with some, and run the chosen settings at each rate of failures on other seeds."""

import json
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import fred
from fred.base.cores import cores
from fred.components.limits import NANOSECONDS
from fred.schedule.schedule import What
from studies.failures.cases import BUDGET, HOUR, MEDIUM, NONE, RATES, ROUND, SYSTEMS, TARGET, WORKERS, settings
from studies.tuning import REPORTED, TUNING, Settings, tuned

POINTS, KEPT = 9, 2  # of each system and rate; the best of those are tried with all tuning seeds
LONG = {1.0: 400, 4.0: 200, 24.0: 50}  # hours between failures, and failures of a run for the goodput
_PLAIN = 1000 * ROUND  # s without failures, for the mean time of a round
ROOT = Path(__file__).parents[2]
DONE = ROOT / "results" / "failures"  # a file of each part, from which an interrupted study goes on
FOUND = ROOT / "results" / "studies" / "failures.csv"
CHOSEN, GOODPUT = FOUND.with_name("failures-tuning.csv"), FOUND.with_name("failures-goodput.csv")
_Part = tuple[str, float]  # system, and hours between failures for which it is tuned


def measure() -> None:
    """Measure all parts that have no file, one process for each core."""
    DONE.mkdir(parents=True, exist_ok=True)
    parts = [(name, between) for between in (NONE, MEDIUM) for name in SYSTEMS if between != NONE or not SYSTEMS[name].alike]
    with ProcessPoolExecutor(cores(), mp_context=multiprocessing.get_context("spawn")) as pool:
        for step, todo in ((_tuned, parts), (_reported, list(SYSTEMS)), (_long, list(LONG))):
            for name in pool.map(step, todo):
                print(name, flush=True)
    collect()


def collect() -> None:
    """Write the tables of all parts."""
    FOUND.parent.mkdir(parents=True, exist_ok=True)
    _write(pd.concat([pd.read_csv(_path(name)) for name in SYSTEMS]), FOUND)
    choices = [_choice(name, between).assign(system=name, hours=between) for name in SYSTEMS for between in (NONE, MEDIUM)]
    _write(pd.concat(choices), CHOSEN)
    _write(pd.concat([pd.read_csv(_path(f"goodput-{between:g}")) for between in LONG]), GOODPUT)


def _write(table: pd.DataFrame, path: Path) -> None:
    table.to_csv(path, index=False, float_format="%.6g")


def _path(name: str) -> Path:
    return DONE / f"{name.replace(', ', '-').replace(' ', '-').lower()}.csv"


def _choice(name: str, between: float) -> pd.DataFrame:
    own = SYSTEMS[name].alike or name if between == NONE else name
    return pd.read_csv(_path(f"tuned-{own}-{between:g}"))


def _tuned(part: _Part) -> str:
    name, between = part
    path = _path(f"tuned-{name}-{between:g}")
    if not path.is_file():
        found = tuned(lambda some, seeds: scores(name, between, some, seeds), SYSTEMS[name].knobs, POINTS, KEPT, TUNING)
        row = {"settings": json.dumps(found.settings), "tuning_seconds": found.value, "points": found.points}
        _write(pd.DataFrame([row | {"edges": " ".join(found.edges)}]), path)
    return path.stem


def scores(name: str, between: float, some: Sequence[Settings], seeds: Sequence[int]) -> NDArray[np.float64]:
    """Return the time to the target [settings, seeds], s.

    A run that misses the target counts as its length, times one more than the logarithm of its loss over the target.

    Args:
        name: name of the system.
        between: hours between two failures.
        some: settings.
        seeds: of the runs.
    """
    runs = {f"p{number}": SYSTEMS[name].run(each, between) for number, each in enumerate(some)}
    stop = {"stop": {"seconds": BUDGET, "target_loss": TARGET}}
    summary = fred.run(fred.scenario(settings() | stop, seeds=list(seeds), runs=runs)).summary
    missed = BUDGET * (1 + np.maximum(0, np.log(pd.to_numeric(summary["loss"]).fillna(np.inf) / TARGET)))
    by_seed = summary.assign(score=pd.to_numeric(summary["target_seconds"]).fillna(missed)).pivot(
        index="name", columns="seed", values="score"
    )
    return by_seed.loc[list(runs), list(seeds)].to_numpy(float)


def _reported(name: str) -> str:
    path = _path(name)
    if not path.is_file():
        plain, failing = (json.loads(_choice(name, between)["settings"].iloc[0]) for between in (NONE, MEDIUM))
        tables = [of_system(name, plain, RATES).assign(tuned="none")]
        own = tables[0][tables[0]["hours"] == MEDIUM] if failing == plain else of_system(name, failing, [MEDIUM])
        _write(pd.concat([*tables, own.assign(tuned="six a day")]).assign(system=name), path)
    return name


def of_system(name: str, chosen: Settings, rates: Sequence[float] | dict[float, str]) -> pd.DataFrame:
    """Return the measurements of a system, a row for each rate of failures and reported seed.

    Args:
        name: name of the system.
        chosen: value of each knob.
        rates: hours between two failures.
    """
    runs = {f"every-{between:g}": SYSTEMS[name].run(chosen, between) for between in rates}
    result = fred.run(fred.scenario(settings(), seeds=list(REPORTED), runs=runs))
    between = {f"every-{hours:g}": hours for hours in rates}
    summary = result.summary
    columns = ["seed", "target_seconds", "target_cost", "loss", "error", "gradients_applied"]
    found = summary.reindex(columns=columns).assign(hours=summary["name"].map(between))
    found["goodput"] = summary.get("failures_goodput", np.nan)
    begins = {(each.name, each.seed): failures(each.schedule) for each in result.outcomes}
    own = [begins[key] for key in zip(summary["name"], summary["seed"], strict=True)]
    ends = pd.to_numeric(found["target_seconds"]).fillna(BUDGET)
    found["failures_to_target"] = [int((each < end).sum()) for each, end in zip(own, ends, strict=True)]
    return found.assign(failures=[len(each) for each in own])


def failures(schedule: Any) -> NDArray[np.float64]:
    """Return the times of failures, s: of the job, or of single workers.

    Args:
        schedule: schedule of a run.
    """
    intervals = schedule.intervals
    job = intervals.select(What.DETECTING)
    begins = job.begin_ns if len(job.begin_ns) else intervals.select(What.AWAY).begin_ns
    return np.asarray(begins / NANOSECONDS, float)


def _long(between: float) -> str:
    """Measure the goodput of synchronous SGD with checkpoints over many failures, without learning."""
    path = _path(f"goodput-{between:g}")
    if not path.is_file():
        seconds = LONG[between] * between * HOUR
        own = {key: value for key, value in settings().items() if key == "cluster"} | {"stop": {"seconds": seconds}}
        runs = {
            "job": {"algorithm": {"name": "ssgd", "learning_rate": 0.1}, "cluster": SYSTEMS["checkpoints"].cluster(between)}
        }
        runs["plain"] = {"algorithm": {"name": "ssgd", "learning_rate": 0.1}, "stop": {"seconds": _PLAIN}}
        summary = fred.run(fred.scenario(own, seeds=list(REPORTED), runs=runs)).summary
        job, plain = (summary[summary["name"] == name] for name in ("job", "plain"))
        mean_round = _PLAIN / (plain["gradients_applied"].mean() / WORKERS)
        facts = {"hours": between, "round": mean_round}
        _write(job[["seed", "failures_number", "failures_goodput"]].assign(**facts), path)
    return path.stem
