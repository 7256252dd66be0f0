"""Claims of the text without a figure: ramps and larger rates (section 2.1), initial rates (table 2), clipping (A.3)."""

from collections.abc import Sequence

import pandas as pd

import fred
from reproductions.backup_workers.arrivals import SCENARIOS
from reproductions.common import REPORTED, RESULTS, Seeds, run, say

SMALLER = RESULTS / "backup-workers-smaller.csv"
GUESSING = 0.5  # an error: the run has been lost
Table = dict[str, dict[float, float]]  # by run and rate


def measure() -> None:
    """Write errors of the last look, and of every look of figure 7: twenty minutes on a core."""
    file = _file(add=False)
    for name in ("ramp", "clipping", "figure7"):
        file.add(run_scenario(name), "%.6g")
    add_seeds()


def add_seeds() -> None:
    """Run figure 7 with the best rate and a quarter of it on those reported seeds that the file lacks."""
    file = _file(add=True)
    if seeds := file.missing(REPORTED, experiment="figure7"):
        file.add(rerun_best(best_rate(pd.read_csv(SMALLER)), seeds), "%.6g")


def _file(add: bool) -> Seeds:
    return Seeds(SMALLER, ("experiment", "run", "rate"), add)


def run_scenario(name: str, settings: Sequence[str] = (), rates: Sequence[float] = ()) -> pd.DataFrame:
    """Return the experiment, run, rate, seed, updates and error of the looks of a scenario.

    Args:
        name: of the scenario.
        settings: changes of it.
        rates: to run; empty: all.
    """
    scenario = fred.load(SCENARIOS / f"{name}.yaml", settings)
    rate_of = {key: point.values["algorithm.learning_rate"] for key, point in scenario.points.items()}
    points = [point for point, rate in rate_of.items() if not rates or rate in rates]
    result = run(scenario, f"backup-workers/{name}" + ("-again" if rates else ""), points)
    metrics = result.metrics.sort_values("updates", kind="stable")
    looks = metrics if name == "figure7" else metrics.groupby(["run", "seed"], sort=False).tail(1)
    runs = [scenario.points[point].of for point in looks["run"]]
    say(f"backup workers: {name}")
    return looks[["seed", "updates", "error"]].assign(
        experiment=name, run=runs, rate=[rate_of[point] for point in looks["run"]]
    )


def rerun_best(best: float, seeds: Sequence[int] = REPORTED) -> pd.DataFrame:
    """Run figure 7 with the best rate and with a quarter of it.

    Args:
        best: rate.
        seeds: others than those of the grid.
    """
    return run_scenario("figure7", [f"seeds={list(seeds)}"], (best, best / 4))


def best_rate(smaller: pd.DataFrame) -> float:
    """Return the rate of figure 7's grid with the lowest error at the end."""
    ends = last_errors(smaller).drop(index=list(REPORTED), errors="ignore")
    return float(str(ends.mean().idxmin()))


def ends(smaller: pd.DataFrame, experiment: str) -> Table:
    """Return the errors at the end, means over the seeds."""
    rows = smaller[smaller["experiment"] == experiment]
    return _table(rows, rows["error"])


def lost_shares(smaller: pd.DataFrame, experiment: str) -> Table:
    """Return the share of the seeds that ended at an error near guessing."""
    rows = smaller[smaller["experiment"] == experiment]
    return _table(rows, rows["error"] > GUESSING)


def learning_rates(errors: dict[float, float]) -> list[float]:
    """Return the rates that end at an error below guessing."""
    return [rate for rate, error in errors.items() if error < GUESSING]


def _table(rows: pd.DataFrame, values: "pd.Series[float] | pd.Series[bool]") -> Table:
    result: Table = {}
    means = values.groupby([rows["run"], rows["rate"]], sort=False).mean()
    for name, rate, mean in means.rename("mean").reset_index().itertuples(index=False):
        result.setdefault(name, {})[rate] = mean
    return result


def reported(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the reported seeds [seeds, rates]."""
    return table[table.index.isin(REPORTED)]


def updates_to_error(smaller: pd.DataFrame, error: float) -> pd.DataFrame:
    """Return the updates of figure 7's runs until this error is reached [seeds, rates]; NaN if it never is."""
    rows = smaller[smaller["experiment"] == "figure7"]
    reached = rows["updates"].where(rows["error"] <= error)
    return reached.groupby([rows["seed"], rows["rate"]]).min().unstack("rate")


def last_errors(smaller: pd.DataFrame) -> pd.DataFrame:
    """Return the errors at the end of figure 7's runs [seeds, rates]."""
    rows = smaller[smaller["experiment"] == "figure7"].sort_values("updates")
    return rows.groupby(["seed", "rate"])["error"].last().unstack("rate")
