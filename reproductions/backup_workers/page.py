"""The page's tables and text."""

from pathlib import Path

import pandas as pd

from reproductions.backup_workers import convergence, epochs, iterations, smaller, staleness
from reproductions.backup_workers.claims import REQUESTS, Files, judge_claims
from reproductions.common import REPORTED, TUNING, fill, table
from reproductions.verdicts import REASONS, format_mean, read_claims, tables

CLAIMS = read_claims(Path(__file__).parent)


def text(files: Files) -> str:
    """Return the page."""
    mnist = iterations.table_of(files.reached)
    rows = [[str(n), f"{updates:,.0f}", f"{updates / mnist[100]:.2f}"] for n, updates in mnist.items()]
    return fill(
        Path(__file__).with_name("page.md"),
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
        reported=len(convergence.REPORTED),
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
