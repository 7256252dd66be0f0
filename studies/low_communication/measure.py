"""Tune each system in each case, and run the chosen settings on other seeds. Each part has a file, so a study can go on."""

import json
import multiprocessing
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import fred
from fred.base.cores import cores
from fred.schedule.schedule import Verb
from studies.low_communication.cases import FRAGMENTS, HERE, LOOKS, NARROW, Case, cases
from studies.low_communication.systems import SYSTEMS
from studies.tuning import REPORTED, TUNING, Settings, Tuned, tuned

POINTS, KEPT = 18, 2  # of each system in each case; the best of those are tried with all tuning seeds
ROOT = Path(__file__).parents[2]
DONE = ROOT / "results" / "low-communication"
LOSSES = ROOT / "results" / "studies" / "low-communication.csv"
TRIED, GOODPUT = LOSSES.with_name("low-communication-tuning.csv"), LOSSES.with_name("low-communication-goodput.csv")
_write = partial(pd.DataFrame.to_csv, index=False, float_format="%.6g")


def measure() -> None:
    """Measure all parts that have no file, one process for each core: first the cases where all workers are alike."""
    DONE.mkdir(parents=True, exist_ok=True)
    LOSSES.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(cores(), mp_context=multiprocessing.get_context("spawn")) as pool:
        for slow in (False, True):
            parts = [(case, system) for case in cases(slow) for system in SYSTEMS if slow or not SYSTEMS[system].if_alike]
            for name in pool.map(_case_measured, *zip(*parts, strict=True)):
                print(name, flush=True)
        for name in pool.map(_one_setting_measured, SYSTEMS):
            print(name, flush=True)
    collect()
    if not GOODPUT.is_file():
        _write(_goodput(fred.run(fred.load(HERE / "goodput.yaml"))), GOODPUT)


def collect() -> None:
    """Write the losses of all parts into one file, and the points that were tried into another.

    Losses over time are those of tuned settings; of the others there is the loss at the end.
    """
    losses, points = list[pd.DataFrame](), list[pd.DataFrame]()
    for case, system in ((case, system) for slow in (False, True) for case in cases(slow) for system in SYSTEMS):
        facts: dict[str, Any] = {"megabits": case.megabits, "workers": case.workers, "system": system}
        path = _path(case, system if case.slow else SYSTEMS[system].if_alike or system)
        own = pd.read_csv(path)
        losses.append(own[(own["way"] == "tuned") | (own["seconds"] == own["seconds"].max())].assign(**facts))
        points.append(_points(pd.read_csv(_tried(case, system)), own).assign(**facts))
    for system in SYSTEMS:
        own = pd.read_csv(DONE / f"one-setting-{system}.csv")
        own = own[own["seconds"] == own.groupby("case")["seconds"].transform("max")]
        of_case = {case.name: case for slow in (False, True) for case in cases(slow)}
        facts = {key: [getattr(of_case[name], key) for name in own["case"]] for key in ("megabits", "workers")}
        losses.append(own.assign(**facts, system=system, way="one setting"))
    every = pd.concat(losses)
    every["seconds"] = every["seconds"].round(3)
    _write(every[["megabits", "workers", "way", "system", "seed", "seconds", "loss", "mean_loss"]], LOSSES)
    _write(_in_columns(pd.concat(points)), TRIED)


