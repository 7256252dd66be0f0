"""Tune each system in each case, and run the chosen settings on other seeds."""

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
from studies.asked.cases import BUDGET, CASES, TARGET
from studies.asked.systems import EVERY
from studies.tuning import REPORTED, TUNING, Settings, tuned

POINTS, KEPT = 12, 2  # of each system in each case; the best of those are tried with all tuning seeds
ENOUGH = 0.6  # loss, nats, at which runs of the tuning end: well below that at the target
WORST = 0.1  # share of clients whose error counts as that of the worst
ROOT = Path(__file__).parents[2]
DONE = ROOT / "results" / "asked"  # a file of each part, from which an interrupted study goes on
FOUND = ROOT / "results" / "studies" / "asked.csv"
TRIED = FOUND.with_name("asked-tuning.csv")
_Part = tuple[str, str]  # case and system


def measure() -> None:
    """Measure all parts that have neither a file nor rows in the tables, one process for each core."""
    DONE.mkdir(parents=True, exist_ok=True)
    _restore()
    parts = [(case, system) for system in EVERY for case in CASES]  # a system's programs are compiled once
    with ProcessPoolExecutor(cores(), mp_context=multiprocessing.get_context("spawn")) as pool:
        for step in (_tuned, _reported):
            for name in pool.map(step, parts):
                print(name, flush=True)
    collect()


def _restore() -> None:
    """Write a file for each part that the tables have, so that a new system costs its own runs alone."""
    for path, more in ((FOUND, ""), (TRIED, "-tried")):
        if path.is_file():
            for (case, system), own in pd.read_csv(path, keep_default_na=False).groupby(["case", "system"]):
                if not _path(str(case), str(system), more).is_file():
                    own.to_csv(_path(str(case), str(system), more), index=False)


def collect() -> None:
    """Write the tables of all parts."""
    FOUND.parent.mkdir(parents=True, exist_ok=True)
    parts = [(case, system) for case in CASES for system in EVERY]
    _write(pd.concat([pd.read_csv(_path(*part)) for part in parts]), FOUND)
    _write(pd.concat([_read_tried(*part) for part in parts]), TRIED)


def _write(table: pd.DataFrame, path: Path) -> None:
    table.to_csv(path, index=False, float_format="%.6g")


def _path(case: str, system: str, more: str = "") -> Path:
    return DONE / f"{case}-{system.replace(',', '').replace(' ', '-').lower()}{more}.csv"


def _read_tried(case: str, system: str) -> pd.DataFrame:
    return pd.read_csv(_path(case, system, "-tried"), keep_default_na=False)


def _tuned(part: _Part) -> str:
    """Search the settings of a system in a case; store all points that were tried."""
    path = _path(*part, "-tried")
    if not path.is_file():
        tried = list[dict[str, Any]]()

        def measured(some: Sequence[Settings], seeds: Sequence[int]) -> NDArray[np.float64]:
            found = scores(*part, some, seeds)
            for settings, own in zip(some, found, strict=True):
                by_seed = zip(seeds, own.tolist(), strict=True)
                tried.extend({"settings": json.dumps(settings), "seed": seed, "score": each} for seed, each in by_seed)
            return found

        chosen = tuned(measured, EVERY[part[1]].knobs, POINTS, KEPT, TUNING)
        table = pd.DataFrame(tried)
        is_chosen = table["settings"] == json.dumps(chosen.settings)
        edges = np.where(is_chosen, " ".join(chosen.edges), "")
        _write(table.assign(case=part[0], system=part[1], chosen=is_chosen, edges=edges), path)
    return path.stem


def scores(case: str, system: str, some: Sequence[Settings], seeds: Sequence[int]) -> NDArray[np.float64]:
    """Return the time to the target [settings, seeds], s.

    A run that misses the target counts as its length, times one more than the logarithm of its error over the target.

    Args:
        case: name of the case.
        system: name of the system.
        some: settings.
        seeds: of the runs.
    """
    runs = {f"p{number}": EVERY[system].run(each, case) for number, each in enumerate(some)}
    settings = CASES[case].settings() | {"stop": {"seconds": BUDGET, "target_loss": ENOUGH}}
    result = fred.run(fred.scenario(settings, seeds=list(seeds), runs=runs))
    return np.array([[_score(result.outcome(name, seed).metrics) for seed in seeds] for name in runs])


def _score(metrics: pd.DataFrame) -> float:
    """Return the score of a run from its evaluations; its summary has the time to the loss at which it ends."""
    reached = metrics.loc[metrics["error"] <= TARGET, "virtual_seconds"]
    last = float(np.nan_to_num(metrics["error"].iloc[-1], nan=1.0))
    return float(reached.iloc[0]) if len(reached) else BUDGET * (1 + np.log(last / TARGET))


def chosen(tried: pd.DataFrame) -> str:
    """Return the settings that were chosen for a system in a case.

    Args:
        tried: a row for each point that was tried there, and seed.
    """
    return str(tried.loc[tried["chosen"], "settings"].iloc[0])


def one_setting(tried: dict[str, pd.DataFrame]) -> str:
    """Return the one setting for all cases: of those tried in all, the one with the least geometric mean of scores.

    Args:
        tried: by case, a row for each point that was tried, and seed. The first tuning seed counts.
    """
    first = {case: own[own["seed"] == TUNING[0]].set_index("settings")["score"] for case, own in tried.items()}
    common = pd.DataFrame(first).astype(float).dropna()
    return str(np.log(common).mean(axis=1).idxmin())


def _reported(part: _Part) -> str:
    """Run a system in a case with the setting tuned there, and with its one setting for all cases."""
    path = _path(*part)
    if not path.is_file():
        case, system = part
        own = {
            "tuned": chosen(_read_tried(*part)),
            "one setting": one_setting({each: _read_tried(each, system) for each in CASES}),
        }
        found = of_system(case, system, {settings: json.loads(settings) for settings in own.values()})
        tables = [found[found["settings"] == settings].assign(way=way) for way, settings in own.items()]
        _write(pd.concat(tables).assign(case=case, system=system), path)
    return path.stem


def of_system(case: str, system: str, some: dict[str, Settings], seeds: Sequence[int] = REPORTED) -> pd.DataFrame:
    """Return the measurements of a system in a case, a row for each setting and seed.

    Args:
        case: name of the case.
        system: name of the system.
        some: settings, by the words that stand for them.
        seeds: of the runs.
    """
    runs = {f"p{number}": EVERY[system].run(each, case) for number, each in enumerate(some.values())}
    words = dict(zip(runs, some, strict=True))
    result = fred.run(fred.scenario(CASES[case].settings(), seeds=list(seeds), runs=runs))
    columns = ["seed", "target_seconds", "error", "loss", "gradients_computed", "gradients_applied", "messages_to_servers"]
    found = result.summary.reindex(columns=columns).assign(settings=result.summary["name"].map(words))
    keys = zip(result.summary["name"], result.summary["seed"], strict=True)
    clients = pd.DataFrame([of_clients(result.by_worker(name, seed=seed)) for name, seed in keys], index=found.index)
    return pd.concat([found, clients], axis=1)


def of_clients(clients: pd.DataFrame) -> dict[str, float]:
    """Return the mean error of the final model over the clients, that of the worst tenth, and the share that took part.

    Args:
        clients: a row for each client.
    """
    worst = clients.nlargest(max(1, round(WORST * len(clients))), "error")
    return {
        "client_error": float(clients["error"].mean()),
        "worst_error": float(worst["error"].mean()),
        "took_part": float((clients["gradients"] > 0).mean()),
    }
