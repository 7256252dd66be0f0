"""Figure 3 and the errors of table 1, in order: without late replies, and with them."""

import pandas as pd

import fred
from fred.results import figures
from reproductions.common import RESULTS, run
from reproductions.psp.times import SCENARIOS

PAPER = {"sync": 0.1479, "push-7": 0.1609, "push-7-pull-90": 0.1565, "push-5-pull-75": 0.2914}  # of 28, 90 %, 20 and 75 %
ERRORS = RESULTS / "psp-errors.csv"


def measure() -> None:
    """Errors of each run at each look, with and without late replies."""
    frames = []
    for late in (True, False):
        settings = [] if late else ["cluster.network.pull_latency=null"]
        result = run(fred.load(SCENARIOS / "errors.yaml", settings), f"psp/errors-{'late' if late else 'even'}")
        metrics = result.metrics[["run", "seed", "virtual_seconds", "updates", "error", "loss"]]
        frames.append(metrics.assign(late=late))
    pd.concat(frames).to_csv(ERRORS, index=False, float_format="%.6g")


def ends(errors: pd.DataFrame, late: bool) -> pd.DataFrame:
    """Last error and loss of each run, means over the seeds, and the standard error of the first."""
    own = errors[errors["late"] == late].sort_values("updates").groupby(["run", "seed"], sort=False).last()
    by_run = own.groupby("run", sort=False)
    return by_run[["error", "loss"]].mean().assign(standard_error=by_run["error"].sem()).reindex(list(PAPER))


def picture(errors: pd.DataFrame) -> figures.Picture:
    """Errors against virtual time: figure 3 (no late replies) at the left, figure 4 at the right."""
    with figures.style():
        drawn = figures.Picture(figsize=(9.6, 3.2), layout="constrained")
        for axis, late in zip(drawn.subplots(1, 2, sharey=True), (False, True), strict=True):
            for colour, name in zip(figures.COLOURS, PAPER, strict=False):
                own = errors[(errors["late"] == late) & (errors["run"] == name)]
                mean = own.groupby("updates")[["virtual_seconds", "error"]].mean()
                axis.plot(mean["virtual_seconds"], mean["error"], color=colour, label=name)
            axis.set(title="with late replies" if late else "without late replies", xlabel="virtual time, s", yscale="log")
        drawn.axes[0].set_ylabel("error")
        drawn.legend(*drawn.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return drawn
