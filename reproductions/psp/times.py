"""Table 1: the cost of rare late replies with and without waiting for everything. Timing only."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

import fred
from fred.views import figures
from reproductions.common import RESULTS, ROOT, Seeds, quiet, say

PAPER = {"sync": 199.97, "push-28": 164.97, "push-28-pull-90": 139.95, "push-20-pull-75": 136.54}
KEEPING = "-keep"  # runs whose workers keep late blocks, instead of dropping them as in the paper
CALIBRATED = ("push-28-pull-90", "push-20-pull-75")
SCENARIOS = ROOT / "scenarios" / "psp-sgd"
TIMES = RESULTS / "psp-times.csv"
LATE, PUNCTUAL = "late replies", "no late replies"
PARTIAL = "push-28-pull-90"
TIMEOUTS = (0.5, 2.0, 4.1)  # s; the last is longer than any delay
MACHINES = (8, 16)
NEAR = 0.03  # between ratios that agree
GRADIENT = 8.3 * math.exp(0.03**2 / 2)  # s: the mean in the scenario


class Case(NamedTuple):
    """The scenario with something changed."""

    name: str
    runs: Sequence[str]  # none: all
    settings: Sequence[str] = ()


def name_timeouts(seconds: float) -> str:
    """Return the name of a case with time-outs."""
    return f"time-outs of {seconds:g} s"


def name_machines(number: int) -> str:
    """Return the name of a case with fewer machines."""
    return f"{number} machines"


def _timeouts(seconds: float) -> list[str]:
    return [f"runs.{PARTIAL}.protocol.{way}_timeout={seconds}" for way in ("push", "pull")]


def _fewer(number: int) -> list[str]:
    skipped = ("push-28", *CALIBRATED, *(run + KEEPING for run in CALIBRATED))  # not run, but refused with more gradients
    size = [f"cluster.workers={number}", f"cluster.servers={2 * number}"]
    return [*size, *(f"runs.{run}.protocol.gradients={number}" for run in skipped)]


CASES = (
    Case(LATE, ()),
    Case(PUNCTUAL, tuple(PAPER), ("cluster.network.pull_latency=null", "stop.updates=40")),
    *(Case(name_timeouts(seconds), (PARTIAL,), _timeouts(seconds)) for seconds in TIMEOUTS),
    *(Case(name_machines(number), ("sync",), _fewer(number)) for number in MACHINES),
)


def measure(add: bool = False) -> None:
    """Measure all cases: a quarter of an hour; with `add` only the seeds that the file lacks."""
    measured, path = Seeds(TIMES, ("case", "name"), add), SCENARIOS / "table1.yaml"
    for case in CASES:
        for run in case.runs or fred.load(path, case.settings).runs:
            if scenario := measured.load(path, case.settings, case=case.name, name=run):
                columns = ["name", "seed", "updates", "virtual_seconds", "gradients_applied", "gradients_dropped"]
                measured.add(quiet(scenario, (run,)).summary[columns].assign(case=case.name))
        say(f"psp: {case.name}")


def update_times(times: pd.DataFrame, case: str = LATE) -> pd.DataFrame:
    """Return the seconds of an update: a row for each seed, a column for each run."""
    rows = times[times["case"] == case]
    rows = rows.assign(seconds=rows["virtual_seconds"] / rows["updates"])
    return rows.pivot(index="seed", columns="name", values="seconds")


def ratios(times: pd.DataFrame) -> pd.DataFrame:
    """Return the time of each seed and run over that of waiting for all, with late replies."""
    seconds = update_times(times)
    return seconds.div(seconds["sync"], axis=0)


def picture(times: pd.DataFrame) -> figures.Picture:
    """Draw the paper's ratios and FRED's as bars."""
    means = ratios(times).mean()
    bars = {
        "paper": {name: seconds / PAPER["sync"] for name, seconds in PAPER.items()},
        "FRED": {name: means[name] for name in PAPER},
        "FRED, late blocks kept": {name: means.get(name + KEEPING, means[name]) for name in PAPER},
    }
    colours = (figures.COLOURS[7], *figures.COLOURS)
    with figures.style():
        figure = figures.Picture(figsize=(6, 3), layout="constrained")
        axis = figure.subplots()
        for place, (colour, (label, values)) in enumerate(zip(colours, bars.items(), strict=False)):
            heights = [values[name] for name in PAPER]
            axis.barh([number + 0.27 * (place - 1) for number in range(len(PAPER))], heights, 0.25, color=colour, label=label)
        axis.set(yticks=range(len(PAPER)), yticklabels=list(PAPER), xlabel="run time / that of waiting for everything")
        axis.invert_yaxis()
        figure.legend(loc="outside lower center", ncols=3)
    return figure
