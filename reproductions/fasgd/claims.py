"""Results for each claim of the FASGD paper, from the CSV files."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from reproductions.combined import all_of, under_choices
from reproductions.fasgd import curves, traffic
from reproductions.fasgd.curves import FIGURE_1, FIGURE_2, PAPER, Errors
from reproductions.verdicts import Found, Measured, Verdict, less, no_worse, shown, whether

TENTH = 0.1  # of the fetches: ten times fewer, as in the paper
SLIGHT = 1.1  # times the error of what it is compared with: not seriously worse
LEARNS = 0.5  # an error: under it a run has learned something, above it it has diverged


class Files(NamedTuple):
    """Contents of the CSV files."""

    errors: Errors
    tuning: pd.DataFrame
    traffic: pd.DataFrame
    smaller: pd.DataFrame

    def one(self, experiment: str, run: str, quantity: str = "error") -> float:
        """A number of the smaller measurements, mean over the seeds."""
        own = self._own(experiment, quantity)
        return float(own[own["run"] == run]["value"].mean())

    def seeds(self, experiment: str, run: str, quantity: str = "error") -> "pd.Series[float]":
        """Return a number of the smaller measurements, by seed."""
        own = self._own(experiment, quantity)
        return own[own["run"] == run].set_index("seed")["value"]

    def rates(self, run: str) -> "pd.Series[float]":
        """Return the error by rate of a penalty on some workers."""
        own = self._own("penalties", "error")
        return own[own["run"] == run].set_index("rate")["value"]

    def _own(self, experiment: str, quantity: str) -> pd.DataFrame:
        chosen = (self.smaller["experiment"] == experiment) & (self.smaller["quantity"] == quantity)
        return self.smaller[chosen]


def measured(files: Files) -> Measured:
    """Return the measured value of each claim."""
    parts = (_penalties, _staleness, _gates, _first, _faster, _rates, _second, _fetches, _pushes, _copies, _clusters)
    return {name: found for part in parts for name, found in part(files).items()}


def _penalties(files: Files) -> Measured:
    """Section 1, each rule with the best of six rates."""
    best = {name: {n: files.rates(f"{name}-{n}").min() for n in (4, 32, 256)} for name in ("asgd", "sasgd", "exponential")}
    few, many = (best["exponential"][n] / best["sasgd"][n] for n in (4, 256))
    return {
        "asgd": _all_below((best["sasgd"][n], best["asgd"][n]) for n in best["asgd"]),
        "few-clients": Found(f"{few:.2f} times SASGD's error on 4 workers", whether(few <= SLIGHT)),
        "many-clients": Found(f"{many:.2f} times SASGD's error on 256 workers", whether(many > SLIGHT)),
    }


def _staleness(files: Files) -> Measured:
    largest = {
        name: {n: float((own := files.rates(f"{name}-{n}"))[own < LEARNS].index.max()) for n in (4, 256)}
        for name in ("asgd", "sasgd")
    }
    rates = ", ".join(f"{name.upper()} up to {own[256]:g} (4 workers: {own[4]:g})" for name, own in largest.items())
    variants = ("published-code", "std")
    by = {name: [files.one("b-staleness", each, name) for each in variants] for name in ("staleness", "v", "both")}
    pairs = list(zip(by["both"], by["staleness"], strict=True))
    return {
        "more-clients": Found(rates, whether(largest["sasgd"][256] > largest["asgd"][256])),
        "b-staleness": Found(
            ", ".join(f"{both:.2f} against {alone:.2f}" for both, alone in pairs),
            whether(all(both > alone for both, alone in pairs)),
        ),
        "deviate": Found(", ".join(f"{value:+.2f}" for value in by["v"]), whether(min(by["v"]) > 0.1)),
    }


def _gates(files: Files) -> Measured:
    bursts, errors = (_at_as_many_fetches(files, quantity) for quantity in ("bursts", "error"))
    unsent = [[files.one("unsent", f"{what}-{c}") for what in ("mean", "again")] for c in ("0.00125", "0.01")]
    same = files.one("serial", "both", "same") == 1.0
    return {
        "peaky": Found(
            ", ".join(f"{period.mean():.2f} against {gate.mean():.2f} at {share:.0%}" for share, period, gate in bursts),
            all_of([less(gate, period) for _, period, gate in bursts]),
        ),
        "gates": Found(
            ", ".join(f"{gate.mean():.3f} against {period.mean():.3f} at {share:.0%}" for share, period, gate in errors),
            all_of([less(gate, period) for _, period, gate in errors]),
        ),
        "averaged": _all_below(unsent),
        "batches": Found("the same digest" if same else "another digest", whether(same)),
    }


def _at_as_many_fetches(files: Files, quantity: str) -> "list[tuple[float, pd.Series[float], pd.Series[float]]]":
    """Return each gate's share of passing fetches, and a quantity by seed with periods, interpolated, and with it."""
    periods = [f"period-{k}" for k in (16, 8, 4, 2)]
    shares = pd.DataFrame({name: files.seeds("periods", name, "fetched").map(np.log) for name in periods})
    values = pd.DataFrame({name: files.seeds("periods", name, quantity) for name in periods})
    found = []
    for gate in ("gate-0.004", "gate-0.015625", "gate-0.0625"):
        share = files.seeds("periods", gate, "fetched")
        between = {seed: np.interp(np.log(share[seed]), shares.loc[seed], values.loc[seed]) for seed in share.index}
        found.append((float(share.mean()), pd.Series(between), files.seeds("periods", gate, quantity)))
    return found


