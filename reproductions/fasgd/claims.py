"""Results for each claim of the FASGD paper, from the CSV files."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from reproductions.fasgd import curves, traffic
from reproductions.fasgd.curves import FIGURE_1, FIGURE_2, PAPER, Errors
from reproductions.verdicts import (
    Evidence,
    Measured,
    Verdict,
    combine_choices,
    combine_parts,
    format_mean,
    judge,
    judge_less,
    judge_lower_error,
    judge_no_worse,
)

TENTH = 0.1  # of the fetches: ten times fewer, as in the paper
SLIGHT = 1.1  # times the error of what it is compared with: not seriously worse
LEARNS = 0.5  # an error: under it a run has learned something, above it it has diverged


class Files(NamedTuple):
    """Contents of the CSV files."""

    errors: Errors
    tuning: pd.DataFrame
    traffic: pd.DataFrame
    smaller: pd.DataFrame

    def mean(self, experiment: str, run: str, quantity: str = "error") -> float:
        """Return a number of the smaller measurements, mean over the seeds."""
        rows = self._select(experiment, quantity)
        return float(rows[rows["run"] == run]["value"].mean())

    def seeds(self, experiment: str, run: str, quantity: str = "error") -> "pd.Series[float]":
        """Return a number of the smaller measurements, by seed."""
        rows = self._select(experiment, quantity)
        return rows[rows["run"] == run].set_index("seed")["value"]

    def rates(self, run: str) -> "pd.Series[float]":
        """Return the error by rate of a penalty on some workers."""
        rows = self._select("penalties", "error")
        return rows[rows["run"] == run].set_index("rate")["value"]

    def _select(self, experiment: str, quantity: str) -> pd.DataFrame:
        matches = (self.smaller["experiment"] == experiment) & (self.smaller["quantity"] == quantity)
        return self.smaller[matches]


def judge_claims(files: Files) -> Measured:
    """Return the evidence for each claim, by its name."""
    parts = (_penalties, _staleness, _gates, _figure_1, _faster, _rates, _figure_2, _fetches, _pushes, _copies, _clusters)
    return {name: evidence for part in parts for name, evidence in part(files).items()}


def _penalties(files: Files) -> Measured:
    """Judge section 1, each rule with the best of six rates."""
    best = {name: {n: files.rates(f"{name}-{n}").min() for n in (4, 32, 256)} for name in ("asgd", "sasgd", "exponential")}
    few, many = (best["exponential"][n] / best["sasgd"][n] for n in (4, 256))
    return {
        "asgd": _all_below((best["sasgd"][n], best["asgd"][n]) for n in best["asgd"]),
        "few-clients": Evidence(f"{few:.2f} times SASGD's error on 4 workers", judge(few <= SLIGHT)),
        "many-clients": Evidence(f"{many:.2f} times SASGD's error on 256 workers", judge(many > SLIGHT)),
    }


def _staleness(files: Files) -> Measured:
    largest = {
        name: {n: float((errors := files.rates(f"{name}-{n}"))[errors < LEARNS].index.max()) for n in (4, 256)}
        for name in ("asgd", "sasgd")
    }
    rates = ", ".join(f"{name.upper()} up to {rate[256]:g} (4 workers: {rate[4]:g})" for name, rate in largest.items())
    variants = ("published-code", "std")
    correlations = {
        name: [files.mean("b-staleness", variant, name) for variant in variants] for name in ("staleness", "v", "both")
    }
    pairs = list(zip(correlations["both"], correlations["staleness"], strict=True))
    return {
        "more-clients": Evidence(rates, judge(largest["sasgd"][256] > largest["asgd"][256])),
        "b-staleness": Evidence(
            ", ".join(f"{product:.2f} against {staleness:.2f}" for product, staleness in pairs),
            judge(all(product > staleness for product, staleness in pairs)),
        ),
        "deviate": Evidence(", ".join(f"{value:+.2f}" for value in correlations["v"]), judge(min(correlations["v"]) > 0.1)),
    }


def _gates(files: Files) -> Measured:
    bursts, errors = (_at_as_many_fetches(files, quantity) for quantity in ("bursts", "error"))
    pairs = [[files.mean("unsent", f"{run}-{c}") for run in ("mean", "again")] for c in ("0.00125", "0.01")]
    agrees = files.mean("serial", "both", "same") == 1.0
    return {
        "peaky": Evidence(
            ", ".join(f"{period.mean():.2f} against {gate.mean():.2f} at {share:.0%}" for share, period, gate in bursts),
            combine_parts([judge_less(gate, period) for _, period, gate in bursts]),
        ),
        "gates": Evidence(
            ", ".join(f"{gate.mean():.3f} against {period.mean():.3f} at {share:.0%}" for share, period, gate in errors),
            combine_parts([judge_lower_error(gate, period) for _, period, gate in errors]),
        ),
        "averaged": _all_below(pairs),
        "batches": Evidence("the same digest" if agrees else "another digest", judge(agrees)),
    }


def _at_as_many_fetches(files: Files, quantity: str) -> "list[tuple[float, pd.Series[float], pd.Series[float]]]":
    """Return each gate's share of passing fetches, and a quantity by seed with periods, interpolated, and with it."""
    periods = [f"period-{k}" for k in (16, 8, 4, 2)]
    shares = pd.DataFrame({name: files.seeds("periods", name, "fetched").map(np.log) for name in periods})
    values = pd.DataFrame({name: files.seeds("periods", name, quantity) for name in periods})
    results = []
    for gate in ("gate-0.004", "gate-0.015625", "gate-0.0625"):
        share = files.seeds("periods", gate, "fetched")
        interpolated = {seed: np.interp(np.log(share[seed]), shares.loc[seed], values.loc[seed]) for seed in share.index}
        results.append((float(share.mean()), pd.Series(interpolated), files.seeds("periods", gate, quantity)))
    return results


