"""Time against cost: the runs, or points of sweeps, of which no other is both faster and cheaper."""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from fred.base.errors import FredError
from fred.outcomes.tables import Tables

_ENDS = {"target_seconds": ("target_cost", "target_energy_kwh"), "virtual_seconds": ("cost_total", "energy_kwh")}


def trade_off(tables: Tables) -> pd.DataFrame:
    """Return the mean time and cost of each run, or point of a sweep, until the target; without one until the end.

    Points that are not finite for all seeds are left out, such as those that missed the target. If everything is free, the
    cost is the energy, kWh.

    Columns: run, point (its name), seconds, cost, front (True if no other point is both faster and cheaper). `attrs["time"]`
    and `attrs["cost"]` are their columns of the summary. Raises FredError if no run has prices.

    Args:
        tables: the tables of the runs.
    """
    summary = tables.summary
    time = next(name for name in _ENDS if name in summary)
    known = [name for name in _ENDS[time] if name in summary]
    if not known:
        raise FredError("nothing has a cost: the scenario has no `cluster.prices`")
    cost = next((name for name in known if (summary[name].astype(float) > 0).any()), known[0])
    points = tables.scenario.points
    rows = [
        {
            "run": points[str(name)].of if name in points else str(name),
            "point": str(name),
            "seconds": means[0],
            "cost": means[1],
        }
        for name, own in summary.groupby("name", sort=False)
        if np.isfinite(means := own[[time, cost]].to_numpy(np.float64).mean(axis=0)).all()
    ]
    found = pd.DataFrame(rows, columns=["run", "point", "seconds", "cost"])
    found = found.assign(front=not_dominated(found["seconds"], found["cost"]))
    found.attrs = {"time": time, "cost": cost}
    return found


def not_dominated(seconds: ArrayLike, cost: ArrayLike) -> NDArray[np.bool_]:
    """Return True for points on the Pareto front: no other is at least as fast and as cheap, and better in one of them.

    Args:
        seconds, cost: time and cost of each point [points].

    >>> not_dominated([1.0, 2.0, 3.0, 3.0], [5.0, 4.0, 4.0, 1.0]).tolist()
    [True, True, False, True]
    """
    seconds, cost = np.asarray(seconds, np.float64), np.asarray(cost, np.float64)
    order = np.lexsort((cost, seconds))
    least = np.minimum.accumulate(np.concatenate(([np.inf], cost[order])))
    front = np.zeros(len(order), bool)
    front[order] = cost[order] < least[:-1]
    return front | np.array([any((seconds[front] == s) & (cost[front] == c)) for s, c in zip(seconds, cost, strict=True)], bool)
