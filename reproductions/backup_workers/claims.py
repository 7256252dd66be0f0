"""Results for each claim of the backup workers paper, from the CSV files."""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd

from reproductions.backup_workers import arrivals, convergence, iterations, smaller, staleness
from reproductions.common import near
from reproductions.verdicts import (
    Evidence,
    Measured,
    Verdict,
    combine_parts,
    judge,
    judge_close,
    judge_less,
    judge_lower_error,
    judge_no_worse,
)

Best = Mapping[tuple[str, int], convergence.End]  # by method and workers
REQUESTS = ("at-once", "in-turn")  # how layers are asked for: the paper does not say
_PRECISIONS = {"low": 1.2, "higher": 1.05, "highest": 1.0}  # times the best rate's error at its end


class Files(NamedTuple):
    """Contents of the CSV files."""

    layers: pd.DataFrame
    stale: pd.DataFrame
    arrived: pd.DataFrame
    reached: pd.DataFrame
    curves: pd.DataFrame
    smaller: pd.DataFrame
    epochs: pd.DataFrame


def judge_claims(files: Files) -> Measured:
    """Return the evidence for each claim, by its name."""
    best = convergence.ends(files.curves)
    return {
        **_layers(files.layers),
        **_stale(files.stale),
        **_ramps(smaller.ends(files.smaller, "ramp")),
        **_explosions(smaller.lost_shares(files.smaller, "ramp")),
        **_stragglers(files.arrived),
        **_iterations(files),
        **_initial_rates(files.smaller),
        **_accuracy(best),
        **_speed(best),
        **_epochs(best),
        **_clipping(smaller.lost_shares(files.smaller, "clipping")),
    }


def _layers(layers: pd.DataFrame) -> Measured:
    """Judge table 1, with layers requested at once and in turn."""
    rows = layers[layers["latency"] == staleness.LATENCY]
    means = [staleness.by_layer(rows, request) for request in REQUESTS]
    evidence = {}
    for layer, paper in staleness.PAPER.items():
        values = [float(mean[layer]) for mean in means]
        agrees = all(near(value, paper, 0.1) for value in values)
        evidence[f"layer-{layer}"] = Evidence(" and ".join(f"{value:.1f}" for value in values), judge(agrees))
    for name, papers in staleness.TABLE.items():
        statistics = [staleness.by_layer(rows, request, name) for request in REQUESTS]
        text = " and ".join(", ".join(f"{values[layer]:.1f}" for layer in papers) for values in statistics)
        agrees = all(near(float(values[layer]), paper, 0.25) for values in statistics for layer, paper in papers.items())
        evidence[name] = Evidence(text, judge(agrees))
    ratios = [float(mean[0] / mean[18]) for mean in means]
    agrees = all(near(ratio, staleness.PAPER[0] / staleness.PAPER[18], 0.25) for ratio in ratios)
    return {**evidence, "staler": Evidence(" and ".join(f"{ratio:.1f} times" for ratio in ratios), judge(agrees))}


def _stale(stale: pd.DataFrame) -> Measured:
    """Judge figure 2."""
    means = staleness.by_lag(stale)
    best = means.min(axis=1)
    ratios = {lag: (best[lag] / best[0], staleness.ERROR[lag] / staleness.ERROR[0]) for lag in (20, 50)}
    comparisons = {lag: [bool(means[rate][lag] > means[rate][0]) for rate in means] for lag in (20, 50)}
    rates = ", ".join(f"{lag}: at {sum(flags)} of {len(flags)} rates" for lag, flags in comparisons.items())
    return {
        "lags": Evidence(", ".join(f"{best[lag]:.2f} %" for lag in staleness.ERROR), judge(best[50] > best[20] > best[0])),
        **{f"lag-{lag}": Evidence(f"{ours:.2f}", judge_close(ours, paper, 0.15)) for lag, (ours, paper) in ratios.items()},
        "poorer": Evidence(rates, judge(all(all(flags) for flags in comparisons.values()))),
    }


