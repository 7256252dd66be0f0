"""The page's tables and text."""

from pathlib import Path

import pandas as pd

from reproductions.backup_workers import convergence, epochs, iterations, smaller, staleness
from reproductions.backup_workers.claims import REQUESTS, Files, judge_claims
from reproductions.common import REPORTED, TUNING, table
from reproductions.verdicts import REASONS, format_mean, read_claims, tables

CLAIMS = read_claims(Path(__file__).parent)


def text(files: Files) -> str:
    """Return the page."""
    mnist = iterations.table_of(files.reached)
    rows = [[str(n), f"{updates:,.0f}", f"{updates / mnist[100]:.2f}"] for n, updates in mnist.items()]
    return TEXT.format(
        reasons=REASONS,
        first=staleness.FIRST,
        epochs=epochs.by_bandwidth(files.epochs),
        servers=epochs.SERVERS,
        megabytes=epochs.MODEL_BYTES // 10**6,
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
        gammas=_gammas(files.curves),
        tuning=len(TUNING),
        reported=len(REPORTED),
        many=len(convergence.GAMMAS),
        inside=_inside(files.curves),
        rate_seeds=len(smaller.reported(smaller.last_errors(files.smaller))),
        reported_rates=_reported(files.smaller),
        largest=float(smaller.last_errors(files.smaller).columns.to_numpy().max()),
        until=f"{files.curves['virtual_seconds'].max():g}",
        clipping=_percent(smaller.ends(files.smaller, "clipping"), "run"),
        **tables(CLAIMS, judge_claims(files)),
    )


def _layers(layers: pd.DataFrame) -> str:
    columns = [(latency, request) for request in REQUESTS for latency in staleness.LATENCIES]
    means = {key: staleness.by_layer(layers[layers["latency"] == key[0]], key[1]) for key in columns}
    rows = [
        [str(layer), f"{paper:.1f}", *(f"{means[key][layer]:.1f}" for key in columns)]
        for layer, paper in staleness.PAPER.items()
    ]
    heads = [f"{request.replace('-', ' ')}, {1000 * latency:g} ms" for latency, request in columns]
    return table(["layer", "paper: mean", *heads], rows)


def _by_lag(stale: pd.DataFrame) -> smaller.Table:
    means = staleness.by_lag(stale) / 100
    return {str(lag): dict(zip(map(float, map(str, means)), row, strict=True)) for lag, *row in means.itertuples()}


def _percent(errors: smaller.Table, header: str) -> str:
    """Return a table of errors, %, by run and rate."""
    rates = list(next(iter(errors.values())))
    rows = [[name, *(f"{100 * row_errors[rate]:.2f}" for rate in rates)] for name, row_errors in errors.items()]
    return table([header, *(f"rate {rate:g}" for rate in rates)], rows)


def _plans(files: Files) -> list[list[str]]:
    rows = []
    for name, estimate in iterations.plans(files.reached, files.arrived).items():
        best = int(estimate.waited_for[estimate.best_index])
        relative = estimate.seconds[estimate.best_index] / estimate.seconds[-1]
        rows.append([name, str(best), str(estimate.workers - best), f"{relative:.2f}"])
    return rows


def _rates(measured: pd.DataFrame) -> str:
    """Return the table of all rates, with the seed of the grid."""
    grid = ~measured["seed"].isin(REPORTED)
    return _by_rate(measured[grid])


def _reported(measured: pd.DataFrame) -> str:
    """Return the table of the best rate and of a quarter of it, with other seeds."""
    return _by_rate(measured[measured["seed"].isin(REPORTED)])


def _by_rate(measured: pd.DataFrame) -> str:
    ends, updates_needed = smaller.last_errors(measured), smaller.updates_to_error(measured, _HIGH)
    rows = []
    for rate, errors in ends.items():
        updates = "–" if updates_needed[rate].isna().any() else f"{updates_needed[rate].mean():,.0f}"
        rows.append([f"{rate}", f"{format_mean(100 * errors, '.2f')} %", updates])
    return table(["initial rate", "error at the end", f"updates to {100 * _HIGH:g} %"], rows)


