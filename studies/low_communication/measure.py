"""Search each system's settings in each case with two sets of seeds, and run both choices with other seeds."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import fred
from studies.kit.runs import parts
from studies.kit.study import Study
from studies.kit.tuning import REPORTED, Settings, tuned
from studies.low_communication.cases import CASES
from studies.low_communication.systems import SYSTEMS

STUDY = Study("low_communication", "Which low-communication system where?", ("", "tuning"), core_hours=0.15)
POINTS, FINALISTS = 10, 2  # of each search; tried on its first seed, and of those on its others, too
SEARCHES = {"first": (1, 2, 3), "second": (4, 5, 6)}  # their seeds


def measure() -> None:
    """Measure all parts that have no file, and write the tables."""
    losses = pd.concat(parts(STUDY, of_part, [(case, search) for case in CASES for search in SEARCHES]))
    reported = losses["seed"].isin(REPORTED)
    STUDY.write("", losses[reported].drop(columns=["chosen", "edges"]))
    STUDY.write("tuning", losses[~reported])


def of_part(case: str, search: str) -> pd.DataFrame:
    """Return the losses of all systems in a case: of all points with the seeds of a search, of the chosen ones with others.

    Args:
        case: name.
        search: name.
    """
    tables, choices = [], dict[str, Settings]()
    for name, system in SYSTEMS.items():
        rows = list[dict[str, Any]]()

        def measured(
            points: Sequence[Settings],
            seeds: Sequence[int],
            name: str = name,
            rows: list[dict[str, Any]] = rows,
        ) -> NDArray[np.float64]:
            losses = ends(case, name, points, seeds)
            for settings, values in zip(points, losses, strict=True):
                by_seed = zip(seeds, values.tolist(), strict=True)
                rows.extend({"settings": json.dumps(settings), "seed": seed, "loss": loss} for seed, loss in by_seed)
            return losses

        start = system.start(choices[system.base], CASES[case]) if system.base else None
        best = tuned(measured, system.grid(CASES[case]), POINTS, FINALISTS, SEARCHES[search], start=start)
        choices[name] = best.settings
        measured([best.settings], REPORTED)
        table = pd.DataFrame(rows)
        winners = table["settings"] == json.dumps(best.settings)
        tables.append(table.assign(system=name, chosen=winners, edges=np.where(winners, " ".join(best.edges), "")))
    return pd.concat(tables).assign(case=case, search=search)


def ends(case: str, system: str, points: Sequence[Settings], seeds: Sequence[int]) -> NDArray[np.float64]:
    """Return the losses at the end [settings, seeds].

    Args:
        case: name.
        system: name.
        points: settings.
        seeds: of the runs.
    """
    runs = {f"point-{number}": SYSTEMS[system].run(settings) for number, settings in enumerate(points)}
    summary = fred.run(fred.scenario(CASES[case].settings, seeds=list(seeds), runs=runs)).summary
    return summary.pivot(index="name", columns="seed", values="loss").loc[list(runs), list(seeds)].to_numpy(float)
