"""Table 1: what rare late replies cost who waits for everything, and who does not. Timing only."""

import pandas as pd

import fred
from fred.results import figures
from reproductions.common import RESULTS, ROOT, quiet

PAPER = {"sync": 199.97, "push-28": 164.97, "push-28-pull-90": 139.95, "push-20-pull-75": 136.54}
KEEPING = "-keep"  # runs whose workers keep late blocks, instead of dropping them as in the paper
CALIBRATED = ("push-28-pull-90", "push-20-pull-75")
SCENARIOS = ROOT / "scenarios" / "psp-sgd"
TIMES = RESULTS / "psp-times.csv"


def measure() -> None:
    """Two minutes or three."""
    summary = quiet(fred.load(SCENARIOS / "table1.yaml")).summary
    columns = ["name", "seed", "updates", "virtual_seconds", "gradients_applied", "gradients_dropped"]
    summary[columns].to_csv(TIMES, index=False)


def ratios(times: pd.DataFrame) -> "pd.Series[float]":
    """Of each run, the time in that of waiting for everything, mean over the seeds."""
    seconds = times.pivot(index="seed", columns="name", values="virtual_seconds")
    return seconds.div(seconds["sync"], axis=0).mean()


def picture(times: pd.DataFrame) -> figures.Picture:
    """Bars: the paper's ratios and FRED's."""
    means = ratios(times)
    bars = {
        "paper": {name: seconds / PAPER["sync"] for name, seconds in PAPER.items()},
        "FRED": {name: means[name] for name in PAPER},
        "FRED, late blocks kept": {name: means.get(name + KEEPING, means[name]) for name in PAPER},
    }
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
