"""Every claim of the FASGD paper, and what was found; each verdict follows from the CSV files by the criterion beside it."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from reproductions.common import Stated
from reproductions.fasgd import curves, traffic
from reproductions.fasgd.curves import FIGURE_1, FIGURE_2, PAPER, Errors

SLIGHT = 1.1  # times the error of what it is compared with: not seriously worse
LEARNS = 0.5  # an error: under it a run has learned something, above it it has diverged
BACKGROUND = "of the field, not measured in this paper; backup-workers.md has it"
FUTURE = "future work: the paper has no result"
_ORDER = "a lower error at 100,000 updates, mean over the seeds"


class Measured(NamedTuple):
    """What the CSV files hold."""

    errors: Errors
    tuning: pd.DataFrame
    traffic: pd.DataFrame
    smaller: pd.DataFrame

    def one(self, experiment: str, run: str, quantity: str = "error") -> float:
        """A number of the smaller measurements, mean over the seeds."""
        own = self._own(experiment, quantity)
        return float(own[own["run"] == run]["value"].mean())

    def rates(self, run: str) -> "pd.Series[float]":
        """Of a penalty on some workers: the error by rate."""
        own = self._own("penalties", "error")
        return own[own["run"] == run].set_index("rate")["value"]

    def _own(self, experiment: str, quantity: str) -> pd.DataFrame:
        chosen = (self.smaller["experiment"] == experiment) & (self.smaller["quantity"] == quantity)
        return self.smaller[chosen]


def stated(measured: Measured) -> list[Stated]:
    """All of them, in the paper's order."""
    parts = (_background, _staleness, _gates, _software, _first, _second, _third, _outlook)
    return [each for part in parts for each in part(measured)]


def _background(measured: Measured) -> Iterator[Stated]:
    yield Stated("synchronous SGD waits, and has no trouble converging; asynchronous SGD may have", "1", "yes", how=BACKGROUND)
    best = {name: {n: measured.rates(f"{name}-{n}").min() for n in (4, 32, 256)} for name in ("asgd", "sasgd", "exponential")}
    ours = ", ".join(f"{best['sasgd'][n]:.3f} against {best['asgd'][n]:.3f}" for n in best["asgd"])
    better = all(best["sasgd"][n] < best["asgd"][n] for n in best["asgd"])
    how = "a lower error on 4, 32 and 256 workers, each rule with the best of six rates"
    yield Stated("SASGD converges better than ASGD", "1", "yes", ours, better, how)
    few, many = (best["exponential"][n] / best["sasgd"][n] for n in (4, 256))
    says = f"{few:.2f} times SASGD's error on 4 workers"
    yield Stated(
        "an exponential penalty can work for few clients", "1", "yes", says, few <= SLIGHT, f"at most {SLIGHT:g} times"
    )
    says = f"{many:.2f} times SASGD's error on 256 workers"
    yield Stated(
        "but reduces rates too far where staleness is large", "1", "yes", says, many > SLIGHT, f"above {SLIGHT:g} times"
    )


def _staleness(measured: Measured) -> Iterator[Stated]:
    largest = {
        name: {n: float((own := measured.rates(f"{name}-{n}"))[own < LEARNS].index.max()) for n in (4, 256)}
        for name in ("asgd", "sasgd")
    }
    says = ", ".join(f"{name.upper()} up to {own[256]:g} (4 workers: {own[4]:g})" for name, own in largest.items())
    how = f"of six rates, the largest that ends under an error of {LEARNS:g} on 256 workers is larger"
    yield Stated(
        "dividing by staleness allows convergence with more clients",
        "2.1",
        "yes",
        says,
        largest["sasgd"][256] > largest["asgd"][256],
        how,
    )
    variants = ("published-code", "std")
    by = {name: [measured.one("b-staleness", each, name) for each in variants] for name in ("staleness", "v", "both")}
    says = ", ".join(f"{both:.2f} against {alone:.2f}" for both, alone in zip(by["both"], by["staleness"], strict=True))
    more = all(both > alone for both, alone in zip(by["both"], by["staleness"], strict=True))
    how = (
        "rank correlation with B-staleness of staleness x v, against that of staleness, is higher, as published and with `std`"
    )
    yield Stated("v makes staleness a better measure of B-staleness", "2.2", "yes", says, more, how)
    says, how = ", ".join(f"{value:+.2f}" for value in by["v"]), "rank correlation of v and B-staleness above 0.1, in both"
    yield Stated("where gradients deviate much, B-staleness is high", "2.2", "yes", says, min(by["v"]) > 0.1, how)
    why = "an explanation of the outcome, which no run tells apart from others"
    yield Stated("rates stay high where B-staleness is low, and no step overshoots where it is high", "2.2", "yes", how=why)