def _gammas(curves: pd.DataFrame) -> str:
    """Return the table of the errors of every gamma, on the seeds on which one was chosen."""
    errors = convergence.tuning_errors(curves).to_dict()
    rows = [
        [f"{method}, {workers}", *(f"{100 * errors[method, workers, gamma]:.2f}" for gamma in convergence.GAMMAS)]
        for workers in convergence.WORKERS
        for method in ("sync", "async")
    ]
    return table(["error, %", *(f"gamma {gamma:g}" for gamma in convergence.GAMMAS)], rows)


def _inside(curves: pd.DataFrame) -> str:
    edges = (convergence.GAMMAS[0], convergence.GAMMAS[-1])
    at_edge = [
        f"{method} on {workers}" for (method, workers), gamma in convergence.choose_gammas(curves).items() if gamma in edges
    ]
    return f"At an edge of the grid: {', '.join(at_edge)}." if at_edge else "No choice is at an edge of the grid."


def _ends(curves: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    best = convergence.ends(curves)
    rows = []
    for workers in convergence.WORKERS:
        for method in ("sync", "async"):
            end = best[method, workers]
            is_reached = end.seconds.notna().all()
            row = [
                f"{method}, {workers}",
                f"{end.gamma:g}",
                format_mean(end.error),
                format_mean(end.seconds, ".0f") if is_reached else "–",
                format_mean(end.epochs, ".0f") if is_reached else "–",
                f"{end.epoch.mean():.2f}",
            ]
            rows.append(row)
    return ["run", "gamma", "error at the end", "s to the target", "epochs to it", "s an epoch"], rows


_HIGH = 0.05  # an error that every rate should come to


TEXT = """# Backup workers (Chen, Pan, Monga, Bengio, Jozefowicz 2017)

Made by `make reproduce` (this part alone: `python -m reproductions backup_workers`; without the training, `--timing`)
from `scenarios/backup-workers/` and the CSV files next to this page. A table near the end lists every claim of the paper.
In figure 8, table 2 and figure 7 orders are decided by the seeds: *agrees* if the 95% interval (Student's t, of the
logarithm) of the ratio of runs with the same seed lies on the paper's side of 1, *disagrees* if on the other, *within the
seeds* if it holds 1. Elsewhere means are compared.

{reasons}

**Scaled down**: MNIST and a 784-100-10 network replace ImageNet and Inception. The numbers of workers are the paper's.
The paper shows compute times as pictures and prints a few numbers, so the cluster is made up: log-normal times, slower or
faster phases of the whole cluster, and rare delays with a heavy tail. **Calibrated**, on the numbers of section 3.1 that
the table of claims marks: medians, deviations, and the frequency of delays. Nothing was calibrated on iterations, optima,
errors or times to an error.

## Table 1: staleness by layer

40 workers, 19 layers of equal size on servers of their own, gradients sent layer by layer as they are computed; timing
only. The paper leaves two things open. A message takes 5 ms here (other times have one seed). Layers are requested all
together or, as is FRED's default, one after the other. Gradients count from update {first} of a layer on. Earlier ones are
mostly of the initial parameters, and the first of all has staleness 0.

{layers}

The top layer's staleness follows from these choices, the bottom layer's does not. The forward pass takes a third of a
gradient's time. If all layers are requested together when it begins, the top layer's gradient is sent a third of the time
after it was read. No such order explains that layer 12 is fresher than the top one. Layers of unequal length were not
tried.

## Figure 2: error by simulated staleness

MNIST, batches of 32, a moving average, a rate that is annealed at the end, and a staleness that grows slowly at first are
the paper's. The paper has the rate 0.1, and lower rates from 20 updates on; here every staleness has every rate. **Scaled
down**: one hidden layer replaces a CNN with augmentation, and 5 epochs replace 25. Errors in %:

{stale}

Two of five epochs at a constant rate, with a staleness that grows as above (`ramped`) or is full from the first update on
(`sudden`), three seeds:

{ramp}

![figure 2 and table 1](backup-workers-figure2.svg)

## Figures 3 and 4: when the k-th of 100 gradients arrives

If workers were late independently of each other, and 30 % of the last gradients came within 2 s, then 88 % of the 98th
gradients would. The paper's 80 % shows that some iterations are slow for all workers.

![figures 3 and 4](backup-workers-figure4.svg)

## Figure 5: iterations against N

Runs end when {target} of the test images are misclassified. Each gradient has one example (the paper has 32), so an
update has N. The learning rate is linear in N, as in the paper. {seeds} seeds. The paper prints the iterations of N = 50
and 100 only.

{iterations}

## Figure 6: time against N, of 100 workers

Time is iterations x mean time of the N-th arrival, as in `fred plan`. The paper interpolates linearly between its N. With
N = 70, 80 and 90 known, too, its lines are nearer to least + noise / N than a line from 50 to 100 is.

{plans}

![figures 5 and 6](backup-workers-figure6.svg)

## Table 2 and figure 7: initial rates

N = 100 and b = 6 as in the paper, one example for each gradient, rates that fall by 0.94 in two epochs, 30 epochs, a
moving average. The table's own numbers are not in the text that was available. One seed for each rate:

{rates}

The paper's 1.125 is a quarter of 4.5. Here the best rate is compared with a quarter of it on {rate_seeds} other seeds (±
half of the 95% interval), at errors 1.2, 1.05 and 1.0 times the last error of the best one:

{reported_rates}

## Figure 8: Sync-Opt with backup workers against Async-Opt

Rates are gamma N for Sync-Opt and gamma for Async-Opt, as in the paper. Runs have {until} s of virtual time on the same
cluster and batches of 8; the target is an error of {eight}. Rates are constant, steps plain, and there is no moving
average; the paper decays rates and uses RMSProp. An epoch is an update of Sync-Opt, and N updates of Async-Opt, as in the
paper.

Each run has the best of {many} gammas by the error at the end, over {tuning} seeds:

{gammas}

The best gammas on {reported} other seeds (± half of the 95% interval):

{ends}

![figure 8](backup-workers-figure8.svg)

An epoch takes Sync-Opt longer, because messages take no time here: a worker of Async-Opt never waits. Nor do servers with a
bandwidth explain figure 8e. {servers} servers have {megabytes} MB together, 53 workers, timing alone:

{epochs}

The workers of Sync-Opt send and ask all at once and queue at the servers; those of Async-Opt spread over the epoch. What a
server needs for an update is missing here: Async-Opt makes N updates in an epoch, Sync-Opt one.

## Appendix A.3: clipping

53 workers, RMSProp with a decay of 0.9 and momentum 0.9, batches of 8, 12,000 gradients, three seeds; clipped to a norm
of 1. The rate of synchronous runs is multiplied by the 50 gradients of an update. Errors in %:

{clipping}

## Every claim

{measured}

Not tried:

{untried}

{counts}

## Objections

**"Figure 8 hangs on two gammas and one seed."** It did. It now has {many} gammas, chosen on {tuning} seeds and reported
on {reported} others, and verdicts by intervals. {inside}

**"In table 2 the best rate is the largest that was tried, with one seed."** It was. The grid now goes on to {largest:g},
where training fails. Orders are judged on {rate_seeds} other seeds. The choice itself rests on one seed.

**"The paper's staleness is an average, and FRED's lag is constant."** This stands for the figure. `drawn_from` varies the
lag, and then staleness of 15 to 50 hardly matters (`docs/errata.md`, item 22).

**No weight normalisation, no augmentation.** This stands (`docs/errata.md`, item 46): only the runs here can be compared
with each other.

**Few seeds elsewhere.** This stands: other verdicts compare means over three seeds, without intervals.
"""
