"""The page's tables and text."""

import math
from itertools import pairwise
from typing import NamedTuple

import pandas as pd

from reproductions.backup_workers import arrivals, convergence, iterations, staleness
from reproductions.common import Claim, claims, near, table

RATIO = iterations.PAPER[100] / iterations.PAPER[50]


class Measured(NamedTuple):
    """What the CSV files hold."""

    layers: pd.DataFrame
    stale: pd.DataFrame
    arrived: pd.DataFrame
    reached: pd.DataFrame
    curves: pd.DataFrame


def text(measured: Measured) -> str:
    """The whole page."""
    layers, stale, arrived, reached, curves = measured
    mnist = iterations.table_of(reached)
    rows = [[str(n), f"{updates:,.0f}", f"{updates / mnist[100]:.2f}"] for n, updates in mnist.items()]
    return TEXT.format(
        layers=_layers(layers),
        trend=claims(_trend(layers)),
        stale=claims(_stale(stale)),
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


def _layers(layers: pd.DataFrame) -> str:
    runs = list(layers["run"].unique())
    means = {name: staleness.by_layer(layers, name) for name in runs}
    rows = [
        [str(layer), f"{paper:.1f}", *(f"{means[name][layer]:.1f}" for name in runs)]
        for layer, paper in staleness.PAPER.items()
    ]
    return table(["layer", "paper: mean", *(f"FRED: {name.replace('-', ' ')}" for name in runs)], rows)


def _trend(layers: pd.DataFrame) -> list[Claim]:
    means = staleness.by_layer(layers, "at-once")
    top, bottom = float(means[18]), float(means[0])
    falls = all(below >= above for below, above in pairwise(means))  # from the bottom up
    papers = staleness.PAPER
    return [
        ("mean staleness of the top layer", f"{papers[18]:.1f}", f"{top:.1f}", near(top, papers[18], 0.1), "no"),
        ("mean staleness of the bottom layer", f"{papers[0]:.1f}", f"{bottom:.1f}", near(bottom, papers[0], 0.1), "no"),
        ("grows from the top down", "but for layer 12", "in every layer" if falls else "not in every layer", None, "no"),
    ]


def _stale(stale: pd.DataFrame) -> list[Claim]:
    means = staleness.by_lag(stale)
    usual = float(means.columns[0])
    rows: list[Claim] = []
    for lag in (20, 50):
        papers = f"{staleness.ERROR[lag]} % in place of {staleness.ERROR[0]} %"
        for rate in means:
            old, fresh = means[rate][lag], means[rate][0]
            what = f"a staleness of {lag} makes the error worse, at rate {rate}"
            agrees = bool(old > fresh) if rate == usual else None
            rows.append((what, papers if rate == usual else "–", f"{old:.2f} % in place of {fresh:.2f} %", agrees, "no"))
    best = means.min(axis=1)
    order = bool(best[50] > best[20] > best[0])
    said = ", ".join(f"{best[lag]:.2f} %" for lag in (0, 20, 50))
    rows.append(("staleness 0, 20 and 50, each with its best rate", "0.36 %, 0.47 %, 0.79 %", said, order, "no"))
    return rows


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

## Table 1: staleness by layer

40 workers, 19 layers of equal size on servers of their own, gradients sent layer by layer as they are computed, 5 ms for each
message; timing only.

{layers}

{trend}

"Agrees" means within 10 %. A third of a gradient's time is the forward pass: if all layers are asked for together when it
begins, the top layer's gradient is sent a third of the time after it was read. That layer 12 is fresher than the top one
follows from no such order; layers that are not equally long were not tried.

## Figure 2: error by simulated staleness

MNIST, batches of 32, a moving average, a rate that is annealed at the end, and a staleness that grows slowly at first, all as
in the paper, which takes 0.1, and lower rates with 20 updates and more; here every staleness has every rate. **Scaled down**:
one hidden layer in place of a CNN with augmentation, and 5 epochs in place of 25, so the errors themselves are not compared.

{stale}

Where a rate is low enough for old gradients, they do as well as fresh ones; where it is not, the error goes to that of
guessing, as the paper found. What staleness costs is the rate, and so the time.

![figure 2 and table 1](backup-workers-figure2.svg)

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
virtual time on the same cluster, batches of 8, {runs} seed; time to an error of {eight}. Constant rates, plain steps and no
moving average: the paper decays them and uses RMSProp.

{ends}

{order}

![figure 8](backup-workers-figure8.svg)
"""
