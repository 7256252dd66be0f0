"""Odena 2016, figures 1 and 2: FASGD against SASGD on MNIST; and how much of the margin is the initialisation's."""

from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd

import fred
from fred.specification.loading import Scenario
from fred.views import figures
from fred.views.view import marks
from reproductions.common import RESULTS, ROOT, run, say, store

SCENARIOS = ROOT / "scenarios" / "fasgd"
FIGURE_1 = ("128x1", "32x4", "16x8", "4x32")  # workers x batch size
FIGURE_2 = ("250x128", "500x128", "1000x128", "10000x128")
FIGURES = {1: FIGURE_1, 2: FIGURE_2}
ALGORITHMS = ("fasgd", "sasgd", "fasgd-std")
INITIALISATIONS = {"N(0, 1)": "standard_normal", "scaled": "he_normal"}
PUBLISHED = ("fasgd", "sasgd")  # the paper gives no rate for the other one
UPDATES = 100_000
SEEDS = (1, 2, 3)  # for figure 1; figure 2 has the first only
CURVES = RESULTS / "fasgd-curves.csv"
TUNING = RESULTS / "fasgd-tuning.csv"

# Read off the paper's figures at 100,000 updates (docs/errata.md, item 5).
PAPER = {
    "128x1": {"fasgd": 0.12, "sasgd": 0.185},
    "32x4": {"fasgd": 0.065, "sasgd": 0.10},
    "16x8": {"fasgd": 0.045, "sasgd": 0.085},
    "4x32": {"fasgd": 0.035, "sasgd": 0.06},
}


def measure() -> None:
    """Write the errors of every candidate rate, and the curves of every run: an hour or two on two cores."""
    tuning = _tuning(run(fred.load(SCENARIOS / "rates.yaml"), "fasgd/rates"))
    store(TUNING, tuning, None)
    best_rates = choose_rates(tuning).set_index(["initialisation", "algorithm"])["rate"]
    frames = []
    for initialisation, rates, number, algorithm in product(INITIALISATIONS, ("published", "chosen"), FIGURES, ALGORITHMS):
        if rates == "published" and algorithm not in PUBLISHED:
            continue
        rate = float(best_rates[initialisation, algorithm]) if rates == "chosen" else None
        scenario, runs = figure(number, initialisation, algorithm, rate)
        name = f"figure{number}-{_slug(initialisation)}-{rates}-{algorithm}"
        result = run(scenario, f"fasgd/{name}", only=runs)
        metrics = result.metrics.assign(initialisation=initialisation, rates=rates, algorithm=algorithm)
        metrics["configuration"] = metrics["run"].str.rsplit("-", n=1).str[1]
        metrics["rate"] = result.scenario.runs[runs[0]].algorithm.learning_rate
        frames.append(metrics.drop(columns=["run", "virtual_seconds", "gradients"]))
        say(name)
    store(CURVES, pd.concat(frames))


def _tuning(result: fred.Result) -> pd.DataFrame:
    """Return the error of each candidate: initialisation, algorithm, rate, configuration, error."""
    swept = result.sweep
    names = {option: name for name, option in INITIALISATIONS.items()}
    algorithm, configuration = swept["run"].str.rsplit("-", n=1).str[0], swept["run"].str.rsplit("-", n=1).str[1]
    return pd.DataFrame(
        {
            "initialisation": swept["task.model.initialisation"].map(names),
            "algorithm": algorithm,
            "rate": swept["algorithm.learning_rate"],
            "configuration": configuration,
            "error": swept["mean"],
        }
    )


def choose_rates(tuning: pd.DataFrame) -> pd.DataFrame:
    """Return, for each initialisation and algorithm, the candidate with the lowest mean error over figure 1's
    configurations.
    """
    means = tuning.groupby(["initialisation", "algorithm", "rate"])["error"].mean().reset_index()
    return means.loc[means.groupby(["initialisation", "algorithm"])["error"].idxmin()]


def figure(number: int, initialisation: str, algorithm: str, rate: float | None) -> tuple[Scenario, list[str]]:
    """Return the scenario of a figure and its runs of one algorithm, with the published rate or another one."""
    base, _, variant = algorithm.partition("-")
    runs = [f"{base}-{configuration}" for configuration in FIGURES[number]]
    settings = [f"task.model.initialisation={INITIALISATIONS[initialisation]}"]
    settings += [f"seeds={list(SEEDS)}"] if number == 1 else []
    settings += [f"runs.{name}.algorithm.variant={variant}" for name in runs if variant]
    settings += [f"runs.{name}.algorithm.learning_rate={rate!r}" for name in runs if rate is not None]
    return fred.load(SCENARIOS / f"figure{number}.yaml", settings), runs


