"""Table 1: what rare late replies cost who waits for everything, and who does not. Timing only."""

from typing import Any

import pandas as pd

import fred
from fred.results import figures
from reproductions.common import RESULTS, ROOT, quiet

PAPER = {"sync": 199.97, "push-28": 164.97, "push-28-pull-90": 139.95, "push-20-pull-75": 136.54}
RULES = ("drop", "keep")  # what workers do with late blocks: the paper's rule, and another
CALIBRATED = ("push-28-pull-90", "push-20-pull-75")
SCENARIOS = ROOT / "scenarios" / "psp-sgd"
TIMES = RESULTS / "psp-times.csv"


def measure() -> None:
    """A few minutes."""
    frames = []
    for rule in RULES:
        settings = [f"runs.{name}.protocol.late_blocks={rule}" for name in PAPER]
        summary = quiet(fred.load(SCENARIOS / "table1.yaml", settings)).summary
        columns = ["name", "seed", "updates", "virtual_seconds", "gradients_applied", "gradients_dropped"]
        frames.append(summary[columns].assign(late_blocks=rule))
    pd.concat(frames).to_csv(TIMES, index=False)


def ratios(times: pd.DataFrame, rule: str) -> pd.DataFrame:
    """Of each seed and run, the time in that of waiting for everything."""
    seconds = times[times["late_blocks"] == rule].pivot(index="seed", columns="name", values="virtual_seconds")
    return seconds.div(seconds["sync"], axis=0)


def picture(times: pd.DataFrame) -> figures.Picture:
    """Bars: the paper's ratios and FRED's."""
    bars: dict[str, Any] = {"paper": {name: seconds / PAPER["sync"] for name, seconds in PAPER.items()}}
    bars |= {f"FRED, late blocks: {rule}": ratios(times, rule).mean() for rule in RULES}
    colours = (figures.COLOURS[7], *figures.COLOURS)
    with figures.style():
        drawn = figures.Picture(figsize=(6, 3), layout="constrained")
        axis = drawn.subplots()
        for place, (colour, (label, own)) in enumerate(zip(colours, bars.items(), strict=False)):
            heights = [own[name] for name in PAPER]
            axis.barh([number + 0.27 * (place - 1) for number in range(len(PAPER))], heights, 0.25, color=colour, label=label)
        axis.set(yticks=range(len(PAPER)), yticklabels=list(PAPER), xlabel="run time / that of waiting for everything")
        axis.invert_yaxis()
        drawn.legend(loc="outside lower center", ncols=3)
    return drawn
