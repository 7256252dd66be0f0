"""The page's tables and text."""

import math
from pathlib import Path

import pandas as pd

from reproductions.backup_workers import convergence, iterations, smaller, staleness
from reproductions.backup_workers.claims import ASKED, Files, measured
from reproductions.common import table
from reproductions.verdicts import read, tables

CLAIMS = read(Path(__file__).parent)


def text(files: Files) -> str:
    """The whole page."""
    mnist = iterations.table_of(files.reached)
    rows = [[str(n), f"{updates:,.0f}", f"{updates / mnist[100]:.2f}"] for n, updates in mnist.items()]
    return TEXT.format(
        layers=_layers(files.layers),
        stale=_percent(_by_lag(files.stale), "staleness"),
        ramp=_percent(smaller.ends(files.smaller, "ramp"), "run"),
        iterations=table(["N", "updates to the error", "of those with N = 100"], rows),
        plans=table(["iterations", "best N", "b", "time, of N = 100"], _plans(files)),
        target=f"{100 * files.reached['error'].iloc[0]:g} %",
        seeds=files.reached["seed"].nunique(),
        rates=_rates(files.smaller),
        ends=table(*_ends(files.curves)),
        eight=f"{100 * convergence.TARGET:g} %",
        runs=files.curves["seed"].nunique(),
        until=f"{files.curves['virtual_seconds'].max():g}",
        clipping=_percent(smaller.ends(files.smaller, "clipping"), "run"),
        **tables(CLAIMS, measured(files)),
    )


def _layers(layers: pd.DataFrame) -> str:
    columns = [(latency, asked) for asked in ASKED for latency in staleness.LATENCIES]
    means = {key: staleness.by_layer(layers[layers["latency"] == key[0]], key[1]) for key in columns}
    rows = [
        [str(layer), f"{paper:.1f}", *(f"{means[key][layer]:.1f}" for key in columns)]
        for layer, paper in staleness.PAPER.items()
    ]
    heads = [f"{asked.replace('-', ' ')}, {1000 * latency:g} ms" for latency, asked in columns]
    return table(["layer", "paper: mean", *heads], rows)


def _by_lag(stale: pd.DataFrame) -> smaller.Table:
    means = staleness.by_lag(stale) / 100
    return {str(lag): dict(zip(map(float, map(str, means)), row, strict=True)) for lag, *row in means.itertuples()}


def _percent(errors: smaller.Table, what: str) -> str:
    """Errors, %, of what stands in each row by rate."""
    rates = list(next(iter(errors.values())))
    rows = [[name, *(f"{100 * own[rate]:.2f}" for rate in rates)] for name, own in errors.items()]
    return table([what, *(f"rate {rate:g}" for rate in rates)], rows)


def _plans(files: Files) -> list[list[str]]:
    rows = []
    for name, found in iterations.plans(files.reached, files.arrived).items():
        best = int(found.waited_for[found.best])
        relative = found.seconds[found.best] / found.seconds[-1]
        rows.append([name, str(best), str(found.workers - best), f"{relative:.2f}"])
    return rows


def _rates(measured: pd.DataFrame) -> str:
    own = measured[measured["experiment"] == "figure7"].sort_values("updates")
    rows = []
    for rate, each in own.groupby("rate"):
        first = each[each["error"] <= _HIGH]["updates"].min()
        rows.append([f"{rate}", f"{100 * each['error'].iloc[-1]:.2f} %", "–" if math.isnan(first) else f"{first:,.0f}"])
    return table(["initial rate", "error at the end", f"updates to {100 * _HIGH:g} %"], rows)


