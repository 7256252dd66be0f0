"""The data for the curves of the HTML report: for each run the mean over the seeds and their range, along each axis."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.outcomes import sweeps
from fred.outcomes.tables import Tables
from fred.schedule.schedule import Schedule
from fred.views.table import NONE

AXES = {
    "virtual_seconds": "virtual time, s",
    "updates": "updates",
    "gradients": "gradients",
    "tokens": "tokens",
    "megabytes": "sent, MB",
    "cost": "cost",
    "energy_kwh": "energy, kWh",
}
_QUANTITIES = {
    "error": "error",
    "loss": "loss",
    "perplexity": "perplexity",
    "gradient_norm": "norm of the gradient",
    "replicas_error": "replicas' error",
    "replicas_loss": "replicas' loss",
    "disagreement": "disagreement of workers' models",
}
_COUNTED = {"gradients": "gradients", "updates": "updates"}  # quantities of runs without a task
_NUMBERS = 60_000  # numbers on the page, of about seven letters each
_MOST, _FEWEST = 160, 12  # points of a curve
_RUNS, _LINES = 48, 24  # largest numbers of runs, and of lines of a sweep


def curves(tables: Tables) -> dict[str, Any]:
    """Return the axes and quantities with their labels, and the points of each run along each axis.

    The points are x, and for each quantity its mean, least and largest value over the seeds. A curve ends where the first of
    its seeds ends. If there are many runs or evaluations, evenly spaced points are taken.

    Args:
        tables: the tables of the runs; only the first 48 runs are drawn.
    """
    frames: dict[str, list[pd.DataFrame]] = {}
    sent: dict[str, NDArray[np.float64]] = {}  # by timing
    names = list(dict.fromkeys(each.name for each in tables.outcomes))
    for each in (outcome for outcome in tables.outcomes if outcome.name in names[:_RUNS]):
        if each.schedule_digest not in sent:
            sent[each.schedule_digest] = megabytes(each.schedule)
        metrics, known = each.metrics, sent[each.schedule_digest]
        at = np.clip(metrics["updates"].to_numpy(np.int64), 0, len(known) - 1)
        frames.setdefault(each.name, []).append(metrics.assign(megabytes=known[at]))
    everything = [frame for own in frames.values() for frame in own]
    axes = {name: label for name, label in AXES.items() if any(_varies(frame, name) for frame in everything)}
    learned = {name: label for name, label in _QUANTITIES.items() if any(_varies(frame, name) for frame in everything)}
    quantities = learned or _COUNTED
    number = int(np.clip(_NUMBERS / max(1, len(frames) * len(axes) * (1 + 3 * len(quantities))), _FEWEST, _MOST))
    drawn = {
        name: {axis: _curve(own, axis, list(quantities), number) for axis in axes if all(_varies(each, axis) for each in own)}
        for name, own in frames.items()
    }
    return {"axes": axes, "quantities": quantities, "runs": drawn, "points": number, "of": len(names)}


def megabytes(schedule: Schedule) -> NDArray[np.float64]:
    """Return the total traffic at the time of each update, MB, [updates + 1]; the first entry, 0, is before any update.

    Args:
        schedule: the schedule of any run; if parameters are in blocks, an update is complete when all blocks are updated.
    """
    sent = np.cumsum(schedule["bytes"].astype(np.float64)) / 1e6
    return np.concatenate(([0.0], sent[schedule.ledger.every_update[schedule.blocks - 1 :: schedule.blocks]]))


def _varies(frame: pd.DataFrame, name: str) -> bool:
    if name not in frame:
        return False
    known = frame[name].to_numpy(np.float64)
    return bool(np.isfinite(known).any() and (name in _QUANTITIES or np.nanmax(known) > 0))


def _curve(seeds: Sequence[pd.DataFrame], axis: str, quantities: list[str], number: int) -> dict[str, Any]:
    """Return the mean, least and largest value over the seeds, at points where some seed was evaluated."""
    reach = min(float(own[axis].max()) for own in seeds)
    known = np.unique(np.concatenate([own[axis].to_numpy(np.float64) for own in seeds]))
    known = known[known <= reach]
    x = known[np.unique(np.linspace(0, len(known) - 1, number).round().astype(int))]
    curve: dict[str, Any] = {"x": numbers(x)}
    for quantity in quantities:
        own = [each for each in seeds if quantity in each]
        if len(own) < len(seeds):
            continue
        values = np.stack([_at(x, each, axis, quantity) for each in own])
        curve[quantity] = [numbers(part) for part in (values.mean(axis=0), values.min(axis=0), values.max(axis=0))]
        if len(own) == 1:
            curve[quantity] = curve[quantity][:1]
    return curve


def _at(x: NDArray[np.float64], own: pd.DataFrame, axis: str, quantity: str) -> NDArray[np.float64]:
    """Interpolate a quantity at `x` between its evaluations; if several are at one point, the last counts."""
    last = own[~own[axis].duplicated(keep="last")]
    with np.errstate(invalid="ignore"):
        return np.interp(x, last[axis].to_numpy(np.float64), last[quantity].to_numpy(np.float64))


def numbers(values: NDArray[np.float64]) -> list[float | int | None]:
    """Return numbers for JSON: rounded to five digits (six from 10,000 on), and None for those that are not finite.
    >>> numbers(np.array([0.1234567, 40.0, np.inf]))
    [0.12346, 40, None]
    """
    rounded = [
        float(f"{value:.6g}" if abs(value) >= 10_000 else f"{value:.5g}") if np.isfinite(value) else None for value in values
    ]
    return [int(value) if value is not None and value.is_integer() and abs(value) < 2**53 else value for value in rounded]


def sweep(tables: Tables) -> dict[str, Any] | None:
    """Return the criterion at every point against the numeric setting with the most values.

    Return None if there is no sweep, or no numeric setting in it. There is one line for each run and combination of the other
    settings, and at most 24 lines.

    Args:
        tables: the tables of the runs.
    """
    if not tables.swept:
        return None
    points = tables.sweep
    keys = sweeps.keys_of(points)
    numeric = {key: points[key].nunique() for key in keys if pd.api.types.is_numeric_dtype(points[key])}
    if not numeric or max(numeric.values()) < 2:
        return None
    along = max(numeric, key=lambda key: numeric[key])
    others = ["run", *(key for key in keys if key != along)]
    lines = {}
    for values, own in points.dropna(subset=[along]).groupby(others, sort=False, dropna=False):
        settings = zip(others[1:], sweeps.said(values[1:]), strict=True)
        words = [f"{key.rsplit('.', 1)[-1]} {value}" for key, value in settings if value != NONE]
        found = own.sort_values(along)
        bands = [numbers(found[part].to_numpy(np.float64)) for part in ("mean", "least", "largest")]
        x = numbers(found[along].to_numpy(np.float64))
        lines[", ".join([str(values[0]), *words])] = {"value": {"x": x, "criterion": bands}}
    swept = np.unique(points[along].dropna().to_numpy(np.float64))
    return {
        "axes": {"value": along},
        "quantities": {"criterion": tables.scenario.criterion.column.replace("_", " ")},
        "runs": dict(list(lines.items())[:_LINES]),
        "points": 0,
        "geometric": bool(len(swept) > 2 and swept[0] > 0 and swept[-1] > 20 * swept[0]),
    }
