"""Figure 4: validation loss on MNIST against virtual time, with plain steps as in the paper and with Adam."""

from itertools import product

import pandas as pd
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

import fred
from fred.views import figures
from fred.views.view import marks
from reproductions.common import RESULTS, Seeds, last_values, say
from reproductions.cutoff.cluster import SCENARIOS

RUNS = ("cutoff", "order", "static", "sync", "oracle", "wild")
SYNCHRONOUS = ("order", "sync")  # those in the paper's figure
RATES = {"sgd": 0.64, "adam": 0.004}
WORKERS = 158
CURVES = RESULTS / "cutoff-curves.csv"
_LABELS = {
    "cutoff": "cutoff (dmm)",
    "order": "order (Elfving)",
    "static": "best static",
    "sync": "sync",
    "oracle": "oracle",
    "wild": "wild (asynchronous)",
}


def measure(static: int, add: bool = False) -> None:
    """Run figure 4: about ten minutes of a core for each seed.

    Args:
        static: best static cutoff.
        add: whether to measure only the seeds that the file lacks.
    """
    measured = Seeds(CURVES, ("optimizer", "run"), add)
    for optimizer, run in product(RATES, RUNS):
        rate = RATES[optimizer] / (WORKERS if run == "wild" else 1)
        settings = [f"algorithm.optimizer={optimizer}", f"algorithm.learning_rate={rate:.6g}"]
        settings.append(f"runs.static.protocol.rule.workers={static}")
        if scenario := measured.load(SCENARIOS / "figure4.yaml", settings, optimizer=optimizer, run=run):
            metrics = fred.run(scenario, only=run).metrics.assign(optimizer=optimizer)
            measured.add(metrics[["optimizer", "run", "seed", "virtual_seconds", "updates", "loss", "error"]], "%.5g")
            say(f"cutoff: figure 4, {optimizer}, {run}: {metrics.groupby('seed')['loss'].last().mean():.3f}")


def time_to_loss(curves: pd.DataFrame, optimizer: str, run: str, loss: float) -> float:
    """Return the time, s, at which the loss, mean over seeds, first reached this value; NaN if it never did."""
    mean = _mean(curves, optimizer, run)
    down = mean.index[mean <= loss]
    return float(down[0]) if len(down) else float("nan")


def ends(curves: pd.DataFrame, optimizer: str, column: str) -> pd.DataFrame:
    """Return the last values: a row for each seed, a column for each run."""
    return last_values(curves[curves["optimizer"] == optimizer], column, "virtual_seconds")


def times_to_sync_loss(curves: pd.DataFrame) -> pd.DataFrame:
    """Return the time, s, at which each run with plain steps reached the last loss of waiting for all, by seed and run."""
    curves, goal = curves[curves["optimizer"] == "sgd"], ends(curves, "sgd", "loss")["sync"]
    reached = curves[curves["loss"] <= curves["seed"].map(goal)]
    return reached.groupby(["run", "seed"])["virtual_seconds"].min().unstack("run").round()


def average_ends(curves: pd.DataFrame, optimizer: str, run: str) -> "pd.Series[float]":
    """Return updates, loss and error at the end, mean over seeds."""
    rows = curves[(curves["optimizer"] == optimizer) & (curves["run"] == run)]
    return rows.groupby("seed")[["updates", "loss", "error"]].last().mean()


def _mean(curves: pd.DataFrame, optimizer: str, run: str) -> "pd.Series[float]":
    rows = curves[(curves["optimizer"] == optimizer) & (curves["run"] == run)]
    return rows.assign(time=rows["virtual_seconds"].round()).groupby("time")["loss"].mean()


def figure4(curves: pd.DataFrame) -> figures.Picture:
    """Draw the seeds' mean, a panel for each optimizer."""
    with figures.style():
        picture = figures.Picture(figsize=(9.5, 4), layout="constrained")
        for axis, (optimizer, title) in zip(
            picture.subplots(1, 2, sharey=True), (("sgd", "plain steps"), ("adam", "Adam")), strict=True
        ):
            for colour, (run, label) in zip(figures.COLOURS, _LABELS.items(), strict=False):
                mean = _mean(curves, optimizer, run)
                dashed = "--" if run == "oracle" else "-"
                width = 2 if run == "cutoff" else 1.2
                axis.plot(mean.index, mean, dashed, color=colour, label=label, linewidth=width, **marks(colour))
            axis.set(title=title, xlabel="virtual time, s", yscale="log")
            axis.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5)))
            axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.yaxis.set_minor_formatter(NullFormatter())
        picture.axes[0].set_ylabel("validation loss")
        picture.legend(*picture.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
    return picture
