"""The page: what the paper reports, what FRED measures, whether they agree."""

import math
from typing import Any

import pandas as pd

from fred.prediction.elfving import expected_normal_order_statistics
from reproductions.common import table
from reproductions.cutoff import convergence, regime
from reproductions.cutoff.cluster import CHANGE
from reproductions.cutoff.regime import below, recovered, saved, shares
from reproductions.cutoff.text import TEXT

_CLAIMS = ("paper", "FRED", "agrees")
_WINDOWS = {"all": (1, 200), "slow node": (1, CHANGE - 1), "61 to 90": (CHANGE, CHANGE + 29), "from 85": (85, 200)}
_LOSSES = (0.5, 0.3, 0.2, 0.15)


def text(training: Any, rounds: pd.DataFrame, coverage: pd.DataFrame, curves: pd.DataFrame) -> str:
    """All of cutoff.md."""
    return TEXT.format(
        facts=table(_CLAIMS, _facts(training)),
        throughput=table(_CLAIMS, _throughput(rounds)),
        rules=table(["rule", *(f"{name}, of the oracle" for name in _WINDOWS), "near the maximum again from"], _rules(rounds)),
        profiles=table(_CLAIMS, _profiles(coverage, rounds)),
        convergence=table(_CLAIMS, _convergence(curves)),
        plain=_times(curves, "sgd"),
        adam=_times(curves, "adam"),
        adam_said=_adam(curves),
        static=int(training["static"]),
        near=f"{regime.NEAR:.0%}",
        steady=regime.STEADY,
        rates=convergence.RATES,
    )


def _yes(agrees: object) -> str:
    return "yes" if agrees else "**no**"


def _facts(training: Any) -> list[list[object]]:
    mean, deviation, slowest = training["mean"], training["deviation"], training["slowest"]
    largest = mean + deviation * expected_normal_order_statistics(convergence.WORKERS)[-1]
    idle = slowest - mean
    return [
        ["run-times: mean 1.057 s, deviation 0.393 s", f"{mean:.3f} s, {deviation:.3f} s (calibrated)", "–"],
        ["largest of 158 independent normal times: 2.1063 s", f"{largest:.4f} s", _yes(abs(largest / 2.1063 - 1) < 0.01)],
        ["so a worker idles 1.049 s on average", f"recorded: {idle:.3f} s", _yes(abs(idle / 1.049 - 1) < 0.15)],
    ]


def _throughput(rounds: pd.DataFrame) -> list[list[object]]:
    slow, after, late = (shares(rounds, *_WINDOWS[name]) for name in ("slow node", "61 to 90", "from 85"))
    few, again = below(rounds, "dmm", CHANGE, 85), recovered(rounds, "dmm")
    known = [each for each in again if each]
    reduced = saved(rounds, 1, CHANGE - 1), saved(rounds, CHANGE, 200)
    return [
        [
            "a node is slow: waiting for all is far below the maximum",
            f"{slow['all']:.2f} of the oracle's throughput",
            _yes(slow["all"] < 0.75),
        ],
        ["the learned cutoff is near it", f"`dmm`: {slow['dmm']:.3f}", _yes(slow["dmm"] > regime.NEAR)],
        [
            "after the change at 61 it is suboptimal for a few iterations only",
            f"`dmm`: {few:.1f} of the 25 to 85 are below {regime.NEAR:.0%}",
            _yes(few <= 5),
        ],
        [
            "and near the maximum after 85",
            f"`dmm`: {late['dmm']:.3f}, near again from {_list(again)}",
            _yes(late["dmm"] > regime.NEAR and len(known) == len(again) and max(known, default=0) <= 85),
        ],
        [
            "iterations become shorter in both regimes",
            f"by {reduced[0]:.0%}, then {reduced[1]:.0%}",
            _yes(min(reduced) > 0.05),
        ],
        [
            "the model, as printed, has learned both regimes",
            f"`dmm-printed`: {slow['dmm-printed']:.2f}, then {late['dmm-printed']:.3f}",
            _yes(min(slow["dmm-printed"], late["dmm-printed"]) > regime.NEAR),
        ],
        [
            "times are not independent and normal, so Elfving does not suffice",
            f"{slow['Elfving']:.2f} with a slow node, {after['Elfving']:.3f} without",
            _yes(slow["Elfving"] < slow["dmm"] - 0.05),
        ],
    ]


def _list(iterations: list[int | None]) -> str:
    return ", ".join("never" if each is None else str(each) for each in iterations)


def _rules(rounds: pd.DataFrame) -> list[list[object]]:
    windows = [shares(rounds, *window) for window in _WINDOWS.values()]
    return [
        [f"`{name}`", *(f"{window[name]:.3f}" for window in windows), _list(recovered(rounds, name))] for name in regime.RULES
    ]


