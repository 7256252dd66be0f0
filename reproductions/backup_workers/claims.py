"""Results for each claim of the backup workers paper, from the CSV files."""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd

from reproductions.backup_workers import arrivals, convergence, iterations, smaller, staleness
from reproductions.combined import all_of
from reproductions.common import near
from reproductions.verdicts import Found, Measured, Verdict, close, less, no_worse, whether

Best = Mapping[tuple[str, int], convergence.End]  # by method and workers
ASKED = ("at-once", "in-turn")  # how layers are asked for: the paper does not say
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


def measured(files: Files) -> Measured:
    """Return the measured value of each claim."""
    best = convergence.ends(files.curves)
    return {
        **_layers(files.layers),
        **_stale(files.stale),
        **_ramps(smaller.ends(files.smaller, "ramp")),
        **_explosions(smaller.lost(files.smaller, "ramp")),
        **_stragglers(files.arrived),
        **_iterations(files),
        **_initial_rates(files.smaller),
        **_accuracy(best),
        **_speed(best),
        **_epochs(best),
        **_clipping(smaller.lost(files.smaller, "clipping")),
    }


def _layers(layers: pd.DataFrame) -> Measured:
    """Table 1, layers asked for at once and in turn."""
    own = layers[layers["latency"] == staleness.LATENCY]
    means = [staleness.by_layer(own, asked) for asked in ASKED]
    found = {}
    for layer, paper in staleness.PAPER.items():
        both = [float(each[layer]) for each in means]
        agrees = all(near(value, paper, 0.1) for value in both)
        found[f"layer-{layer}"] = Found(" and ".join(f"{value:.1f}" for value in both), whether(agrees))
    for name, papers in staleness.TABLE.items():
        each = [staleness.by_layer(own, asked, name) for asked in ASKED]
        says = " and ".join(", ".join(f"{values[layer]:.1f}" for layer in papers) for values in each)
        agrees = all(near(float(values[layer]), paper, 0.25) for values in each for layer, paper in papers.items())
        found[name] = Found(says, whether(agrees))
    ratios = [float(each[0] / each[18]) for each in means]
    agrees = all(near(ratio, staleness.PAPER[0] / staleness.PAPER[18], 0.25) for ratio in ratios)
    return {**found, "staler": Found(" and ".join(f"{ratio:.1f} times" for ratio in ratios), whether(agrees))}


def _stale(stale: pd.DataFrame) -> Measured:
    """Figure 2."""
    means = staleness.by_lag(stale)
    best = means.min(axis=1)
    ratios = {lag: (best[lag] / best[0], staleness.ERROR[lag] / staleness.ERROR[0]) for lag in (20, 50)}
    worse = {lag: [bool(means[rate][lag] > means[rate][0]) for rate in means] for lag in (20, 50)}
    rates = ", ".join(f"{lag}: at {sum(own)} of {len(own)} rates" for lag, own in worse.items())
    return {
        "lags": Found(", ".join(f"{best[lag]:.2f} %" for lag in staleness.ERROR), whether(best[50] > best[20] > best[0])),
        **{f"lag-{lag}": Found(f"{ours:.2f}", close(ours, paper, 0.15)) for lag, (ours, paper) in ratios.items()},
        "poorer": Found(rates, whether(all(all(own) for own in worse.values()))),
    }


def _ramps(errors: smaller.Table) -> Measured:
    usual = 0.1  # the paper's rate
    fresh, ten, twenty = (errors[run][usual] for run in ("fresh-0", "sudden-10", "sudden-20"))
    says = f"{100 * fresh:.1f} % without staleness, {100 * ten:.1f} % with 10, {100 * twenty:.1f} % with 20"
    most = max(abs(errors["sudden-10"][rate] - errors["ramped-10"][rate]) for rate in errors["sudden-10"] if rate <= usual)
    synchronous, stale = (max(smaller.learns(errors[run])) for run in ("fresh-0", "ramped-20"))
    return {
        "above-15": Found(says, whether(twenty - fresh > 2 * (ten - fresh))),
        "ramp": Found(f"at most {100 * most:.1f} points", whether(most < 0.01)),
        "larger-rates": Found(f"{synchronous:g} against {stale:g}", whether(synchronous > stale)),
    }


def _explosions(lost: smaller.Table) -> Measured:
    """Judge by the share of seeds that ended near guessing."""
    rates = list(lost["fresh-0"])  # the highest first
    saved = {lag: sum(lost[f"sudden-{lag}"][rate] > lost[f"ramped-{lag}"][rate] for rate in rates) for lag in (20, 50)}
    shares = {lag: [lost[f"ramped-{lag}"][rate] for rate in rates] for lag in (20, 50)}
    fewer = all(all(a >= b for a, b in pairwise(own)) and own[0] > own[-1] for own in shares.values())
    every = [share for own in lost.values() for share in own.values()]
    mixed = sum(0 < share < 1 for share in every)
    return {
        "crucial": Found(
            ", ".join(f"staleness {lag}: at {count} of {len(rates)} rates" for lag, count in saved.items()),
            whether(all(saved.values())),
        ),
        "lower-rates": Found(
            "; ".join(f"{lag}: " + ", ".join(f"{value:.0%}" for value in own) for lag, own in shares.items()), whether(fewer)
        ),
        "occasional": Found(f"in {mixed} of {len(every)} settings", whether(mixed > 0)),
    }


