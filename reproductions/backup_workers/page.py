"""The page's tables and text."""

import math
from itertools import pairwise

import pandas as pd

from reproductions.backup_workers import arrivals, convergence, iterations
from reproductions.common import Claim, claims, near, table

RATIO = iterations.PAPER[100] / iterations.PAPER[50]


def text(arrived: pd.DataFrame, reached: pd.DataFrame, curves: pd.DataFrame) -> str:
    """The whole page."""
    mnist = iterations.table_of(reached)
    rows = [[str(n), f"{updates:,.0f}", f"{updates / mnist[100]:.2f}"] for n, updates in mnist.items()]
    return TEXT.format(
        stragglers=claims(_stragglers(arrived)),
        iterations=table(["N", "updates to the error", "of those with N = 100"], rows),
        halves=claims(_halves(mnist)),
        plans=table(["iterations", "best N", "b", "time, of N = 100"], _plans(reached, arrived)),
        optimum=claims(_optimum(reached, arrived)),
        target=f"{100 * reached['error'].iloc[0]:g} %",
        seeds=reached["seed"].nunique(),
        ends=table(*_ends(curves)),
        order=claims(_order(curves)),
        eight=f"{100 * convergence.TARGET:g} %",
        runs=curves["seed"].nunique(),
        until=f"{curves['virtual_seconds'].max():g}",
    )


def _stragglers(arrived: pd.DataFrame) -> list[Claim]:
    means = arrivals.means(arrived)
    under = arrived.groupby("k")["under"].mean()
    between = ((means >= 1.4) & (means <= 1.8)).mean()
    longest = arrived["longest"].max()
    return [
        ("98th gradient there within 2 s", "80 %", f"{under[98]:.0%}", abs(under[98] - 0.80) < 0.03, "yes"),
        ("last gradient there within 2 s", "30 %", f"{under[100]:.0%}", abs(under[100] - 0.30) < 0.03, "yes"),
        ("mean times between 1.4 and 1.8 s", "most", f"{between:.0%} of k", between > 0.5, "yes"),
        ("longest time", "310 s", f"{longest:.0f} s", None, "no"),
        ("mean time of the last, of the 97th", "grows exponentially", f"{means[99] / means[96]:.2f}", None, "no"),
    ]


def _halves(mnist: dict[int, float]) -> list[Claim]:
    ratio = mnist[100] / mnist[50]
    steps = [mnist[n] for n in sorted(mnist)]
    falls = all(a > b for a, b in pairwise(steps))
    return [
        ("iterations at N = 100, of those at 50", f"{RATIO:.2f}", f"{ratio:.2f}", near(ratio, RATIO, 0.15), "no"),
        ("iterations fall with every N", "yes", "yes" if falls else "no", falls, "no"),
    ]


def _plans(reached: pd.DataFrame, arrived: pd.DataFrame) -> list[list[str]]:
    rows = []
    for name, found in iterations.plans(reached, arrived).items():
        best = int(found.waited_for[found.best])
        relative = found.seconds[found.best] / found.seconds[-1]
        rows.append([name, str(best), str(found.workers - best), f"{relative:.2f}"])
    return rows


def _optimum(reached: pd.DataFrame, arrived: pd.DataFrame) -> list[Claim]:
    rows: list[Claim] = []
    for name, found in iterations.plans(reached, arrived).items():
        best = int(found.waited_for[found.best])
        agrees = abs(best - iterations.BEST) <= 2
        rows.append((f"converges first, {name}", "N = 96, b = 4", f"N = {best}, b = {100 - best}", agrees, "no"))
    return rows


def _ends(curves: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    best = convergence.ends(curves)
    rows = []
    for workers in convergence.WORKERS:
        for method in ("sync", "async"):
            own = best[method, workers]
            seconds = "–" if math.isnan(own.seconds) else f"{own.seconds:.0f}"
            rows.append([f"{method}, {workers}", f"{own.gamma:g}", f"{own.error:.4f}", seconds])
    return ["run", "gamma", "error at the end", "s to the target"], rows


def _order(curves: pd.DataFrame) -> list[Claim]:
    best = convergence.ends(curves)
    paper = {53: "3 h slower", 106: "6 h faster", 212: "18 h faster"}
    rows: list[Claim] = []
    for workers in convergence.WORKERS:
        sync, late = best["sync", workers], best["async", workers]
        better = sync.error < late.error
        gap = f"{100 * (late.error - sync.error):+.2f} points"
        rows.append((f"Sync-Opt ends more accurate, {workers} workers", "by about 0.5 points", gap, better, "no"))
    for workers in convergence.WORKERS:
        first, second = best["sync", workers].seconds, best["async", workers].seconds
        sooner = not math.isnan(first) and (math.isnan(second) or first < second)
        said = f"{_seconds(first)} against {_seconds(second)}"
        rows.append((f"Sync-Opt converges, {workers} workers", paper[workers], said, sooner == (workers > 53), "no"))
    return rows


def _seconds(value: float) -> str:
    return "never" if math.isnan(value) else f"{value:.0f} s"


TEXT = """# Backup workers (Chen, Pan, Monga, Bengio, Jozefowicz 2017)

Made by `make reproduce` (this part alone: `python -m reproductions backup_workers`; without the training, `--timing`) from
`scenarios/backup-workers/` and the CSV files beside this page.

**Scaled down**: MNIST and a 784-100-10 network in place of ImageNet and Inception; as many workers as the paper. Of compute
times the paper shows pictures and says a few numbers, so the cluster is made up: log-normal times, slower or faster phases
of the whole cluster, and rare delays with a heavy tail. **Calibrated**, on the numbers of section 3.1 that the first table
marks: medians, deviations, and how many delays. Nothing was calibrated on iterations, optima, errors or times to an error.

## Figures 3 and 4: when the k-th of 100 gradients arrives

{stragglers}

"Agrees" means within 3 percentage points. The paper does not say of how many iterations 310 s is the longest. If workers were
late independently of each other, and 30 % of the last gradients came within 2 s, so would 88 % of the 98th: the paper's 80 %
says that some iterations are slow for everybody.

![figures 3 and 4](backup-workers-figure4.svg)

## Figure 5: iterations against N

Until {target} of the test images are misclassified; one example for each gradient (the paper has 32), so N in each update; the
learning rate is linear in N, as there. {seeds} seeds.

{iterations}

{halves}

"Agrees" means within 15 %. Of the paper's five N only the iterations of 50 and 100 are printed.

## Figure 6: time against N, of 100 workers

Iterations x mean time of the N-th arrival, as `fred plan` does it. The paper interpolates linearly; with N = 70, 80 and 90
known, too, that is nearer to least + noise / N than a line from 50 to 100 is.

{plans}

{optimum}

"Agrees" means within two workers. The times of the arrivals are calibrated (above), the optimum is not.

![figures 5 and 6](backup-workers-figure6.svg)

## Figure 8: Sync-Opt with backup workers against Async-Opt

Rates are gamma N for Sync-Opt and gamma for Async-Opt, as in the paper; each has the better of two gammas. {until} s of
virtual time on the same cluster, batches of 8, {runs} seeds; time to an error of {eight}. Constant rates, plain steps and no
moving average: the paper decays them and uses RMSProp.

{ends}

{order}

![figure 8](backup-workers-figure8.svg)
"""