def _first(files: Files) -> Measured:
    """Figure 1."""
    found = {}
    for c in FIGURE_1:
        ours = {name: files.errors.published(name, c) for name in curves.PUBLISHED}
        close = all(abs(ours[name] - PAPER[c][name]) <= 0.15 * PAPER[c][name] + 0.005 for name in ours)
        found[f"beats-{c}"] = _all_below([(ours["fasgd"], ours["sasgd"])])
        found[f"errors-{c}"] = Found(f"{ours['fasgd']:.3f}, {ours['sasgd']:.3f}", whether(close))
    return found


def _faster(files: Files) -> Measured:
    errors = files.errors
    sooner = [errors.until("fasgd", c, errors.published("sasgd", c)) / curves.UPDATES for c in FIGURE_1]
    pairs = [[errors.of("N(0, 1)", "published", name, c) for name in curves.PUBLISHED] for c in FIGURE_1]
    wins = np.concatenate([(ours < theirs).to_numpy() for ours, theirs in pairs])
    return {
        "faster": Found(
            ", ".join(f"{share:.0%} of the updates" for share in sooner), whether(all(share < 1 for share in sooner))
        ),
        "any-start": Found(f"{wins.sum()} of {len(wins)}", whether(wins.all())),
    }


def _rates(files: Files) -> Measured:
    best = curves.best(files.tuning)
    rates = best[best["initialisation"] == "N(0, 1)"].set_index("algorithm")["rate"].to_dict()
    published = {"fasgd": 0.005, "sasgd": 0.04}
    return {
        f"rate-{name}": Found(f"{rates[name]:.3g}", whether(0.5 <= rates[name] / rate <= 2)) for name, rate in published.items()
    }


def _second(files: Files) -> Measured:
    """Figure 2."""
    pairs = [[files.errors.published(name, c) for name in ("fasgd", "sasgd")] for c in FIGURE_2]
    ratios, margins = [files.errors.ratio(c) for c in FIGURE_2], [theirs - ours for ours, theirs in pairs]
    difference = Found(", ".join(f"{margin:.3f}" for margin in margins), whether(margins[-1] > margins[0]))
    ratio = Found(", ".join(f"{ratio:.2f}" for ratio in ratios), whether(ratios[-1] > ratios[0]))
    better = {f"beats-{c}": _all_below([pair]) for c, pair in zip(FIGURE_2, pairs, strict=True)}
    return {**better, "relative": under_choices(difference, {"ratio": ratio})}


def _fetches(files: Files) -> Measured:
    """Figure 3, fetches."""
    ends = traffic.ends(files.traffic)
    means, costs = traffic.means(ends), traffic.costs_at(ends, "published-fetch", TENTH)
    mildest = [means[means["kind"] == kind].nsmallest(1, "cost").iloc[0] for kind in ("published-fetch", "read-fetch")]
    says = f"{shown(costs, '.2f')} times the error, stamps as published; "
    says += "the mildest c: " + "; ".join(
        f"{1 / own['fetched']:.0f} times fewer: {own['cost']:.2f} times the error{stamps}"
        for own, stamps in zip(mildest, (", stamps as published", ", true stamps"), strict=True)
    )
    smallest = means[means.index == "published-fetch-0.015625"].iloc[0]  # of the figure's c
    says += f"; the figure's smallest c, as published: {1 / smallest['fetched']:.0f} times, {smallest['cost']:.2f} times"
    least = means[means["kind"] == "published-fetch"]["total"].min()
    return {
        "fetches": Found(says, no_worse(costs, costs / costs, SLIGHT - 1)),
        "copies": Found(f"{1 / least:.1f} times at most", whether(least <= 0.2)),
    }


def _pushes(files: Files) -> Measured:
    """Figure 3, pushes."""
    ends = traffic.ends(files.traffic)
    means = traffic.means(ends)
    pushes = means[means["kind"] == "push"]
    worst, mild = (pushes.nlargest(1, by).iloc[0] for by in ("error", "pushed"))
    pushed, fetched = (traffic.error_at(ends, kind, 0.1) for kind in ("push", "published-fetch"))
    return {
        "pushes": Found(f"an error of {worst['error']:.3f} with {worst['pushed']:.0%}", whether(worst["error"] > LEARNS)),
        "few-pushes": Found(f"{mild['cost']:.2f} times the error with {mild['pushed']:.0%}", whether(mild["cost"] > SLIGHT)),
        "push-or-fetch": Found(f"{pushed:.3f} against {fetched:.3f}", whether(pushed > fetched)),
    }


def _copies(files: Files) -> Measured:
    """Figure 3, its curves."""
    bent = [each for kind in ("published-fetch", "push") for each in traffic.bent(files.traffic, kind)]
    error = traffic.means(traffic.ends(files.traffic))["error"]["open"]
    return {
        "bend": Found(f"{sum(bent)} of {len(bent)} curves", whether(all(bent))),
        "open": Found(f"{error:.3f}", Verdict.NOT_COMPARED),
    }


def _clusters(files: Files) -> Measured:
    mixed, alike = (
        files.one("heterogeneous", f"sasgd-{who}") / files.one("heterogeneous", f"fasgd-{who}") for who in ("mixed", "alike")
    )
    says = f"SASGD's error {mixed:.2f} times FASGD's, against {alike:.2f}"
    return {"heterogeneous": Found(says, whether(mixed > alike))}


def _all_below(pairs: Iterable[Sequence[float]]) -> Found:
    """Return whether the first error is the lower one in every pair."""
    both = list(pairs)
    return Found(", ".join(f"{one:.3f} against {other:.3f}" for one, other in both), whether(all(a < b for a, b in both)))