def _figure_1(files: Files) -> Measured:
    """Judge figure 1."""
    evidence = {}
    for c in FIGURE_1:
        errors = {name: files.errors.published(name, c) for name in curves.PUBLISHED}
        close = all(abs(errors[name] - PAPER[c][name]) <= 0.15 * PAPER[c][name] + 0.005 for name in errors)
        evidence[f"beats-{c}"] = _all_below([(errors["fasgd"], errors["sasgd"])])
        evidence[f"errors-{c}"] = Evidence(f"{errors['fasgd']:.3f}, {errors['sasgd']:.3f}", judge(close))
    return evidence


def _faster(files: Files) -> Measured:
    errors = files.errors
    shares = [errors.updates_to_error("fasgd", c, errors.published("sasgd", c)) / curves.UPDATES for c in FIGURE_1]
    pairs = [[errors.last_errors("N(0, 1)", "published", name, c) for name in curves.PUBLISHED] for c in FIGURE_1]
    wins = np.concatenate([(fasgd < sasgd).to_numpy() for fasgd, sasgd in pairs])
    return {
        "faster": Evidence(
            ", ".join(f"{share:.0%} of the updates" for share in shares), judge(all(share < 1 for share in shares))
        ),
        "any-start": Evidence(f"{wins.sum()} of {len(wins)}", judge(wins.all())),
    }


def _rates(files: Files) -> Measured:
    best = curves.choose_rates(files.tuning)
    rates = best[best["initialisation"] == "N(0, 1)"].set_index("algorithm")["rate"].to_dict()
    published = {"fasgd": 0.005, "sasgd": 0.04}
    return {
        f"rate-{name}": Evidence(f"{rates[name]:.3g}", judge(0.5 <= rates[name] / rate <= 2))
        for name, rate in published.items()
    }