def _gates(measured: Measured) -> Iterator[Stated]:
    pairs = _at_as_many_fetches(measured, "bursts")
    says = ", ".join(f"{period:.2f} against {gate:.2f} at {share:.0%}" for share, period, gate in pairs)
    how = "variance over mean of the fetches in a step's time is higher than with gates that let as many pass; three gates"
    yield Stated(
        "with fixed periods traffic is peaky", "2.3", "yes", says, all(period > gate for _, period, gate in pairs), how
    )
    pairs = _at_as_many_fetches(measured, "error")
    says = ", ".join(f"{gate:.3f} against {period:.3f} at {share:.0%}" for share, period, gate in pairs)
    how = "a lower error than with periods that let as many pass; three gates, true stamps, 20,000 updates"
    yield Stated("gates that follow v save more than fixed periods", "2.3", "yes", says, all(a > b for _, a, b in pairs), how)
    tried = ("0.00125", "0.01")
    errors = [[measured.one("unsent", f"{what}-{c}") for what in ("mean", "again")] for c in tried]
    says = ", ".join(f"{mean:.3f} against {again:.3f}" for mean, again in errors)
    how = f"a lower error than with the last one applied again, after 10,000 gradients, with c = {' and '.join(tried)}"
    better = all(mean < again for mean, again in errors)
    yield Stated("averaging gradients until one is sent may work better", "2.3", "possibly", says, better, how)


def _at_as_many_fetches(measured: Measured, quantity: str) -> list[tuple[float, float, float]]:
    """For each gate the share of the fetches that pass; a quantity with periods, on lines between four of them; with it."""
    periods = [f"period-{k}" for k in (16, 8, 4, 2)]
    shares = np.log([measured.one("periods", name, "fetched") for name in periods])
    values = [measured.one("periods", name, quantity) for name in periods]
    found = []
    for gate in ("gate-0.004", "gate-0.015625", "gate-0.0625"):
        share = measured.one("periods", gate, "fetched")
        found.append((share, float(np.interp(np.log(share), shares, values)), measured.one("periods", gate, quantity)))
    return found


def _software(measured: Measured) -> Iterator[Stated]:
    same = measured.one("serial", "both", "same") == 1.0
    claim, how = "synchronous SGD of n clients is SGD with batches n times as large", "the same parameters to the last bit"
    yield Stated(claim, "3", "bitwise", "the same digest" if same else "another digest", same, how)


def _first(measured: Measured) -> Iterator[Stated]:
    errors = measured.errors
    for c in FIGURE_1:
        ours = {name: errors.published(name, c) for name in curves.PUBLISHED}
        says = f"{ours['fasgd']:.3f} against {ours['sasgd']:.3f}"
        yield Stated(f"FASGD beats SASGD, {c}", "figure 1", "yes", says, ours["fasgd"] < ours["sasgd"], _ORDER)
        close = all(abs(ours[name] - PAPER[c][name]) <= 0.15 * PAPER[c][name] + 0.005 for name in ours)
        paper = f"{PAPER[c]['fasgd']:.3f}, {PAPER[c]['sasgd']:.3f} (read off)"
        how = "both within 15 % + 0.005"
        yield Stated(
            f"errors of FASGD and SASGD, {c}", "figure 1", paper, f"{ours['fasgd']:.3f}, {ours['sasgd']:.3f}", close, how
        )
    sooner = [errors.until("fasgd", c, errors.published("sasgd", c)) / curves.UPDATES for c in FIGURE_1]
    says, how = (
        ", ".join(f"{share:.0%} of the updates" for share in sooner),
        "fewer updates until SASGD's last error, in all four",
    )
    yield Stated("FASGD converges faster", "4.1", "yes", says, all(share < 1 for share in sooner), how)
    pairs = [[errors.of("N(0, 1)", "published", name, c) for name in curves.PUBLISHED] for c in FIGURE_1]
    wins = np.concatenate([(ours < theirs).to_numpy() for ours, theirs in pairs])
    says = f"{wins.sum()} of {len(wins)}"
    yield Stated(
        "whatever the random initialisation", "4.1", "yes", says, bool(wins.all()), "FASGD lower with every seed, in all four"
    )
    best = curves.best(measured.tuning)
    rates = best[best["initialisation"] == "N(0, 1)"].set_index("algorithm")["rate"].to_dict()
    for name, rate in {"fasgd": 0.005, "sasgd": 0.04}.items():
        found, how = rates[name], "within a factor of 2, the distance of the candidates"
        near = 0.5 <= found / rate <= 2
        yield Stated(f"best rate of {name.upper()}, of 16", "4.1", f"{rate:g}", f"{found:.3g}", near, how)
    why = "choosing the best of several can only help"
    yield Stated("with tuned hyper-parameters FASGD's margin would be larger", "4.1", "expected", how=why)