def _points(tried: pd.DataFrame, own: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each point that was tried, with its loss on the first seed and, of the best, the mean over all seeds."""
    by_seed = tried.pivot(index="settings", columns="seed", values="loss")
    found = pd.DataFrame({"first_loss": by_seed[TUNING[0]], "tuning_loss": by_seed.mean(axis=1, skipna=False)}).reset_index()
    chosen = own[own["way"] == "tuned"].iloc[0]
    is_chosen = found["settings"] == chosen["settings"]
    edges = chosen["edges"] if isinstance(chosen["edges"], str) else ""
    return found.assign(chosen=is_chosen, edges=np.where(is_chosen, edges, ""))


def _in_columns(points: pd.DataFrame) -> pd.DataFrame:
    """Return the points with a column for each knob."""
    knobs = pd.DataFrame([_flat(json.loads(each)) for each in points["settings"]], index=points.index)
    found = pd.concat([points.drop(columns="settings"), knobs], axis=1)
    return found[["megabits", "workers", "system", *knobs.columns, "first_loss", "tuning_loss", "chosen", "edges"]]


def _flat(settings: Settings) -> Settings:
    """Return the settings with one number for each knob: two of them are pairs of numbers.

    >>> _flat({"rate": 0.1, "outer": [0.5, 0.7]})
    {'rate': 0.1, 'momentum': 0.5, 'outer_rate': 0.7}
    """
    found: Settings = {}
    for name, value in settings.items():
        parts = {"outer": ("momentum", "outer_rate"), "averaging": ("temperature", "longest")}.get(name)
        found |= dict(zip(parts, value, strict=True)) if parts else {name: value}
    return found


def _case_measured(case: Case, system: str) -> str:
    """Tune a system in a case, and report it; where a worker is slow, also with the setting tuned where all are alike."""
    path = _path(case, system)
    if path.is_file():
        return path.stem
    found, tried = _tuned(case, system)
    _write(tried, _path(case, system, "-tried"))
    facts: dict[str, Any] = {"tuning_loss": found.value, "edges": " ".join(found.edges)}
    tables = [_reported(case, system, found.settings).assign(way="tuned", **facts)]
    if case.slow:
        settings = _chosen(Case(case.megabits), system)
        tables.append(_reported(case, system, settings, looks=2).assign(way="unforeseen"))
    _write(pd.concat(tables), path)
    return path.stem


def _tuned(case: Case, system: str) -> tuple[Tuned, pd.DataFrame]:
    """Return the chosen setting of a system in a case, and the losses of all points that were tried."""
    tried = list[dict[str, Any]]()

    def loss(some: Sequence[Settings], seeds: Sequence[int]) -> NDArray[np.float64]:
        losses = _ends(case, system, some, seeds)
        for settings, own in zip(some, losses, strict=True):
            words = _words(settings)
            tried.extend({"settings": words, "seed": seed, "loss": each} for seed, each in zip(seeds, own, strict=True))
        return losses

    return tuned(loss, SYSTEMS[system].knobs, POINTS, KEPT, TUNING), pd.DataFrame(tried)


def _one_setting_measured(system: str) -> str:
    """Run one setting of a system in all cases of bigrams: the one that is least above the best of each case."""
    path = DONE / f"one-setting-{system}.csv"
    if not path.is_file():
        some = [case for slow in (False, True) for case in cases(slow) if case.megabits != NARROW]
        setting = one_setting({case.name: pd.read_csv(_tried(case, system)) for case in some})
        tables = [_with_setting(case, system, setting).assign(case=case.name) for case in some]
        _write(pd.concat(tables), path)
    return path.stem


def one_setting(tried: dict[str, pd.DataFrame]) -> str:
    """Return the setting whose loss is on average least above the best of each case, of those tried in all cases.

    Args:
        tried: by case, the losses of all points that were tried.
    """
    first = pd.DataFrame({case: own[own["seed"] == TUNING[0]].set_index("settings")["loss"] for case, own in tried.items()})
    common = (first - first.min()).dropna()
    return str(common.mean(axis=1).idxmin())


def _with_setting(case: Case, system: str, setting: str) -> pd.DataFrame:
    """Return the losses with a setting, which need no further run if it is the one that was chosen in the case."""
    known = pd.read_csv(_path(case, system if case.slow else SYSTEMS[system].if_alike or system))
    own = known[(known["way"] == "tuned") & (known["settings"] == setting)]
    return own if len(own) else _reported(case, system, json.loads(setting), looks=2)


def _path(case: Case, system: str, more: str = "") -> Path:
    return DONE / f"{case.name}-{system}{more}.csv"


def _tried(case: Case, system: str) -> Path:
    return _path(case, system if case.slow else SYSTEMS[system].if_alike or system, "-tried")


def _chosen(case: Case, system: str) -> Settings:
    """Return the settings that were chosen where all workers are alike."""
    own = pd.read_csv(_path(case, SYSTEMS[system].if_alike or system))
    settings: Settings = json.loads(own["settings"].iloc[0])
    return settings


def _words(settings: Settings) -> str:
    return json.dumps(settings)


def _run(case: Case, system: str, some: Iterable[Settings], seeds: Sequence[int], looks: int) -> fred.Result:
    runs = {f"point-{number}": SYSTEMS[system].run(settings) for number, settings in enumerate(some)}
    return fred.run(fred.scenario(case.settings | {"evaluate": {"points": looks}}, seeds=list(seeds), runs=runs))


def _column(system: str) -> str:
    return "replicas_loss" if SYSTEMS[system].own_models else "loss"


def _ends(case: Case, system: str, some: Sequence[Settings], seeds: Sequence[int]) -> NDArray[np.float64]:
    """Return the losses at the end [settings, seeds]."""
    summary = _run(case, system, some, seeds, 2).summary
    by_seed = summary.pivot(index="name", columns="seed", values=_column(system))
    return by_seed.loc[[f"point-{number}" for number in range(len(some))], list(seeds)].to_numpy(float)


def _reported(case: Case, system: str, settings: Settings, looks: int = LOOKS) -> pd.DataFrame:
    """Return the losses over time with the seeds that had no part in the choice."""
    result, tables = _run(case, system, [settings], REPORTED, looks), []
    for outcome in result.outcomes:
        seen = outcome.metrics[["virtual_seconds", _column(system), "loss"]].set_axis(["seconds", "loss", "mean_loss"], axis=1)
        tables.append(seen.assign(seed=outcome.seed))
    return pd.concat(tables).assign(settings=_words(settings))


def _goodput(result: fred.Result) -> pd.DataFrame:
    """Return the number of gradients that learners made, and that of gradients in answers to the server."""
    heard = [each.schedule["weight"][each.schedule.rows(Verb.ADD)].sum() / FRAGMENTS for each in result.outcomes]
    return result.summary[["name", "seed", "gradients_applied", "loss"]].assign(heard=heard)