def _figure_2(files: Files) -> Measured:
    """Judge figure 2."""
    pairs = [[files.errors.published(name, c) for name in ("fasgd", "sasgd")] for c in FIGURE_2]
    ratios, margins = [files.errors.ratio(c) for c in FIGURE_2], [sasgd - fasgd for fasgd, sasgd in pairs]
    difference = Evidence(", ".join(f"{margin:.3f}" for margin in margins), judge(margins[-1] > margins[0]))
    ratio = Evidence(", ".join(f"{ratio:.2f}" for ratio in ratios), judge(ratios[-1] > ratios[0]))
    beats = {f"beats-{c}": _all_below([pair]) for c, pair in zip(FIGURE_2, pairs, strict=True)}
    return {**beats, "relative": combine_choices(difference, {"ratio": ratio})}


def _fetches(files: Files) -> Measured:
    """Judge figure 3's fetches."""
    ends = traffic.ends(files.traffic)
    means, costs = traffic.means(ends), traffic.costs_at(ends, "published-fetch", TENTH)
    mildest = [means[means["kind"] == kind].nsmallest(1, "cost").iloc[0] for kind in ("published-fetch", "read-fetch")]
    text = f"{format_mean(costs, '.2f')} times the error, stamps as published; "
    text += "the mildest c: " + "; ".join(
        f"{1 / run['fetched']:.0f} times fewer: {run['cost']:.2f} times the error{stamps}"
        for run, stamps in zip(mildest, (", stamps as published", ", true stamps"), strict=True)
    )
    smallest = means[means.index == "published-fetch-0.015625"].iloc[0]  # of the figure's c
    text += f"; the figure's smallest c, as published: {1 / smallest['fetched']:.0f} times, {smallest['cost']:.2f} times"
    fewest = means[means["kind"] == "published-fetch"]["total"].min()
    return {
        "fetches": Evidence(text, judge_no_worse(costs, costs / costs, SLIGHT - 1)),
        "copies": Evidence(f"{1 / fewest:.1f} times at most", judge(fewest <= 0.2)),
    }


def _pushes(files: Files) -> Measured:
    """Judge figure 3's pushes."""
    ends = traffic.ends(files.traffic)
    means = traffic.means(ends)
    pushes = means[means["kind"] == "push"]
    worst, mild = (pushes.nlargest(1, by).iloc[0] for by in ("error", "pushed"))
    pushed, fetched = (traffic.error_at(ends, kind, 0.1) for kind in ("push", "published-fetch"))
    return {
        "pushes": Evidence(f"an error of {worst['error']:.3f} with {worst['pushed']:.0%}", judge(worst["error"] > LEARNS)),
        "few-pushes": Evidence(f"{mild['cost']:.2f} times the error with {mild['pushed']:.0%}", judge(mild["cost"] > SLIGHT)),
        "push-or-fetch": Evidence(f"{pushed:.3f} against {fetched:.3f}", judge(pushed > fetched)),
    }


def _copies(files: Files) -> Measured:
    """Judge figure 3's curves."""
    bends = [bend for kind in ("published-fetch", "push") for bend in traffic.bent(files.traffic, kind)]
    error = traffic.means(traffic.ends(files.traffic))["error"]["open"]
    return {
        "bend": Evidence(f"{sum(bends)} of {len(bends)} curves", judge(all(bends))),
        "open": Evidence(f"{error:.3f}", Verdict.NOT_COMPARED),
    }


def _clusters(files: Files) -> Measured:
    mixed, equal = (
        files.mean("heterogeneous", f"sasgd-{speeds}") / files.mean("heterogeneous", f"fasgd-{speeds}")
        for speeds in ("mixed", "alike")
    )
    text = f"SASGD's error {mixed:.2f} times FASGD's, against {equal:.2f}"
    return {"heterogeneous": Evidence(text, judge(mixed > equal))}


def _all_below(pairs: Iterable[Sequence[float]]) -> Evidence:
    """Return whether the first error is the lower one in every pair."""
    errors = list(pairs)
    return Evidence(
        ", ".join(f"{first:.3f} against {other:.3f}" for first, other in errors), judge(all(a < b for a, b in errors))
    )
