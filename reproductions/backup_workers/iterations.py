"""Figures 5 and 6: iterations to an error by how many gradients are averaged, and from them the time."""

import numpy as np
import pandas as pd

import fred
from fred.diagnosis.backup_workers import Plan, iterations_of, plan
from fred.views import figures
from fred.views.view import marks
from reproductions.backup_workers.arrivals import SCENARIOS, means
from reproductions.common import RESULTS, run, store

ITERATIONS = RESULTS / "backup-workers-iterations.csv"
PAPER = {50: 137.5e3, 100: 76.2e3}  # section 3.1; figure 5 also has N = 70, 80, 90, of which no numbers are printed
BEST = 96  # figure 6


def measure() -> None:
    """Run figure 5."""
    record(run(fred.load(SCENARIOS / "figure5.yaml"), "backup-workers/figure5"))


def record(result: fred.Result) -> None:
    """Write the updates to the target of each run and seed."""
    iterations_of(result.outcomes)  # refuses runs that did not get there
    summary = result.summary
    waited_for = summary["name"].str.removeprefix("n-").astype(int)
    columns = {"n": waited_for, "seed": summary["seed"], "updates": summary["target_updates"], "error": summary["target_error"]}
    store(ITERATIONS, pd.DataFrame(columns), None)


def table_of(reached: pd.DataFrame) -> dict[int, float]:
    """Return the mean updates to the target over the seeds, by N."""
    return {int(str(n)): float(updates) for n, updates in reached.groupby("n")["updates"].mean().items()}


def plans(reached: pd.DataFrame, arrived: pd.DataFrame) -> dict[str, Plan]:
    """Return the time with N of 100 workers, by the source of the iterations."""
    times = means(arrived)
    return {
        "the paper's two iterations, a line between them": plan(times, PAPER),
        "the paper's two iterations, least + noise / N": plan(times, PAPER, "fitted"),
        "MNIST's iterations, lines between them": plan(times, table_of(reached)),
        "MNIST's iterations, least + noise / N": plan(times, table_of(reached), "fitted"),
    }


def picture(reached: pd.DataFrame, arrived: pd.DataFrame) -> figures.Picture:
    """Draw figure 5 at the left, iterations relative to N = 100; figure 6 at the right, times relative to the best."""
    with figures.style():
        figure = figures.Picture(figsize=(9.6, 3.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        mnist = table_of(reached)
        for colour, marker, (label, table) in zip(
            figures.COLOURS, "os", (("paper", PAPER), ("FRED, MNIST", mnist)), strict=False
        ):
            left.plot(list(table), np.array(list(table.values())) / table[100], marker, color=colour, label=label)
        left.set(xlabel="N", ylabel="iterations, of those with N = 100", ylim=(0.9, None))
        left.legend()
        for colour, (name, estimate) in zip(figures.COLOURS, plans(reached, arrived).items(), strict=False):
            drawable = estimate.waited_for >= min(PAPER)
            relative = estimate.seconds / estimate.seconds[estimate.best_index]
            label = f"{name}: best {estimate.waited_for[estimate.best_index]}"
            right.plot(estimate.waited_for[drawable], relative[drawable], color=colour, label=label, **marks(colour))
        right.axvline(BEST, color="#5B5B5B", linestyle=":")
        right.set(
            xlabel="N, of 100 workers (dotted: the paper's best)", ylabel="time to the target, of the best", ylim=(0.95, 1.6)
        )
        figure.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure
