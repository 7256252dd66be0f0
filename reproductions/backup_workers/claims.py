"""Every claim of the backup workers paper, and what was found; each verdict follows from the CSV files by its criterion."""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd

from reproductions.backup_workers import arrivals, convergence, iterations, smaller, staleness
from reproductions.common import Stated, near

RATIO = iterations.PAPER[100] / iterations.PAPER[50]
ASKED = ("at-once", "in-turn")  # how layers are asked for: the paper does not say
_STATISTICS = {"min": "least", "median": "median", "max": "largest", "std": "standard deviation of"}
_NEAR = {"1.5 times as fast": 1.2, "slower": 1.05, "never": 1.0}  # times the best rate's error at its end
NO_PIXELCNN = "no PixelCNN, and no generative model, here"


class Measured(NamedTuple):
    """What the CSV files hold."""

    layers: pd.DataFrame
    stale: pd.DataFrame
    arrived: pd.DataFrame
    reached: pd.DataFrame
    curves: pd.DataFrame
    smaller: pd.DataFrame


def stated(measured: Measured) -> list[Stated]:
    """All of them, in the paper's order."""
    parts = (_layers, _stale, _unstable, _stragglers, _iterations, _initial_rates, _accuracy, _speed, _appendix, _pixelcnn)
    return [each for part in parts for each in part(measured)]


def _layers(measured: Measured) -> Iterator[Stated]:
    own = measured.layers[measured.layers["latency"] == staleness.LATENCY]
    means = [staleness.by_layer(own, asked) for asked in ASKED]
    for layer, paper in staleness.PAPER.items():
        both = [float(each[layer]) for each in means]
        says = " and ".join(f"{value:.1f}" for value in both)
        agrees, how = all(near(value, paper, 0.1) for value in both), "within 10 %, layers asked for at once and in turn"
        yield Stated(f"mean staleness of layer {layer}", "table 1", f"{paper:g}", says, agrees, how)
    for name, papers in staleness.TABLE.items():
        found = [staleness.by_layer(own, asked, name) for asked in ASKED]
        says = " and ".join(", ".join(f"{each[layer]:.1f}" for layer in papers) for each in found)
        agrees = all(near(float(each[layer]), paper, 0.25) for each in found for layer, paper in papers.items())
        paper_says, how = (
            ", ".join(f"{paper:g}" for paper in papers.values()),
            "each within 25 %, at once and in turn, from the first gradient on",
        )
        yield Stated(f"{_STATISTICS[name]} staleness of layers 18, 12, 11, 0", "table 1", paper_says, says, agrees, how)
    ratios = [float(each[0] / each[18]) for each in means]
    times = staleness.PAPER[0] / staleness.PAPER[18]
    says, how = " and ".join(f"{ratio:.1f} times" for ratio in ratios), "within 25 %, at once and in turn"
    claim = "gradients of the lowest layer are staler than those of the top one"
    yield Stated(claim, "2, table 1", f"{times:.1f} times", says, all(near(ratio, times, 0.25) for ratio in ratios), how)


def _stale(measured: Measured) -> Iterator[Stated]:
    means = staleness.by_lag(measured.stale)
    best = means.min(axis=1)
    says = ", ".join(f"{best[lag]:.2f} %" for lag in staleness.ERROR)
    paper = ", ".join(f"{error} %" for error in staleness.ERROR.values())
    rises = bool(best[50] > best[20] > best[0])
    how = "rises from 0 to 20 to 50, each with its best of three rates; the errors are another network's"
    yield Stated("error by staleness 0, 20, 50", "2.1, figure 2", paper, says, rises, how)
    for lag in (20, 50):
        ours, paper_ratio = best[lag] / best[0], staleness.ERROR[lag] / staleness.ERROR[0]
        claim, how = f"error with staleness {lag}, of that without", "within 15 %, each with its best rate"
        yield Stated(claim, "2.1", f"{paper_ratio:.2f}", f"{ours:.2f}", near(ours, paper_ratio, 0.15), how)
    worse = {lag: [bool(means[rate][lag] > means[rate][0]) for rate in means] for lag in (20, 50)}
    says = ", ".join(f"{lag}: at {sum(own)} of {len(own)} rates" for lag, own in worse.items())
    how = "a higher error than without staleness at every one of three rates, with staleness 20 and with 50"
    yield Stated("staleness makes poorer models", "2.1", "yes", says, all(all(own) for own in worse.values()), how)