def _second(measured: Measured) -> Iterator[Stated]:
    errors = measured.errors
    for c in FIGURE_2:
        ours = {name: errors.published(name, c) for name in curves.PUBLISHED}
        says = f"{ours['fasgd']:.3f} against {ours['sasgd']:.3f}"
        yield Stated(f"FASGD beats SASGD, {c}", "figure 2", "yes", says, ours["fasgd"] < ours["sasgd"], _ORDER)
    ratios = [errors.ratio(c) for c in FIGURE_2]
    margins = [errors.published("sasgd", c) - errors.published("fasgd", c) for c in FIGURE_2]
    says = ", ".join(f"{ratio:.2f}" for ratio in ratios) + "; difference " + ", ".join(f"{margin:.3f}" for margin in margins)
    how = "SASGD's error over FASGD's is larger on 10,000 workers than on 250 (beside it: their difference)"
    claim = "FASGD's relative advantage grows with the number of clients"
    yield Stated(claim, "figure 2", "yes", says, ratios[-1] > ratios[0], how)


def _third(measured: Measured) -> Iterator[Stated]:
    ends = traffic.ends(measured.traffic)
    means = traffic.means(ends)
    mildest = {kind: _mildest(means, kind) for kind in ("published-fetch", "read-fetch")}
    says = "; ".join(
        f"{1 / own['fetched']:.0f} times fewer: {own['cost']:.2f} times the error{stamps}"
        for own, stamps in zip(mildest.values(), (", stamps as published", ", true stamps"), strict=True)
    )
    smallest = means[means.index == "published-fetch-0.015625"].iloc[0]  # of the figure's c
    says += f"; the figure's smallest c, as published: {1 / smallest['fetched']:.0f} times, {smallest['cost']:.2f} times"
    how = f"stamps as published: some c with 8 times fewer or more has an error at most {SLIGHT:g} times that of open gates"
    fine = means[(means["kind"] == "published-fetch") & (means["cost"] <= SLIGHT)]
    yield Stated(
        "fetches can be reduced without seriously hurting", "4.2", "10 times", says, bool((fine["fetched"] <= 1 / 8).any()), how
    )
    least = means[means["kind"] == "published-fetch"]["total"].min()
    how = "some c that lets a fifth of all copies pass: fetching nothing at all would halve them"
    claim, says = "which is 5 times fewer copies of both kinds", f"{1 / least:.1f} times at most"
    yield Stated(claim, "4.2", "5 times", says, bool(least <= 0.2), how)
    pushes = means[means["kind"] == "push"]
    worst = pushes.nlargest(1, "error").iloc[0]
    says = f"an error of {worst['error']:.3f} with {worst['pushed']:.0%}"
    how = f"an error above {LEARNS:g} with some of the paper's c"
    yield Stated("reducing pushes quickly makes it diverge", "4.2", "yes", says, bool(worst["error"] > LEARNS), how)
    mild = pushes.nlargest(1, "pushed").iloc[0]
    says, how = f"{mild['cost']:.2f} times the error with {mild['pushed']:.0%}", f"above {SLIGHT:g} times, with the smallest c"
    yield Stated("pushes cannot be reduced even by a small amount", "4.2", "yes", says, bool(mild["cost"] > SLIGHT), how)
    pushed, fetched = (traffic.error_at(ends, kind, 0.1) for kind in ("push", "published-fetch"))
    says, how = f"{pushed:.3f} against {fetched:.3f}", "a higher error with 10 % of the pushes than of the fetches"
    yield Stated("missing pushes cost more than missing fetches", "4.2, 5", "yes", says, pushed > fetched, how)
    bent = [each for kind in ("published-fetch", "push") for each in traffic.bent(measured.traffic, kind)]
    how = "fewer copies in the second half of a run than in the first, in all"
    yield Stated(
        "copies against potential copies bend down", "figure 3", "yes", f"{sum(bent)} of {len(bent)} curves", all(bent), how
    )
    ours = f"{means['error']['open']:.3f}"
    why = "the two differ, and the paper does not say how many clients and examples they are of"
    yield Stated("error of open gates at 100,000 updates", "figure 3", "about 0.2, 0.07 (read off)", ours, None, why)


def _outlook(measured: Measured) -> Iterator[Stated]:
    yield Stated("clients could be added during training at a steady bandwidth", "4.2", "suggested", how=FUTURE)
    yield Stated("parameters could be sent tensor by tensor, or within a budget", "5", "suggested", how=FUTURE)
    ratios = [
        measured.one("heterogeneous", f"sasgd-{who}") / measured.one("heterogeneous", f"fasgd-{who}")
        for who in ("mixed", "alike")
    ]
    says = f"SASGD's error {ratios[0]:.2f} times FASGD's, against {ratios[1]:.2f}"
    how = "that ratio is larger where half of 64 workers are ten times slower than where all are alike, mean over three seeds"
    claim = "on large, heterogeneous clusters FASGD is even further ahead"
    yield Stated(claim, "6", "expected", says, ratios[0] > ratios[1], how)


def _mildest(means: pd.DataFrame, kind: str) -> "pd.Series[float]":
    """The run with the least loss."""
    return means[means["kind"] == kind].nsmallest(1, "cost").iloc[0]