def _ramps(errors: smaller.Table) -> Measured:
    usual = 0.1  # the paper's rate
    fresh, ten, twenty = (errors[run][usual] for run in ("fresh-0", "sudden-10", "sudden-20"))
    says = f"{100 * fresh:.1f} % without staleness, {100 * ten:.1f} % with 10, {100 * twenty:.1f} % with 20"
    most = max(abs(errors["sudden-10"][rate] - errors["ramped-10"][rate]) for rate in errors["sudden-10"] if rate <= usual)
    synchronous, stale = (max(smaller.learning_rates(errors[run])) for run in ("fresh-0", "ramped-20"))
    return {
        "above-15": Evidence(says, judge(twenty - fresh > 2 * (ten - fresh))),
        "ramp": Evidence(f"at most {100 * most:.1f} points", judge(most < 0.01)),
        "larger-rates": Evidence(f"{synchronous:g} against {stale:g}", judge(synchronous > stale)),
    }


def _explosions(lost_shares: smaller.Table) -> Measured:
    """Judge by the share of seeds that ended near guessing."""
    rates = list(lost_shares["fresh-0"])  # the highest first
    saved = {
        lag: sum(lost_shares[f"sudden-{lag}"][rate] > lost_shares[f"ramped-{lag}"][rate] for rate in rates) for lag in (20, 50)
    }
    shares = {lag: [lost_shares[f"ramped-{lag}"][rate] for rate in rates] for lag in (20, 50)}
    fewer = all(all(a >= b for a, b in pairwise(by_rate)) and by_rate[0] > by_rate[-1] for by_rate in shares.values())
    every = [share for by_rate in lost_shares.values() for share in by_rate.values()]
    mixed = sum(0 < share < 1 for share in every)
    return {
        "crucial": Evidence(
            ", ".join(f"staleness {lag}: at {count} of {len(rates)} rates" for lag, count in saved.items()),
            judge(all(saved.values())),
        ),
        "lower-rates": Evidence(
            "; ".join(f"{lag}: " + ", ".join(f"{share:.0%}" for share in by_rate) for lag, by_rate in shares.items()),
            judge(fewer),
        ),
        "occasional": Evidence(f"in {mixed} of {len(every)} settings", judge(mixed > 0)),
    }


def _stragglers(arrived: pd.DataFrame) -> Measured:
    """Judge figures 3 and 4."""
    means, shares_in_time = arrivals.means(arrived), arrived.groupby("k")["under"].mean()
    most = ((means >= 1.4) & (means <= 1.8)).mean()
    steps = np.diff(means[95:])
    return {
        "98th": Evidence(f"{shares_in_time[98]:.0%}", Verdict.NOT_COMPARED),
        "last": Evidence(f"{shares_in_time[100]:.0%}", Verdict.NOT_COMPARED),
        "most-means": Evidence(f"{most:.0%} of k", Verdict.NOT_COMPARED),
        "grows": Evidence(
            ", ".join(f"{step:.2f} s" for step in steps), judge(all(following > step for step, following in pairwise(steps)))
        ),
        "longest": Evidence(f"{arrived['longest'].max():.0f} s", Verdict.NOT_COMPARED),
    }


def _iterations(files: Files) -> Measured:
    """Judge figures 5 and 6."""
    mnist = iterations.table_of(files.reached)
    ratio, steps = mnist[100] / mnist[50], [mnist[n] for n in sorted(mnist)]
    best = [
        int(estimate.waited_for[estimate.best_index]) for estimate in iterations.plans(files.reached, files.arrived).values()
    ]
    papers, ours = (", ".join(f"N = {n}" for n in numbers) for numbers in (best[:2], best[2:]))
    agrees = all(abs(n - iterations.BEST) <= 2 for n in best)
    return {
        "ratio": Evidence(f"{ratio:.2f}", judge_close(ratio, iterations.PAPER[100] / iterations.PAPER[50], 0.15)),
        "falls": Evidence(", ".join(f"{step:,.0f}" for step in steps), judge(all(a > b for a, b in pairwise(steps)))),
        "best": Evidence(f"{papers} (the paper's iterations), {ours} (MNIST's)", judge(agrees)),
    }