def _unstable(measured: Measured) -> Iterator[Stated]:
    errors, usual = smaller.ends(measured.smaller, "ramp"), 0.1  # the paper's rate
    fresh, ten, twenty = (errors[run][usual] for run in ("fresh-0", "sudden-10", "sudden-20"))
    says = f"{100 * fresh:.1f} % without staleness, {100 * ten:.1f} % with 10, {100 * twenty:.1f} % with 20"
    how = f"at the paper's rate of {usual:g}, no ramp: 20 costs more than twice what 10 does"
    yield Stated(
        "above 15 updates results deteriorate significantly", "2.1", "yes", says, twenty - fresh > 2 * (ten - fresh), how
    )
    most = max(abs(errors["sudden-10"][rate] - errors["ramped-10"][rate]) for rate in errors["sudden-10"] if rate <= usual)
    says, how = f"at most {100 * most:.1f} points", "less than one point, with staleness 10, at the paper's rate and lower ones"
    yield Stated("a ramp is not relevant below 15 updates", "2.1", "yes", says, most < 0.01, how)
    yield from _explosions(smaller.lost(measured.smaller, "ramp"))
    fresh, stale = (max(smaller.learns(errors[run])) for run in ("fresh-0", "ramped-20"))
    says, how = f"{fresh:g} against {stale:g}", "the largest of five rates that learns is larger than with staleness 20"
    yield Stated("synchronous training bears larger rates", "2.1", "much larger", says, fresh > stale, how)


def _explosions(lost: smaller.Table) -> Iterator[Stated]:
    """By the share of seeds that ended near guessing."""
    rates = list(lost["fresh-0"])  # the highest first
    saved = {lag: sum(lost[f"sudden-{lag}"][rate] > lost[f"ramped-{lag}"][rate] for rate in rates) for lag in (20, 50)}
    says = ", ".join(f"staleness {lag}: at {count} of {len(rates)} rates" for lag, count in saved.items())
    how = "some rate at which fewer of three seeds end near guessing with the ramp than without, for 20 and for 50"
    yield Stated("it is crucial above", "2.1", "yes", says, all(saved.values()), how)
    shares = {lag: [lost[f"ramped-{lag}"][rate] for rate in rates] for lag in (20, 50)}
    says = "; ".join(f"{lag}: " + ", ".join(f"{value:.0%}" for value in own) for lag, own in shares.items())
    how = f"seeds lost at rates {', '.join(f'{rate:g}' for rate in rates)}: never more at a lower one, fewer at the lowest"
    fewer = all(all(a >= b for a, b in pairwise(own)) and own[0] > own[-1] for own in shares.values())
    yield Stated("lower rates reduce explosions", "2.1", "from 20 updates on", says, fewer, how)
    every = [share for own in lost.values() for share in own.values()]
    mixed = sum(0 < share < 1 for share in every)
    says, how = f"in {mixed} of {len(every)} settings", "some settings in which some of three seeds are lost and others not"
    yield Stated("divergence is occasional, and another start may do", "2.1", "yes", says, mixed > 0, how)