def _profiles(coverage: pd.DataFrame, rounds: pd.DataFrame) -> list[list[object]]:
    small, large = (coverage[coverage["workers"] == workers] for workers in (158, 2175))
    within, error, ratio, idle = (
        [part[name].mean() for part in (small, large)] for name in ("within", "error", "ratio", "saved")
    )
    slow = small[small["iteration"] < CHANGE]
    without = (slow["c"] <= 118).mean()
    return [
        [
            "both models predict well: observed order statistics are within ± 2 deviations",
            f"158: {within[0]:.0%} of them; 2,175: {within[1]:.0%}",
            _yes(min(within) > 0.8),
        ],
        ["", f"mean error of one: {error[0]:.1%}; {error[1]:.1%}", _yes(max(error) < 0.05)],
        [
            "the cutoff is set to proceed without exceptionally slow workers",
            f"in {without:.0%} of the 60 iterations with a slow node c is at most 118, the workers of the others",
            _yes(without > 0.95),
        ],
        [
            "a large chunk of idle time is saved",
            f"158: iterations {idle[0]:.0%} shorter; 2,175: {idle[1]:.0%}",
            _yes(min(idle) > 0.2),
        ],
        ["", f"throughput of the oracle's: {ratio[0]:.3f}; {ratio[1]:.3f}", "–"],
    ]


def _convergence(curves: pd.DataFrame) -> list[list[object]]:
    end = {run: convergence.last(curves, "sgd", run) for run in convergence.RUNS}
    goal, others = end["sync"]["loss"], convergence.SYNCHRONOUS
    times = {run: convergence.reached(curves, "sgd", run, goal) for run in convergence.RUNS}
    said = {run: f"{run} {_after(times[run])}" for run in times}
    losses = {run: end[run]["loss"] for run in end}
    updates = {run: end[run]["updates"] for run in end}
    static = f"{said['cutoff']}, {said['static']}; at the end {losses['cutoff']:.4f} and {losses['static']:.4f}"
    return [
        [
            "cutoff reaches a lower loss faster than the other synchronous methods, order and sync",
            f"loss {goal:.3f} after: {said['cutoff']}, " + ", ".join(said[run] for run in others),
            _yes(all(not times["cutoff"] >= times[run] for run in others)),
        ],
        [
            "and the lowest loss",
            f"at the end: cutoff {losses['cutoff']:.4f}, " + ", ".join(f"{run} {losses[run]:.4f}" for run in others),
            _yes(losses["cutoff"] < min(losses[run] for run in others)),
        ],
        [
            "and finishes faster",
            f"updates in 400 s: cutoff {updates['cutoff']:.0f}, " + ", ".join(f"{run} {updates[run]:.0f}" for run in others),
            _yes(updates["cutoff"] > max(updates[run] for run in others)),
        ],
        [
            "a dynamic cutoff improves substantially over a static one (abstract; not in the figure)",
            f"loss {goal:.3f} after: {static}",
            _yes(times["cutoff"] < times["static"] and losses["cutoff"] < 0.98 * losses["static"]),
        ],
        [
            "Hogwild is faster than cutoff in wall-clock time (text; not so the caption)",
            f"loss {goal:.3f} after: {said['wild']}",
            _yes(times["wild"] < times["cutoff"]),
        ],
        [
            "but converges to a higher loss",
            f"at the end: wild {losses['wild']:.4f}, cutoff {losses['cutoff']:.4f}",
            _yes(losses["wild"] > losses["cutoff"]),
        ],
    ]


def _after(seconds: float) -> str:
    return "more than 400 s" if math.isnan(seconds) else f"{seconds:.0f} s"


def _times(curves: pd.DataFrame, optimizer: str) -> str:
    """When each run first came down to some losses, s, and where it was at the end."""
    rows = []
    for run in convergence.RUNS:
        times = [convergence.reached(curves, optimizer, run, loss) for loss in _LOSSES]
        end = convergence.last(curves, optimizer, run)
        cells = ["–" if math.isnan(time) else f"{time:.0f}" for time in times]
        rows.append([run, *cells, f"{end['updates']:.0f}", f"{end['loss']:.4f}", f"{end['error']:.2%}"])
    return table(["run", *(f"s to loss {loss:g}" for loss in _LOSSES), "updates", "last loss", "last error"], rows)


def _adam(curves: pd.DataFrame) -> str:
    end = {run: convergence.last(curves, "adam", run)["loss"] for run in convergence.RUNS}
    ahead = end["cutoff"] < min(end[run] for run in convergence.SYNCHRONOUS)
    where = "ends below order and sync as well" if ahead else "does not end below both order and sync"
    return (
        f"With Adam cutoff {where}: {end['cutoff']:.4f} against "
        f"{end['order']:.4f} and {end['sync']:.4f}; best static ends at {end['static']:.4f}, wild at {end['wild']:.4f}."
    )