def _initial_rates(measured: pd.DataFrame) -> Measured:
    """Judge table 2 and figure 7 by a quarter of the best rate, as 1.125 is of 4.5, and by the best."""
    best, ends = smaller.best_rate(measured), smaller.reported(smaller.last_errors(measured))
    low, least = best / 4, float(ends[best].mean())
    says = f"{100 * ends[low].mean():.2f} % at {low:g}, {100 * least:.2f} % at {best:g}"
    evidence = {"low-rate": Evidence(says, judge_lower_error(ends[best], ends[low]))}
    for precision, times in _PRECISIONS.items():
        updates = smaller.reported(smaller.updates_to_error(measured, times * least))
        reached = updates[[low, best]].notna().sum()
        verdict = _reached(updates, low, best, precision)
        counts = f" ({reached[low]} and {reached[best]} of {len(ends)} seeds)" if reached.min() < len(ends) else ""
        means = f"{_updates(updates[low].mean())} against {_updates(updates[best].mean())}"
        evidence[precision] = Evidence(f"{100 * times * least:.2f} %: {means}{counts}", verdict)
    return evidence


def _reached(updates: pd.DataFrame, low: float, best: float, precision: str) -> Verdict:
    """Return whether the lower rate is sooner, later, or never there; a seed that never is counts as later than all."""
    is_reached = updates.notna()
    if precision == "highest":
        return judge(not is_reached[low].any()) if is_reached[best].all() else Verdict.OPEN
    times = updates.fillna(2 * updates.max().max())
    return judge_less(times[low], times[best]) if precision == "low" else judge_less(times[best], times[low])


def _accuracy(best: Best) -> Measured:
    """Judge the errors at the end of figure 8."""
    sync, late = ({n: best[method, n].error for n in convergence.WORKERS} for method in ("sync", "async"))
    all_sync, all_late = (", ".join(f"{100 * error.mean():.2f} %" for error in errors.values()) for errors in (sync, late))
    accurate = {
        f"accurate-{n}": Evidence(f"{100 * (late[n] - sync[n]).mean():+.2f} points", judge_lower_error(sync[n], late[n]))
        for n in sync
    }
    return {
        **accurate,
        "more-workers": Evidence(all_late, judge_lower_error(late[53], late[212])),
        "batches": Evidence(all_sync, Verdict.NOT_COMPARED),
    }


def _speed(best: Best) -> Measured:
    """Judge figure 8's times to an error: the paper has Sync-Opt slower on 53 workers, faster on more."""
    evidence = {}
    for workers in convergence.WORKERS:
        sync, late = best["sync", workers].seconds, best["async", workers].seconds
        pair = (sync, late) if workers > 53 else (late, sync)
        evidence[f"sooner-{workers}"] = Evidence(f"{_seconds(sync)} against {_seconds(late)}", judge_less(*map(_limited, pair)))
    return evidence


def _limited(seconds: "pd.Series[float]") -> "pd.Series[float]":
    """Return the times, with the length of a run for those that never get there."""
    return seconds.fillna(convergence.SECONDS)


def _epochs(best: Best) -> Measured:
    pairs = [[best[method, workers] for method in ("sync", "async")] for workers in convergence.WORKERS]
    epochs = ", ".join(f"{a.epochs.mean():.0f} against {b.epochs.mean():.0f}" for a, b in pairs)
    seconds = ", ".join(f"{a.epoch.mean():.2f} s against {b.epoch.mean():.2f} s" for a, b in pairs)
    return {
        "epochs": Evidence(epochs, combine_parts([judge_less(a.epochs, b.epochs) for a, b in pairs])),
        "epoch": Evidence(seconds, combine_parts([judge_no_worse(a.epoch, b.epoch, 0.1) for a, b in pairs])),
    }


def _clipping(lost_shares: smaller.Table) -> Measured:
    """Judge appendix A.3."""
    largest_rates = {run: max(rate for rate, share in by_rate.items() if not share) for run, by_rate in lost_shares.items()}
    evidence = {}
    for method, needs in {"async": True, "sync": False}.items():
        unclipped, clipped = largest_rates[method], largest_rates[f"{method}-clipped"]
        evidence[f"clipped-{method}"] = Evidence(
            f"rates up to {unclipped:g}, clipped {clipped:g}", judge((clipped > unclipped) == needs)
        )
    return evidence


def _seconds(values: "pd.Series[float]") -> str:
    count = f" ({values.count()} of {len(values)} seeds)" if values.isna().any() else ""
    return "never" if values.isna().all() else f"{values.mean():.0f} s{count}"


def _updates(value: float) -> str:
    return "never" if math.isnan(value) else f"{value:,.0f}"