def _stragglers(arrived: pd.DataFrame) -> Measured:
    """Figures 3 and 4."""
    means, under = arrivals.means(arrived), arrived.groupby("k")["under"].mean()
    most = ((means >= 1.4) & (means <= 1.8)).mean()
    steps = np.diff(means[95:])
    return {
        "98th": Found(f"{under[98]:.0%}", Verdict.NOT_COMPARED),
        "last": Found(f"{under[100]:.0%}", Verdict.NOT_COMPARED),
        "most-means": Found(f"{most:.0%} of k", Verdict.NOT_COMPARED),
        "grows": Found(
            ", ".join(f"{step:.2f} s" for step in steps), whether(all(later > earlier for earlier, later in pairwise(steps)))
        ),
        "longest": Found(f"{arrived['longest'].max():.0f} s", Verdict.NOT_COMPARED),
    }


def _iterations(files: Files) -> Measured:
    """Figures 5 and 6."""
    mnist = iterations.table_of(files.reached)
    ratio, steps = mnist[100] / mnist[50], [mnist[n] for n in sorted(mnist)]
    best = [int(found.waited_for[found.best_index]) for found in iterations.plans(files.reached, files.arrived).values()]
    papers, ours = (", ".join(f"N = {n}" for n in own) for own in (best[:2], best[2:]))
    agrees = all(abs(n - iterations.BEST) <= 2 for n in best)
    return {
        "ratio": Found(f"{ratio:.2f}", close(ratio, iterations.PAPER[100] / iterations.PAPER[50], 0.15)),
        "falls": Found(", ".join(f"{step:,.0f}" for step in steps), whether(all(a > b for a, b in pairwise(steps)))),
        "best": Found(f"{papers} (the paper's iterations), {ours} (MNIST's)", whether(agrees)),
    }


def _initial_rates(measured: pd.DataFrame) -> Measured:
    """Table 2 and figure 7: of a quarter of the best rate, as 1.125 is of 4.5, and of the best."""
    best, ends = smaller.best_rate(measured), smaller.reported(smaller.last(measured))
    low, least = best / 4, float(ends[best].mean())
    says = f"{100 * ends[low].mean():.2f} % at {low:g}, {100 * least:.2f} % at {best:g}"
    found = {"low-rate": Found(says, less(ends[best], ends[low]))}
    for precision, times in _PRECISIONS.items():
        updates = smaller.reported(smaller.first(measured, times * least))
        reached = updates[[low, best]].notna().sum()
        verdict = _reached(updates, low, best, precision)
        counts = f" ({reached[low]} and {reached[best]} of {len(ends)} seeds)" if reached.min() < len(ends) else ""
        means = f"{_updates(updates[low].mean())} against {_updates(updates[best].mean())}"
        found[precision] = Found(f"{100 * times * least:.2f} %: {means}{counts}", verdict)
    return found


def _reached(updates: pd.DataFrame, low: float, best: float, precision: str) -> Verdict:
    """Return whether the lower rate is sooner, later, or never there; a seed that never is counts as later than all."""
    there = updates.notna()
    if precision == "highest":
        return whether(not there[low].any()) if there[best].all() else Verdict.OPEN
    known = updates.fillna(2 * updates.max().max())
    return less(known[low], known[best]) if precision == "low" else less(known[best], known[low])


def _accuracy(best: Best) -> Measured:
    """Figure 8, errors at the end."""
    sync, late = ({n: best[method, n].error for n in convergence.WORKERS} for method in ("sync", "async"))
    all_sync, all_late = (", ".join(f"{100 * error.mean():.2f} %" for error in own.values()) for own in (sync, late))
    accurate = {f"accurate-{n}": Found(f"{100 * (late[n] - sync[n]).mean():+.2f} points", less(sync[n], late[n])) for n in sync}
    return {
        **accurate,
        "more-workers": Found(all_late, less(late[53], late[212])),
        "batches": Found(all_sync, Verdict.NOT_COMPARED),
    }


def _speed(best: Best) -> Measured:
    """Figure 8, times to an error: the paper has Sync-Opt slower on 53 workers, faster on more."""
    found = {}
    for workers in convergence.WORKERS:
        first, second = best["sync", workers].seconds, best["async", workers].seconds
        pair = (first, second) if workers > 53 else (second, first)
        found[f"sooner-{workers}"] = Found(f"{_seconds(first)} against {_seconds(second)}", less(*map(_limited, pair)))
    return found


def _limited(seconds: "pd.Series[float]") -> "pd.Series[float]":
    """Return the times, with the length of a run for those that never get there."""
    return seconds.fillna(convergence.SECONDS)


def _epochs(best: Best) -> Measured:
    pairs = [[best[method, workers] for method in ("sync", "async")] for workers in convergence.WORKERS]
    needed = ", ".join(f"{a.epochs.mean():.0f} against {b.epochs.mean():.0f}" for a, b in pairs)
    seconds = ", ".join(f"{a.epoch.mean():.2f} s against {b.epoch.mean():.2f} s" for a, b in pairs)
    return {
        "epochs": Found(needed, all_of([less(a.epochs, b.epochs) for a, b in pairs])),
        "epoch": Found(seconds, all_of([no_worse(a.epoch, b.epoch, 0.1) for a, b in pairs])),
    }


def _clipping(lost: smaller.Table) -> Measured:
    """Appendix A.3."""
    bears = {run: max(rate for rate, share in own.items() if not share) for run, own in lost.items()}
    found = {}
    for method, needs in {"async": True, "sync": False}.items():
        plain, clipped = bears[method], bears[f"{method}-clipped"]
        found[f"clipped-{method}"] = Found(f"rates up to {plain:g}, clipped {clipped:g}", whether((clipped > plain) == needs))
    return found


def _seconds(values: "pd.Series[float]") -> str:
    there = f" ({values.count()} of {len(values)} seeds)" if values.isna().any() else ""
    return "never" if values.isna().all() else f"{values.mean():.0f} s{there}"


def _updates(value: float) -> str:
    return "never" if math.isnan(value) else f"{value:,.0f}"
