"""Results for each claim of the Cutoff SGD paper."""

from typing import Any

import numpy as np
import pandas as pd

from fred.prediction.predictive import expected_normal_order_statistics
from reproductions.cutoff import convergence, regime
from reproductions.cutoff.cluster import CHANGE
from reproductions.cutoff.further import LONGER
from reproductions.cutoff.regime import NEAR, SEEDS, below, recovered, saved, shares, shares_by_seed
from reproductions.verdicts import Found, Measured, close, less, whether

WINDOWS = {"all": (1, 200), "slow node": (1, CHANGE - 1), "61 to 90": (CHANGE, CHANGE + 29), "from 85": (85, 200)}
_WITHOUT = 118  # workers of the three nodes that are not slow


def facts(training: Any) -> Measured:
    """Section 4.1's numbers, and what section 3.1 derives of independent normal times."""
    mean, deviation, idle = training["mean"], training["deviation"], training["slowest"] - training["mean"]
    ordered = mean + deviation * np.asarray(expected_normal_order_statistics(convergence.WORKERS))
    largest = ordered[-1]
    approximate, exact = largest - ordered[convergence.WORKERS // 2 - 1], (largest - ordered).mean()
    same = abs(mean / 1.057 - 1) < 0.01 and abs(deviation / 0.393 - 1) < 0.01
    return {
        "moments": Found(f"{mean:.3f} s, {deviation:.3f} s", whether(same)),
        "largest": Found(f"{largest:.4f} s", close(largest, 2.1063, 0.01)),
        "middle": Found(f"{approximate:.3f} s for {exact:.3f} s", close(approximate, exact, 0.01)),
        "idle": Found(f"{idle:.3f} s", close(idle, 1.049, 0.15)),
        "second": Found(f"{idle / mean:.2f} of one", close(idle / mean, 1.049 / 1.057, 0.15)),
    }


def throughput(rounds: pd.DataFrame) -> Measured:
    """Figure 2."""
    slow, after, late = (shares(rounds, *WINDOWS[name]) for name in ("slow node", "61 to 90", "from 85"))
    again, few = recovered(rounds, "dmm"), below(rounds, "dmm", CHANGE, 85)
    known = [each for each in again if each]
    there = late["dmm"] > NEAR and len(known) == len(again) and max(known, default=0) <= 85
    shorter = saved(rounds, 1, CHANGE - 1), saved(rounds, CHANGE, 200)
    both = {rule: (slow[rule], late[rule]) for rule in ("dmm", "dmm-printed")}
    elfving = f"{slow['Elfving']:.2f} with a slow node, {after['Elfving']:.3f} without"
    return {
        "all": Found(f"{slow['all']:.2f} of the oracle's", whether(slow["all"] < 0.75)),
        "near": Found(f"`dmm`: {slow['dmm']:.3f}", whether(slow["dmm"] > NEAR)),
        "few": Found(f"`dmm`: {few:.1f} are below {NEAR:.0%}", whether(few <= 5)),
        "recovered": Found(f"`dmm`: {late['dmm']:.3f}, near again from {listed(again)}", whether(there)),
        "shorter": Found(f"by {shorter[0]:.0%}, then {shorter[1]:.0%}", whether(min(shorter) > 0.05)),
        "both": Found("`dmm`: {:.3f}, then {:.3f}".format(*both["dmm"]), whether(min(both["dmm"]) > NEAR)),
        "both-printed": Found(
            "`dmm-printed`: {:.2f}, then {:.3f}".format(*both["dmm-printed"]), whether(min(both["dmm-printed"]) > NEAR)
        ),
        "elfving": Found(elfving, whether(slow["Elfving"] < slow["dmm"] - 0.05)),
    }


def stragglers(rounds: pd.DataFrame, profiles: pd.DataFrame) -> Measured:
    """Judge the gain of leaving stragglers out, and of choosing their number."""
    seeds = shares_by_seed(rounds, *WINDOWS["all"])
    node = profiles[(profiles["node"] == 2) & (profiles["iteration"] < CHANGE)]
    taken = (node["seconds"] <= node["cutoff"]).sum()
    more = f"{seeds['dmm'].mean() / seeds['best static'].mean() - 1:+.0%}"
    return {
        "stragglers": Found(
            f"`dmm` {seeds['dmm'].mean():.3f}, all {seeds['all'].mean():.3f}", less(seeds["all"], seeds["dmm"])
        ),
        "static": Found(more, less(1.05 * seeds["best static"], seeds["dmm"])),
        "dropped": Found(f"{taken} of {len(node)} taken (iterations 1 and 50)", whether(taken == 0)),
    }


def listed(iterations: list[int | None]) -> str:
    """Iterations, one for each seed."""
    return ", ".join("never" if each is None else str(each) for each in iterations)


def predictions(coverage: pd.DataFrame, rounds: pd.DataFrame, decisions: pd.DataFrame) -> Measured:
    """Return the results of figure 3, and of claims about decisions."""
    small, large = (coverage[coverage["workers"] == workers] for workers in (158, 2175))
    within, error, idle = ([part[name].mean() for part in (small, large)] for name in ("within", "error", "saved"))
    without = (small.loc[small["iteration"] < CHANGE, "c"] <= _WITHOUT).mean()
    own = rounds[(rounds["rule"] == "dmm") & (rounds["seed"] == SEEDS[0])]
    censored, complete = regime.ratio(own).mean(), small["ratio"].mean()
    longer = decisions[decisions["times"] == LONGER]["of_oracle"]
    took = decisions["milliseconds"].max()
    return {
        "within": Found(f"158: {within[0]:.0%}; 2,175: {within[1]:.0%}", whether(min(within) > 0.8)),
        "error": Found(f"158: {error[0]:.1%}; 2,175: {error[1]:.1%}", whether(max(error) < 0.05)),
        "exceptional": Found(f"c is at most {_WITHOUT} in {without:.0%}", whether(without > 0.95)),
        "saved": Found(f"158: {idle[0]:.0%}; 2,175: {idle[1]:.0%}", whether(min(idle) > 0.2)),
        "censored": Found(f"{censored:.3f} of the oracle's; seeing all {complete:.3f}", close(censored, complete, 0.01)),
        "longer": Found(f"{LONGER} times as long: {longer.mean():.3f}", whether(longer.min() > NEAR)),
        "quick": Found(f"at most {took:.0f} ms", whether(took < 53)),
    }


def learning(curves: pd.DataFrame) -> Measured:
    """Figure 4, by seed."""
    times, losses = convergence.caught_up(curves), convergence.ends(curves, "sgd", "loss")
    updates, adam = convergence.ends(curves, "sgd", "updates"), convergence.ends(curves, "adam", "loss")
    found = {}
    for other in (*convergence.SYNCHRONOUS, "static", "wild"):
        found[f"sooner-{other}"] = Found(_both(times, other, ".0f", " s"), less(times["cutoff"], times[other]))
    for other in (*convergence.SYNCHRONOUS, "static"):
        found[f"lower-{other}"] = Found(_both(losses, other), less(losses["cutoff"], losses[other]))
    for other in convergence.SYNCHRONOUS:
        found[f"finishes-{other}"] = Found(_both(updates, other, ".0f"), less(updates[other], updates["cutoff"]))
        found[f"adam-{other}"] = Found(_both(adam, other), less(adam["cutoff"], adam[other]))
    return {
        **found,
        "maximised": Found(
            f"{losses['oracle'].mean():.4f}, `static` {losses['static'].mean():.4f}", less(losses["oracle"], losses["static"])
        ),
        "wild-sooner": Found(_both(times, "wild", ".0f", " s"), less(times["wild"], times["cutoff"])),
        "wild-higher": Found(_both(losses, "wild"), less(losses["cutoff"], losses["wild"])),
    }


def _both(values: pd.DataFrame, other: str, form: str = ".4f", unit: str = "") -> str:
    return f"{values['cutoff'].mean():{form}}{unit}, `{other}` {values[other].mean():{form}}{unit}"


def costs_of_a_cnn(network: pd.DataFrame, curves: pd.DataFrame) -> tuple[float, float]:
    """Seconds of a core for a round of figure 4 with convolutions; hours for the paper's four runs with one seed, at most."""
    first, last = network.iloc[0], network.iloc[-1]
    each = (last["core_seconds"] - first["core_seconds"]) / (last["rounds"] - first["rounds"])
    updates = convergence.ends(curves, "sgd", "updates").mean()
    rounds = updates["cutoff"] + updates["order"] + updates["sync"] + updates["wild"] / convergence.WORKERS
    return each, each * rounds / 3600
