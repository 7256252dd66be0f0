"""Results for each claim of the Cutoff SGD paper."""

from typing import Any

import numpy as np
import pandas as pd

from fred.prediction.predictive import expected_normal_order_statistics
from reproductions.cutoff import convergence, regime
from reproductions.cutoff.cluster import CHANGE
from reproductions.cutoff.further import LONGER
from reproductions.cutoff.regime import NEAR, SEEDS, count_low_rounds, find_recoveries, shares, shares_by_seed, time_saved
from reproductions.verdicts import Evidence, Measured, judge, judge_close, judge_less, judge_lower_error

WINDOWS = {"all": (1, 200), "slow node": (1, CHANGE - 1), "61 to 90": (CHANGE, CHANGE + 29), "from 85": (85, 200)}
_FAST_WORKERS = 118  # workers of the three nodes that are not slow


def facts(training: Any) -> Measured:
    """Judge section 4.1's numbers, and what section 3.1 derives for independent normal times."""
    mean, deviation, idle = training["mean"], training["deviation"], training["slowest"] - training["mean"]
    ordered = mean + deviation * np.asarray(expected_normal_order_statistics(convergence.WORKERS))
    largest = ordered[-1]
    approximate, exact = largest - ordered[convergence.WORKERS // 2 - 1], (largest - ordered).mean()
    agrees = abs(mean / 1.057 - 1) < 0.01 and abs(deviation / 0.393 - 1) < 0.01
    return {
        "moments": Evidence(f"{mean:.3f} s, {deviation:.3f} s", judge(agrees)),
        "largest": Evidence(f"{largest:.4f} s", judge_close(largest, 2.1063, 0.01)),
        "middle": Evidence(f"{approximate:.3f} s for {exact:.3f} s", judge_close(approximate, exact, 0.01)),
        "idle": Evidence(f"{idle:.3f} s", judge_close(idle, 1.049, 0.15)),
        "second": Evidence(f"{idle / mean:.2f} of one", judge_close(idle / mean, 1.049 / 1.057, 0.15)),
    }


def throughput(rounds: pd.DataFrame) -> Measured:
    """Judge figure 2."""
    slow, after, late = (shares(rounds, *WINDOWS[name]) for name in ("slow node", "61 to 90", "from 85"))
    iterations, few = find_recoveries(rounds, "dmm"), count_low_rounds(rounds, "dmm", CHANGE, 85)
    reached = [iteration for iteration in iterations if iteration]
    in_time = late["dmm"] > NEAR and len(reached) == len(iterations) and max(reached, default=0) <= 85
    shorter = time_saved(rounds, 1, CHANGE - 1), time_saved(rounds, CHANGE, 200)
    windows = {rule: (slow[rule], late[rule]) for rule in ("dmm", "dmm-printed")}
    elfving = f"{slow['Elfving']:.2f} with a slow node, {after['Elfving']:.3f} without"
    return {
        "all": Evidence(f"{slow['all']:.2f} of the oracle's", judge(slow["all"] < 0.75)),
        "near": Evidence(f"`dmm`: {slow['dmm']:.3f}", judge(slow["dmm"] > NEAR)),
        "few": Evidence(f"`dmm`: {few:.1f} are below {NEAR:.0%}", judge(few <= 5)),
        "recovered": Evidence(f"`dmm`: {late['dmm']:.3f}, near again from {list_iterations(iterations)}", judge(in_time)),
        "shorter": Evidence(f"by {shorter[0]:.0%}, then {shorter[1]:.0%}", judge(min(shorter) > 0.05)),
        "both": Evidence("`dmm`: {:.3f}, then {:.3f}".format(*windows["dmm"]), judge(min(windows["dmm"]) > NEAR)),
        "both-printed": Evidence(
            "`dmm-printed`: {:.2f}, then {:.3f}".format(*windows["dmm-printed"]), judge(min(windows["dmm-printed"]) > NEAR)
        ),
        "elfving": Evidence(elfving, judge(slow["Elfving"] < slow["dmm"] - 0.05)),
    }


def stragglers(rounds: pd.DataFrame, profiles: pd.DataFrame) -> Measured:
    """Judge the gain of leaving stragglers out, and of choosing their number."""
    seeds = shares_by_seed(rounds, *WINDOWS["all"])
    node = profiles[(profiles["node"] == 2) & (profiles["iteration"] < CHANGE)]
    waited_for = (node["seconds"] <= node["cutoff"]).sum()
    gain = f"{seeds['dmm'].mean() / seeds['best static'].mean() - 1:+.0%}"
    return {
        "stragglers": Evidence(
            f"`dmm` {seeds['dmm'].mean():.3f}, all {seeds['all'].mean():.3f}", judge_less(seeds["all"], seeds["dmm"])
        ),
        "static": Evidence(gain, judge_less(1.05 * seeds["best static"], seeds["dmm"])),
        "dropped": Evidence(f"{waited_for} of {len(node)} taken (iterations 1 and 50)", judge(waited_for == 0)),
    }


def list_iterations(iterations: list[int | None]) -> str:
    """List iterations in words, one for each seed."""
    return ", ".join("never" if iteration is None else str(iteration) for iteration in iterations)


def predictions(coverage: pd.DataFrame, rounds: pd.DataFrame, decisions: pd.DataFrame) -> Measured:
    """Return the results of figure 3, and of claims about decisions."""
    small, large = (coverage[coverage["workers"] == workers] for workers in (158, 2175))
    covered, error, idle = ([part[name].mean() for part in (small, large)] for name in ("within", "error", "saved"))
    small_share = (small.loc[small["iteration"] < CHANGE, "c"] <= _FAST_WORKERS).mean()
    own_rounds = rounds[(rounds["rule"] == "dmm") & (rounds["seed"] == SEEDS[0])]
    censored, complete = regime.ratio(own_rounds).mean(), small["ratio"].mean()
    longer = decisions[decisions["times"] == LONGER]["of_oracle"]
    longest = decisions["milliseconds"].max()
    return {
        "within": Evidence(f"158: {covered[0]:.0%}; 2,175: {covered[1]:.0%}", judge(min(covered) > 0.8)),
        "error": Evidence(f"158: {error[0]:.1%}; 2,175: {error[1]:.1%}", judge(max(error) < 0.05)),
        "exceptional": Evidence(f"c is at most {_FAST_WORKERS} in {small_share:.0%}", judge(small_share > 0.95)),
        "saved": Evidence(f"158: {idle[0]:.0%}; 2,175: {idle[1]:.0%}", judge(min(idle) > 0.2)),
        "censored": Evidence(
            f"{censored:.3f} of the oracle's; seeing all {complete:.3f}", judge_close(censored, complete, 0.01)
        ),
        "longer": Evidence(f"{LONGER} times as long: {longer.mean():.3f}", judge(longer.min() > NEAR)),
        "quick": Evidence(f"at most {longest:.0f} ms", judge(longest < 53)),
    }


def learning(curves: pd.DataFrame) -> Measured:
    """Judge figure 4, by seed."""
    times, losses = convergence.times_to_sync_loss(curves), convergence.ends(curves, "sgd", "loss")
    updates, adam = convergence.ends(curves, "sgd", "updates"), convergence.ends(curves, "adam", "loss")
    evidence = {}
    for other in (*convergence.SYNCHRONOUS, "static", "wild"):
        evidence[f"sooner-{other}"] = Evidence(_pair(times, other, ".0f", " s"), judge_less(times["cutoff"], times[other]))
    for other in (*convergence.SYNCHRONOUS, "static"):
        evidence[f"lower-{other}"] = Evidence(_pair(losses, other), judge_lower_error(losses["cutoff"], losses[other]))
    for other in convergence.SYNCHRONOUS:
        evidence[f"finishes-{other}"] = Evidence(_pair(updates, other, ".0f"), judge_less(updates[other], updates["cutoff"]))
        evidence[f"adam-{other}"] = Evidence(_pair(adam, other), judge_lower_error(adam["cutoff"], adam[other]))
    return {
        **evidence,
        "maximised": Evidence(
            f"{losses['oracle'].mean():.4f}, `static` {losses['static'].mean():.4f}",
            judge_lower_error(losses["oracle"], losses["static"]),
        ),
        "wild-sooner": Evidence(_pair(times, "wild", ".0f", " s"), judge_less(times["wild"], times["cutoff"])),
        "wild-higher": Evidence(_pair(losses, "wild"), judge_lower_error(losses["cutoff"], losses["wild"])),
    }


def _pair(values: pd.DataFrame, other: str, form: str = ".4f", unit: str = "") -> str:
    return f"{values['cutoff'].mean():{form}}{unit}, `{other}` {values[other].mean():{form}}{unit}"


def costs_of_a_cnn(network: pd.DataFrame, curves: pd.DataFrame) -> tuple[float, float]:
    """Return a core's seconds for a round of figure 4 with convolutions, and hours for the paper's four runs, at most."""
    shortest, longest = network.iloc[0], network.iloc[-1]
    seconds = (longest["core_seconds"] - shortest["core_seconds"]) / (longest["rounds"] - shortest["rounds"])
    updates = convergence.ends(curves, "sgd", "updates").mean()
    rounds = updates["cutoff"] + updates["order"] + updates["sync"] + updates["wild"] / convergence.WORKERS
    return seconds, seconds * rounds / 3600