def _ends(curves: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    best = convergence.ends(curves)
    rows = []
    for workers in convergence.WORKERS:
        for method in ("sync", "async"):
            own, epochs = best[method, workers], convergence.epochs(curves, method, workers)
            seconds = "–" if math.isnan(own.seconds) else f"{own.seconds:.0f}"
            row = [
                f"{method}, {workers}",
                f"{own.gamma:g}",
                f"{own.error:.4f}",
                seconds,
                f"{epochs.needed:.0f}",
                f"{epochs.seconds:.2f}",
            ]
            rows.append(row)
    return ["run", "gamma", "error at the end", "s to the target", "epochs to it", "s an epoch"], rows


_HIGH = 0.05  # an error that every rate should come to


TEXT = """# Backup workers (Chen, Pan, Monga, Bengio, Jozefowicz 2017)

Made by `make reproduce` (this part alone: `python -m reproductions backup_workers`; without the training, `--timing`) from
`scenarios/backup-workers/` and the CSV files beside this page. What every claim of the paper came to stands at the end.

**Scaled down**: MNIST and a 784-100-10 network in place of ImageNet and Inception; as many workers as the paper. Of compute
times the paper shows pictures and says a few numbers, so the cluster is made up: log-normal times, slower or faster phases
of the whole cluster, and rare delays with a heavy tail. **Calibrated**, on the numbers of section 3.1 that the table of claims
marks: medians, deviations, and how many delays. Nothing was calibrated on iterations, optima, errors or times to an error.

## Table 1: staleness by layer

40 workers, 19 layers of equal size on servers of their own, gradients sent layer by layer as they are computed; timing only.
What the paper does not say is chosen freely here: how long a message takes (5 ms; with other times one seed), and whether
layers are asked for all together or, as FRED does unless told otherwise, one after the other.

{layers}

The top layer's staleness follows from these choices, the bottom layer's does not. A third of a gradient's time is the forward
pass: if all layers are asked for together when it begins, the top layer's gradient is sent a third of the time after it was
read. That layer 12 is fresher than the top one follows from no such order; layers that are not equally long were not tried.

## Figure 2: error by simulated staleness

MNIST, batches of 32, a moving average, a rate that is annealed at the end, and a staleness that grows slowly at first, all as
in the paper, which takes 0.1, and lower rates with 20 updates and more; here every staleness has every rate. **Scaled down**:
one hidden layer in place of a CNN with augmentation, and 5 epochs in place of 25. Errors in %:

{stale}

Two of five epochs at a constant rate, ramped up as above (`ramped`) or stale from the first update on (`sudden`), three seeds:

{ramp}

![figure 2 and table 1](backup-workers-figure2.svg)

## Figures 3 and 4: when the k-th of 100 gradients arrives

If workers were late independently of each other, and 30 % of the last gradients came within 2 s, so would 88 % of the 98th: the
paper's 80 % says that some iterations are slow for everybody.

![figures 3 and 4](backup-workers-figure4.svg)

## Figure 5: iterations against N

Until {target} of the test images are misclassified; one example for each gradient (the paper has 32), so N in each update; the
learning rate is linear in N, as there. {seeds} seeds. Of the paper's five N only the iterations of 50 and 100 are printed.

{iterations}

## Figure 6: time against N, of 100 workers

Iterations x mean time of the N-th arrival, as `fred plan` does it. The paper interpolates linearly; with N = 70, 80 and 90
known, too, that is nearer to least + noise / N than a line from 50 to 100 is.

{plans}

![figures 5 and 6](backup-workers-figure6.svg)

## Table 2 and figure 7: initial rates

N = 100 and b = 6 as there, one example for each gradient, rates that fall by 0.94 in two epochs, 30 epochs, a moving average,
one seed. The table's own numbers are not in the text that was available. The paper's 1.125 is a quarter of 4.5; here the best
of the rates is compared with a quarter of it, at errors 1.2, 1.05 and 1.0 times that with which the best one ends. Rates above
0.8 were not tried.

{rates}

## Figure 8: Sync-Opt with backup workers against Async-Opt

Rates are gamma N for Sync-Opt and gamma for Async-Opt, as in the paper; each has the better of two gammas. {until} s of
virtual time on the same cluster, batches of 8, {runs} seed; time to an error of {eight}. Constant rates, plain steps and no
moving average: the paper decays them and uses RMSProp. An epoch is, as there, an update of Sync-Opt, and N of Async-Opt.

{ends}

![figure 8](backup-workers-figure8.svg)

## Appendix A.3: clipping

53 workers, RMSProp with a decay of 0.9 and momentum 0.9, batches of 8, 12,000 gradients, three seeds; clipped to a norm of 1.
The rate of synchronous runs is multiplied by the 50 gradients of an update. Errors in %:

{clipping}

## Every claim

{measured}

Not tried:

{untried}

{counts}
"""