def _stragglers(measured: Measured) -> Iterator[Stated]:
    means = arrivals.means(measured.arrived)
    under = measured.arrived.groupby("k")["under"].mean()
    where = "3.1, figure 3"
    yield Stated("98th gradient there within 2 s", where, "80 %", f"{under[98]:.0%}", how="on this number", calibrated=True)
    yield Stated("last gradient there within 2 s", where, "30 %", f"{under[100]:.0%}", how="on this number", calibrated=True)
    between = ((means >= 1.4) & (means <= 1.8)).mean()
    claim = "mean times between 1.4 and 1.8 s"
    yield Stated(claim, "figure 4", "most", f"{between:.0%} of k", how="on this number", calibrated=True)
    steps = np.diff(means[95:])
    says = ", ".join(f"{step:.2f} s" for step in steps)
    grows = all(later > earlier for earlier, later in pairwise(steps))
    how = "each of the last four gradients adds more time than the one before"
    yield Stated("time for the last gradients grows exponentially", "3.1, figure 4", "yes", says, grows, how)
    longest = f"{measured.arrived['longest'].max():.0f} s"
    why = "of how many iterations it is the longest is not said"
    yield Stated("longest time", "figure 3", "310 s", longest, None, why)


def _iterations(measured: Measured) -> Iterator[Stated]:
    mnist = iterations.table_of(measured.reached)
    ratio = mnist[100] / mnist[50]
    claim = "iterations at N = 100, of those at 50"
    yield Stated(claim, "3.1, figure 5", f"{RATIO:.2f}", f"{ratio:.2f}", near(ratio, RATIO, 0.15), "within 15 %")
    steps = [mnist[n] for n in sorted(mnist)]
    falls = all(a > b for a, b in pairwise(steps))
    says = ", ".join(f"{step:,.0f}" for step in steps)
    yield Stated("iterations fall with every N", "figure 5", "yes", says, falls, "each of 50, 70, 80, 90, 100 needs fewer")
    best = [int(found.waited_for[found.best]) for found in iterations.plans(measured.reached, measured.arrived).values()]
    says = (
        ", ".join(f"N = {n}" for n in best[:2])
        + " (the paper's iterations), "
        + ", ".join(f"N = {n}" for n in best[2:])
        + " (MNIST's)"
    )
    how = "within two workers, iterations on lines and fitted; the times of the arrivals are calibrated, the optimum is not"
    agrees = all(abs(n - iterations.BEST) <= 2 for n in best)
    yield Stated("of 100 workers, who waits for N converges first", "figure 6", "N = 96, b = 4", says, agrees, how)


def _initial_rates(measured: Measured) -> Iterator[Stated]:
    own = measured.smaller[measured.smaller["experiment"] == "figure7"]
    ends = own.sort_values("updates").groupby("rate")["error"].last()
    best = float(str(ends.idxmin()))
    low = best / 4  # as 1.125 is of 4.5
    lowest = float(ends[low])
    says = f"{100 * lowest:.2f} % at {low:g}, {100 * float(ends[best]):.2f} % at {best:g}"
    claim, how = "low initial rates end at poorer optima", "a quarter of the best of eight rates ends at a higher error"
    yield Stated(claim, "4.1, table 2", "yes", says, lowest > float(ends[best]), how)
    for said, times in _NEAR.items():
        target = times * float(ends[best])
        first = smaller.first(measured.smaller, target)
        a, b = float(first[low]), float(first[best])
        said_here = f"{100 * target:.2f} %: {_updates(a)} against {_updates(b)}"
        agrees = {"never": math.isnan(a) and not math.isnan(b), "slower": a > b}.get(said, a < b)
        how = f"updates of a quarter of the best rate and of the best rate to {times:g} times the best error"
        yield Stated(f"a low rate comes to {_PRECISION[said]}", "4.1, figure 7", said, said_here, agrees, how)


_PRECISION = {"1.5 times as fast": "a low precision", "slower": "a higher precision", "never": "the highest precisions"}


def _accuracy(measured: Measured) -> Iterator[Stated]:
    best = convergence.ends(measured.curves)
    for workers in convergence.WORKERS:
        sync, late = best["sync", workers], best["async", workers]
        says = f"{100 * (late.error - sync.error):+.2f} points"
        claim, how = (
            f"Sync-Opt ends more accurate, {workers} workers",
            "a lower error at the end, each with the better of two rates",
        )
        yield Stated(claim, "4.2, figure 8", "by about 0.5 points", says, sync.error < late.error, how)
    says = ", ".join(f"{100 * best['async', workers].error:.2f} %" for workers in convergence.WORKERS)
    many = best["async", 212].error > best["async", 53].error
    how = "Async-Opt ends at a higher error with 212 workers than with 53, in as much time"
    yield Stated("asynchronous training is poorer on more workers", "2", "yes", says, many, how)
    says = ", ".join(f"{100 * best['sync', workers].error:.2f} %" for workers in convergence.WORKERS)
    why = "after as much time, not at convergence"
    yield Stated("larger effective batches do not generalise worse", "5", "yes", says, None, why)


