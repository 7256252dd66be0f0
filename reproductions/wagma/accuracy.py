"""Figure 5 and the ablations: errors after the same number of steps."""

from collections.abc import Sequence

import pandas as pd

import fred
from fred.views import figures
from fred.views.figures import plain_logarithmic
from fred.views.view import marks
from reproductions.common import RESULTS, Seeds, last_values, run
from reproductions.wagma.throughput import SCENARIOS

ERRORS = RESULTS / "wagma-errors.csv"
SCENARIO = SCENARIOS / "figure5.yaml"
RATE = 0.8  # of the scenario
LOWER = 0.2  # with one seed
STEPS = 400  # of each worker
SEEDS = range(1, 21)  # errors differ by some per cent between seeds, and systems by little more


def measure(add: bool = False) -> None:
    """Measure errors of the mean of all models, and means of the models' own errors, at each look and both rates."""
    measured = Seeds(ERRORS, ("rate", "run"), add)
    lower = [f"runs.{name}.algorithm.learning_rate={LOWER}" for name in fred.load(SCENARIO).runs]
    for rate, settings, folder, seeds in (RATE, [], "figure5", SEEDS), (LOWER, lower, "figure5-lower", SEEDS[:1]):
        if missing := measured.missing(seeds, rate=rate):
            rows = errors_of([*settings, f"seeds={missing}"], folder)
            measured.add(rows.assign(rate=rate), "%.6g")


def errors_of(settings: Sequence[str], folder: str, runs: Sequence[str] = (), code: Sequence[str] = ()) -> pd.DataFrame:
    """Return the errors of some runs of the scenario at each look, by run and seed.

    Args:
        settings: changes of the scenario.
        folder: name of the result.
        runs: names; none for all.
        code: modules that the scenario may name.
    """
    metrics = run(fred.load(SCENARIO, settings, code), f"wagma/{folder}", runs).metrics
    replicas = metrics["replicas_error"] if "replicas_error" in metrics else metrics["error"]
    replicas = replicas.fillna(metrics["error"])  # where all have one model
    return metrics[["run", "seed", "gradients", "virtual_seconds", "error"]].assign(replicas_error=replicas)


def ends(errors: pd.DataFrame, rate: float = RATE) -> pd.DataFrame:
    """Return, by run as means over the seeds, the last errors, and the distance of a seed's error from that of the mean
    model.
    """
    last = errors[errors["rate"] == rate].sort_values("gradients").groupby(["run", "seed"], sort=False).last()
    means = last.groupby("run", sort=False)[["error", "replicas_error"]].mean()
    spread = last.groupby("run", sort=False)["error"].agg(lambda values: (values - values.mean()).abs().max())
    return means.assign(spread=spread).reindex(list(dict.fromkeys(errors["run"])))


def by_seed(errors: pd.DataFrame, column: str = "error") -> pd.DataFrame:
    """Return the last values at the scenario's rate: a row for each seed, a column for each run."""
    return last_values(errors[errors["rate"] == RATE], column, "gradients")


def picture(errors: pd.DataFrame) -> figures.Picture:
    """Draw the mean model's error against gradients, at the scenario's rate."""
    errors = errors[errors["rate"] == RATE]
    with figures.style():
        figure = figures.Picture(figsize=(9.6, 3.4), layout="constrained")
        axis = figure.subplots()
        for number, (name, rows) in enumerate(errors.groupby("run", sort=False)):
            looks = rows.assign(look=rows.sort_values("gradients").groupby("seed").cumcount())
            mean = looks.groupby("look")[["gradients", "error"]].mean()
            dashes = "-" if number < len(figures.COLOURS) else "--"
            colour = figures.COLOURS[number % len(figures.COLOURS)]
            axis.plot(mean["gradients"], mean["error"], dashes, color=colour, label=str(name), **marks(colour))
        axis.set(xlabel="gradients of all workers", ylabel="test error of the mean model")
        plain_logarithmic(axis, "y")
        figure.legend(loc="outside right center")
    return figure
