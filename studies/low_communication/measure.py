"""Search each system's settings twice in each case, and run both choices on other seeds. Each part has a file."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import fred
from studies.low_communication.cases import Case, cases
from studies.low_communication.systems import SYSTEMS
from studies.tuning import REPORTED, Settings, tuned

POINTS, KEPT = 12, 2  # of each search; tried on the first seed, and of those on the others, too
SEARCHES = {"first": (1, 2, 3), "second": (4, 5, 6)}  # their seeds
ROOT = Path(__file__).parents[2]
DONE = ROOT / "results" / "low-communication"  # a file of each part, from which an interrupted study goes on
LOSSES = ROOT / "results" / "studies" / "low-communication.csv"
TRIED = LOSSES.with_name("low-communication-tuning.csv")


def measure() -> None:
    """Measure all parts that have no file, in the order in which one search begins where another ended."""
    DONE.mkdir(parents=True, exist_ok=True)
    for case in cases():
        for system in SYSTEMS:
            if not _path(case, system).is_file():
                _measure(case, system)
                print(_path(case, system).stem, flush=True)
    collect()


def collect() -> None:
    """Write the tables of all parts that are measured."""
    parts = [(case, system) for case in cases() for system in SYSTEMS if _path(case, system).is_file()]
    for path, more in ((LOSSES, ""), (TRIED, "-tried")):
        _write(pd.concat([pd.read_csv(_path(*part, more), keep_default_na=False) for part in parts]), path)


def _write(table: pd.DataFrame, path: Path) -> None:
    table.to_csv(path, index=False, float_format="%.6g")


def _path(case: Case, system: str, more: str = "") -> Path:
    return DONE / f"{case.transfer}-{'slow' if case.slow else 'alike'}-{system}{more}.csv"


def _measure(case: Case, system: str) -> None:
    facts = {"case": case.name, "system": system}
    searches = [_search(case, system, name).assign(search=name, **facts) for name in SEARCHES]
    found = pd.concat(searches)
    some = [json.loads(settings) for settings in found.loc[found["chosen"], "settings"].unique()]
    losses = [_losses(case, system, settings).assign(settings=_words(settings)) for settings in some]
    _write(found, _path(case, system, "-tried"))
    _write(pd.concat(losses).assign(**facts), _path(case, system))


def _search(case: Case, system: str, search: str) -> pd.DataFrame:
    """Return all points that one search tried, with their losses by seed."""
    tried = list[dict[str, Any]]()

    def measured(some: Sequence[Settings], seeds: Sequence[int]) -> NDArray[np.float64]:
        losses = ends(case, system, some, seeds)
        for settings, by_seed in zip(some, losses, strict=True):
            rows = zip(seeds, by_seed.tolist(), strict=True)
            tried.extend({"settings": _words(settings), "seed": seed, "loss": loss} for seed, loss in rows)
        return losses

    known = SYSTEMS[system]
    start = known.start(chosen(pd.read_csv(_path(case, known.base, "-tried")), search), case) if known.base else None
    found = tuned(measured, known.grid(case), POINTS, KEPT, SEARCHES[search], start)
    table = pd.DataFrame(tried)
    is_chosen = table["settings"] == _words(found.settings)
    return table.assign(chosen=is_chosen, edges=np.where(is_chosen, " ".join(found.edges), ""))


def chosen(tried: pd.DataFrame, search: str) -> Settings:
    """Return the settings that a search chose.

    Args:
        tried: a row for each search, point and seed.
        search: name of the search.
    """
    own = tried[(tried["search"] == search) & tried["chosen"]]
    return {knob: tuple(value) if isinstance(value, list) else value for knob, value in json.loads(own["settings"].iloc[0]).items()}


def _words(settings: Settings) -> str:
    return json.dumps(settings)


def ends(case: Case, system: str, some: Sequence[Settings], seeds: Sequence[int]) -> NDArray[np.float64]:
    """Return the losses at the end [settings, seeds].

    Args:
        case: the case.
        system: name of the system.
        some: settings.
        seeds: of the runs.
    """
    runs = {f"point-{number}": SYSTEMS[system].run(settings) for number, settings in enumerate(some)}
    summary = fred.run(fred.scenario(case.settings, seeds=list(seeds), runs=runs)).summary
    return summary.pivot(index="name", columns="seed", values="loss").loc[list(runs), list(seeds)].to_numpy(float)


def _losses(case: Case, system: str, settings: Settings) -> pd.DataFrame:
    """Return the losses with the seeds that had no part in the choice."""
    return pd.DataFrame({"seed": REPORTED, "loss": ends(case, system, [settings], REPORTED)[0]})