def draw(curves: pd.DataFrame) -> None:
    """Draw figures 1 and 2, with both initialisations, published and chosen rates."""
    for number, configurations in FIGURES.items():
        for initialisation, rates in product(INITIALISATIONS, ("published", "chosen")):
            rows = curves[(curves["initialisation"] == initialisation) & (curves["rates"] == rates)]
            picture = _picture(rows[rows["configuration"].isin(configurations)], configurations)
            picture.save(RESULTS / f"fasgd-figure{number}-{_slug(initialisation)}-{rates}.svg")


class Errors(NamedTuple):
    """Errors at the end of the curves, or the number of updates to an error."""

    curves: pd.DataFrame

    def last_errors(self, initialisation: str, rates: str, algorithm: str, configuration: str) -> "pd.Series[float]":
        """Return the last errors by seed."""
        rows = self._select(initialisation, rates, algorithm, configuration)
        return rows[rows["updates"] == UPDATES].set_index("seed")["error"]

    def mean(self, initialisation: str, rates: str, algorithm: str, configuration: str) -> float:
        """Return the last error, mean over the seeds."""
        return float(self.last_errors(initialisation, rates, algorithm, configuration).mean())

    def published(self, algorithm: str, configuration: str) -> float:
        """Return the last error with the published code's initialisation and rates."""
        return self.mean("N(0, 1)", "published", algorithm, configuration)

    def ratio(self, configuration: str) -> float:
        """Return SASGD's error over FASGD's, as published."""
        return self.published("sasgd", configuration) / self.published("fasgd", configuration)

    def margin(self, initialisation: str, rates: str, configurations: tuple[str, ...], algorithm: str = "fasgd") -> float:
        """Return the margin by which the algorithm ends below SASGD, mean over configurations."""
        errors, sasgd_errors = ([self.mean(initialisation, rates, a, c) for c in configurations] for a in (algorithm, "sasgd"))
        return float(np.mean(np.subtract(sasgd_errors, errors)))

    def updates_to_error(self, algorithm: str, configuration: str, error: float) -> float:
        """Return the updates until the mean error over the seeds is no more than this, as published (or NaN)."""
        means = self._select("N(0, 1)", "published", algorithm, configuration).groupby("updates")["error"].mean()
        return float(means[means <= error].index.min())

    def _select(self, initialisation: str, rates: str, algorithm: str, configuration: str) -> pd.DataFrame:
        keys = {"initialisation": initialisation, "rates": rates, "algorithm": algorithm, "configuration": configuration}
        rows = self.curves
        for column, value in keys.items():
            rows = rows[rows[column] == value]
        return rows


def _slug(initialisation: str) -> str:
    return "published" if initialisation.startswith("N") else "scaled"


def _picture(curves: pd.DataFrame, configurations: tuple[str, ...]) -> figures.Picture:
    """Draw a panel for each configuration: error against updates, seeds as thin lines, their mean thick."""
    with figures.style():
        picture = figures.Picture(figsize=(10, 3.1), layout="constrained")
        for axis, configuration in zip(picture.subplots(1, 4, sharey=True), configurations, strict=True):
            for colour, algorithm in zip(figures.COLOURS, ALGORITHMS, strict=False):
                rows = curves[(curves["configuration"] == configuration) & (curves["algorithm"] == algorithm)]
                if rows.empty:
                    continue
                for _, seed in rows.groupby("seed"):
                    axis.plot(seed["updates"] / 1000, seed["error"], color=colour, linewidth=0.5, alpha=0.5)
                mean = rows.groupby("updates")["error"].mean()
                label = f"{algorithm}, rate {rows['rate'].iloc[0]:.3g}"
                axis.plot(mean.index / 1000, mean, color=colour, label=label, **marks(colour))
            workers, batch = configuration.split("x")
            axis.set(title=f"{int(workers):,} workers x batch {batch}", xlabel="updates, thousands", ylim=(0, 0.4))
        axis.figure.axes[0].set_ylabel("validation error")
        picture.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return picture
