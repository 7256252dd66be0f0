"""Figures 3 and 4 and the errors of table 1: without late replies, with them, and where every reply takes another time."""

import pandas as pd

import fred
from fred.views import figures
from fred.views.figures import plain_logarithmic
from fred.views.view import marks
from reproductions.common import RESULTS, Seeds, last_values, run
from reproductions.psp.times import LATE, PUNCTUAL, SCENARIOS

PAPER = {"sync": 0.1479, "push-7": 0.1609, "push-7-pull-90": 0.1565, "push-5-pull-75": 0.2914}  # of 28, 90 %, 20 and 75 %
SEPARATE = ("push-5", "pull-75")
RUNS = (*PAPER, *SEPARATE)
SPREAD = "replies that all differ"
ERRORS = RESULTS / "psp-errors.csv"
_SPREAD = (
    "cluster.network.pull_latency.components=[{name: lognormal, median: 0.1, sigma: 0.5}, {name: constant, seconds: 4.001}]"
)
CONDITIONS = {LATE: [], PUNCTUAL: ["cluster.network.pull_latency=null"], SPREAD: [_SPREAD]}
_ONLY = {LATE: RUNS, PUNCTUAL: tuple(PAPER), SPREAD: ("sync", "push-7-pull-90", "push-5-pull-75", "pull-75")}
_SEEDS = {
    LATE: range(1, 6),
    PUNCTUAL: range(1, 6),
    SPREAD: range(1, 11),
}  # a small b changes the error by less than the seeds do
_FOLDERS = {LATE: "late", PUNCTUAL: "even", SPREAD: "spread"}


def measure(add: bool = False) -> None:
    """Measure the errors of each run at each look: ten minutes on two cores; with `add` only seeds that the file lacks."""
    measured = Seeds(ERRORS, ("condition", "run"), add)
    for condition, settings in CONDITIONS.items():
        if seeds := measured.missing(_SEEDS[condition], condition=condition):
            scenario = fred.load(SCENARIOS / "errors.yaml", [*settings, f"seeds={seeds}"])
            result = run(scenario, f"psp/errors-{_FOLDERS[condition]}", _ONLY[condition])
            metrics = result.metrics[["run", "seed", "virtual_seconds", "updates", "error", "loss"]]
            measured.add(metrics.assign(condition=condition), "%.6g")


def ends(errors: pd.DataFrame, condition: str, column: str = "error") -> pd.DataFrame:
    """Return the last values: a row for each seed, a column for each run."""
    return last_values(errors[errors["condition"] == condition], column, "updates")


def picture(errors: pd.DataFrame) -> figures.Picture:
    """Draw errors against virtual time, a panel for each condition: figure 3 and 4, and one that is not the paper's."""
    with figures.style():
        figure = figures.Picture(figsize=(9.6, 3.2), layout="constrained")
        for axis, condition in zip(figure.subplots(1, 3, sharey=True), (PUNCTUAL, LATE, SPREAD), strict=True):
            for number, (colour, name) in enumerate(zip(figures.COLOURS, RUNS, strict=False)):
                curve = errors[(errors["condition"] == condition) & (errors["run"] == name)]
                if curve.empty:
                    continue
                mean = curve.groupby("updates")[["virtual_seconds", "error"]].mean()
                dashes = "-" if number < len(PAPER) else "--"
                axis.plot(mean["virtual_seconds"], mean["error"], dashes, color=colour, label=name, **marks(colour))
            axis.set(title=condition, xlabel="virtual time, s")
            plain_logarithmic(axis, "y")
        figure.axes[0].set_ylabel("error")
        figure.legend(*figure.axes[1].get_legend_handles_labels(), loc="outside lower center", ncols=6)
    return figure