def _speed(measured: Measured) -> Iterator[Stated]:
    best = convergence.ends(measured.curves)
    paper = {53: "3 h slower", 106: "6 h faster", 212: "18 h faster"}
    for workers in convergence.WORKERS:
        first, second = best["sync", workers].seconds, best["async", workers].seconds
        sooner = not math.isnan(first) and (math.isnan(second) or first < second)
        says = f"{_seconds(first)} against {_seconds(second)}"
        how = f"the order of the times to an error of {100 * convergence.TARGET:g} %"
        claim = f"Sync-Opt converges, {workers} workers"
        yield Stated(claim, "4.2, figure 8d", paper[workers], says, sooner == (workers > 53), how)
    epochs = {(m, n): convergence.epochs(measured.curves, m, n) for m in ("sync", "async") for n in convergence.WORKERS}
    pairs = [(epochs["sync", n], epochs["async", n]) for n in convergence.WORKERS]
    says = ", ".join(f"{a.needed:.0f} against {b.needed:.0f}" for a, b in pairs)
    how = "fewer epochs (an update; N updates) to that error, with 53, 106 and 212 workers"
    yield Stated("Sync-Opt needs fewer epochs", "4.2, figure 8c", "yes", says, all(a.needed < b.needed for a, b in pairs), how)
    says = ", ".join(f"{a.seconds:.2f} s against {b.seconds:.2f} s" for a, b in pairs)
    how, fine = "at most 1.1 times Async-Opt's", all(a.seconds <= 1.1 * b.seconds for a, b in pairs)
    yield Stated("an epoch takes Sync-Opt no longer", "4.2, figure 8e", "comparable or better", says, fine, how)


def _appendix(measured: Measured) -> Iterator[Stated]:
    lost = smaller.lost(measured.smaller, "clipping")
    bears = {run: max(rate for rate, share in own.items() if not share) for run, own in lost.items()}
    for method, needs in {"async": True, "sync": False}.items():
        plain, clipped = bears[method], bears[f"{method}-clipped"]
        claim = "asynchronous training needs clipped gradients" if needs else "synchronous training does not"
        how = "it is needed if with it a larger one of five rates loses no seed of three; RMSProp, 53 workers, norms to 1"
        says = f"rates up to {plain:g}, clipped {clipped:g}"
        yield Stated(claim, "A.3", "yes", says, (clipped > plain) == needs, how)
    why = "a search for the best rate with every N"
    yield Stated("0.045 N is a good rate for Sync-Opt", "A.2, A.3", "yes", how=why)
    why = "FRED's `overlap` does so (table 1); the paper does not say what it saves"
    yield Stated("without clipping layers can be sent while others are computed", "A.3", "yes", how=why)


def _pixelcnn(_: Measured) -> Iterator[Stated]:
    for claim, paper in (
        ("Sync-Opt comes to a lower NLL than Async-Opt", "yes"),
        ("Async-Opt is outperformed by serial RMSProp", "yes"),
        ("Async-Opt gets worse from 8 to 16 workers", "yes"),
        ("Sync-Opt comes to an NLL of 2.183 sooner than one worker", "< 13 h, not 40 h"),
    ):
        yield Stated(claim, "4.3, figure 9", paper, how=NO_PIXELCNN)


def _seconds(value: float) -> str:
    return "never" if math.isnan(value) else f"{value:.0f} s"


def _updates(value: float) -> str:
    return "never" if math.isnan(value) else f"{value:,.0f}"
